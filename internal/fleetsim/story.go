package fleetsim

import (
	"fmt"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// story is what happened, for people; nothing is written unless somebody asked.
type story struct {
	on    bool
	lines []string
}

func (s *sim) note(format string, args ...any) {
	if s.story.on {
		s.story.lines = append(s.story.lines, fmt.Sprintf("%12s  ", s.now)+fmt.Sprintf(format, args...))
	}
}

// noteTask notes what happens to a task of a cell.
func (s *sim) noteTask(task proto.Task, format string, args ...any) {
	if s.story.on {
		s.note("%s: %s", task.Cell, fmt.Sprintf(format, args...))
	}
}

// nameOfCommand is a command in a few words.
func nameOfCommand(c registry.Command) string {
	cell := func(k registry.Key) string { return "cell " + string(k.Cell[:8]) }
	switch {
	case c.AddSweep != nil:
		return fmt.Sprintf("sweep %s of %d cells", c.AddSweep.ID, len(c.AddSweep.Cells))
	case c.CancelSweep != nil:
		return fmt.Sprintf("cancel sweep %s", c.CancelSweep.ID)
	case c.Issue != nil:
		return fmt.Sprintf("issue %d runs", len(c.Issue.Requests))
	case c.TakeResult != nil:
		r := c.TakeResult.Result
		return fmt.Sprintf("%s of %s under fence %d by %s", r.Outcome, r.Task, r.Fence, r.Agent)
	case c.SetPrediction != nil:
		return "prediction for " + cell(c.SetPrediction.Key)
	case c.SetProgram != nil:
		return "program " + c.SetProgram.Refused + c.SetProgram.Stale
	case c.Settle != nil:
		return fmt.Sprintf("settle %s %s at %s %s", cell(c.Settle.Key), c.Settle.Settlement.State, c.Settle.Settlement.Boundary.Boundary, c.Settle.Settlement.Reason)
	case c.SetVerdict != nil:
		return fmt.Sprintf("verdict on %s against %s: %s", c.SetVerdict.ID, c.SetVerdict.Verdict.Base, c.SetVerdict.Verdict.Summary)
	case c.SetCoefficients != nil:
		return "coefficients"
	}
	return "command"
}

func outcomeOfReply(r registry.Reply) string {
	var b strings.Builder
	if r.Refused != "" {
		b.WriteString("; refused: " + r.Refused)
	}
	for _, t := range r.Issued {
		fmt.Fprintf(&b, "; %s %s", t.ID, t.Quota)
	}
	return b.String()
}
