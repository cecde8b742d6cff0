package registry

import (
	"slices"

	"github.com/oomfleet/oomfleet/proto"
)

func (m *Machine) setProgramLocked(cmd *SetProgram) Reply {
	if why := refuseProgram(cmd); why != "" {
		return Reply{Refused: why}
	}
	inputs := slices.Clone(cmd.Inputs)
	slices.Sort(inputs)
	next := &Program{Family: cmd.Family, Inputs: slices.Compact(inputs), Digest: cmd.Program, Refused: cmd.Refused, NeedMore: cmd.NeedMore,
		Domains: slices.Clone(cmd.Domains), Tested: cmd.Tested, Stale: cmd.Stale, Revision: 1, Index: m.appliedIndex, Set: m.appliedTime}
	before := m.programs.m[cmd.Family]
	switch {
	case cmd.Stale != "" && (before == nil || before.Digest != cmd.Program):
		return Reply{Refused: "the doubted program is not its family's newest"}
	case before == nil:
	case cmd.Stale != "" && before.Stale != "":
		return Reply{}
	case cmd.Stale != "":
		doubted := *before // all but the doubt stays as it was committed
		doubted.Stale = cmd.Stale
		next = &doubted
	case before.MadeFrom(next.Inputs):
		return Reply{} // the first word on these recordings holds
	}
	if before != nil {
		next.Revision, next.Index, next.Set = before.Revision+1, m.appliedIndex, m.appliedTime
		next.Earlier = before.Earlier
		if before.Digest != "" && before.Digest != next.Digest {
			earlier := append(slices.Clip(before.Earlier), before.Digest)
			next.Earlier = slices.Clone(earlier[max(0, len(earlier)-ProgramHistoryLimit):])
		}
	}
	m.programs.put(cmd.Family, next)
	return Reply{Accepted: true}
}

func refuseProgram(cmd *SetProgram) string {
	if origin := cmd.Family.Origin; origin != proto.OriginMeasured && origin != proto.OriginSimulated {
		return "a program is made from measured or simulated recordings, not from " + string(origin) + " ones"
	}
	switch {
	case cmd.Family.Family == "":
		return "a program needs its family"
	case len(cmd.Inputs) == 0:
		return "a program is made from at least one recording"
	case (cmd.Program == "") == (cmd.Refused == ""):
		return "a program is either there or refused"
	case cmd.NeedMore && cmd.Refused == "":
		return "a program that is there needs no more recordings"
	case cmd.Stale != "" && cmd.Program == "":
		return "what is not there cannot be stale"
	case cmd.Program != "" && len(cmd.Domains) == 0:
		return "a program needs a domain"
	}
	return ""
}
