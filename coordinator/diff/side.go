package diff

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

// ErrInput is returned when two sweeps cannot be compared as they were named;
// the text says what to do.
var ErrInput = errors.New("cannot be compared")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInput, fmt.Sprintf(format, args...))
}

// Side is one of two sweeps: its status document and, where it has several
// drivers, the one that is meant.
type Side struct {
	// Name is what people call it: a sweep's id, or a file.
	Name   string
	Report proto.Report
	Driver string
	// Torch chooses the recordings of one torch among those of the same cells;
	// empty is all. A cell's boundary is then left out: it is not told apart by
	// torch.
	Torch string
}

// key is what pairs a cell with one of another stack.
type key struct {
	workload, env        string
	chunk, seqLen, batch int
}

func keyOf(c proto.CellReport) key {
	return key{workload: c.Workload.Name + "\x00" + proto.EnvString(c.Workload.Params), env: envKey(c.Env),
		chunk: c.ChunkSize, seqLen: c.SeqLen, batch: c.Batch}
}

// envKey is an environment as text that no value can forge.
func envKey(env map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) {
		b.WriteString(name + "=" + env[name] + "\x00")
	}
	return b.String()
}

// side is a Side that was found good.
type side struct {
	Side
	origin proto.Origin
	kind   proto.QuotaKind
	step   proto.Bytes
	stack  Stack
	cells  map[key]proto.CellReport
}

// check finds the one stack of a side, and refuses what has several of
// anything that must not be mixed.
func check(s Side) (side, error) {
	out := side{Side: s, cells: map[key]proto.CellReport{}}
	if s.Report.State == "running" {
		c := s.Report.Counts
		return out, refuse("%s is not settled yet (%d of %d cells); wait for it with: fleetctl matrix status %s --wait", s.Name, c.Settled(), c.Total, s.Name)
	}
	stacks := map[[2]string]bool{}
	var chosen []proto.CellReport
	for _, c := range s.Report.Cells {
		if s.Driver == "" || c.Driver == s.Driver {
			stacks[[2]string{c.GPU, c.Driver}] = true
			chosen = append(chosen, c)
		}
	}
	switch {
	case len(s.Report.Cells) == 0:
		return out, refuse("%s has no cells", s.Name)
	case len(chosen) == 0:
		return out, refuse("%s has no driver %s; it has %s", s.Name, s.Driver, strings.Join(Drivers(s.Report), ", "))
	case len(stacks) > 1 && len(Drivers(s.Report)) > 1 && s.Driver == "":
		return out, refuse("%s has cells of the drivers %s; name the ones to compare: --driver X --driver Y", s.Name, strings.Join(Drivers(s.Report), ", "))
	case len(stacks) > 1:
		return out, refuse("%s has cells of several GPU models", s.Name)
	}
	for _, c := range chosen {
		if err := out.take(c); err != nil {
			return out, err
		}
	}
	if len(out.cells) == 0 {
		return out, refuse("%s has no recording made with torch %s", s.Name, s.Torch)
	}
	first := chosen[0]
	out.stack.Sweep, out.stack.GPU, out.stack.Driver = s.Report.Matrix, first.GPU, first.Driver
	return out, nil
}

// take adds a cell to a side.
func (s *side) take(c proto.CellReport) error {
	step := c.Step
	if step == 0 {
		step = proto.DefaultStep
	}
	if len(s.cells) == 0 {
		s.origin, s.kind, s.step = c.Origin, c.QuotaKind, step
	}
	k := keyOf(c)
	switch _, twice := s.cells[k]; {
	case c.Origin != s.origin:
		return refuse("%s holds %s and %s numbers, which never mix", s.Name, s.origin, c.Origin)
	case c.QuotaKind != s.kind:
		return refuse("%s holds boundaries of %s and %s quotas; the kinds never mix", s.Name, s.kind, c.QuotaKind)
	case step != s.step:
		return refuse("%s holds boundaries on steps of %v and %v", s.Name, s.step, step)
	case twice:
		return refuse("%s holds %s twice", s.Name, nameOf(c))
	case !settled(c.State):
		return refuse("%s is not settled yet: %s is %s", s.Name, nameOf(c), c.State)
	}
	if s.Torch != "" {
		c.Recordings = slices.DeleteFunc(slices.Clone(c.Recordings), func(r proto.Recording) bool { return r.Torch != s.Torch })
		c.PeakAllocated, c.PeakReserved, c.ProcessPeak, c.Boundary = 0, 0, 0, proto.Boundary{}
		if len(c.Recordings) == 0 {
			return nil
		}
	}
	s.cells[k] = c
	for _, r := range c.Recordings {
		s.stack.CUDA, s.stack.Torch = r.CUDA, r.Torch
	}
	return nil
}

// settled reports whether a state is final in a document of a sweep that does
// not run any more.
func settled(state proto.CellState) bool {
	switch state {
	case proto.CellCertified, proto.CellPredicted, proto.CellBisected, proto.CellAdaptive, proto.CellFailed, proto.CellCancelled:
		return true
	}
	return false
}

// together refuses two sides that must not be compared.
func together(before, after side) error {
	switch {
	case before.origin != after.origin:
		return refuse("%s is %s and %s is %s: numbers of two origins are never compared", before.Name, before.origin, after.Name, after.origin)
	case before.kind != after.kind:
		return refuse("%s has boundaries of %s quotas and %s of %s quotas: they limit different things", before.Name, before.kind, after.Name, after.kind)
	case (before.Torch == "") != (after.Torch == ""):
		return refuse("name the torch of both sides, or of none")
	case before.step != after.step:
		return refuse("%s was searched in steps of %v and %s in steps of %v; submit one of them again with the other's quota.step", before.Name, before.step, after.Name, after.step)
	}
	for k := range before.cells {
		if _, ok := after.cells[k]; ok {
			return nil
		}
	}
	return refuse("%s and %s have no cell in common: the same workload, length, batch, chunk size and environment", before.Name, after.Name)
}

// Drivers are the driver versions of a report, sorted.
func Drivers(r proto.Report) []string {
	var out []string
	for _, c := range r.Cells {
		out = append(out, c.Driver)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// nameOf is a cell without its driver, for people.
func nameOf(c proto.CellReport) string {
	text := fmt.Sprintf("L%d B%d", c.SeqLen, c.Batch)
	if c.ChunkSize > 0 {
		text += fmt.Sprintf(" c%d", c.ChunkSize)
	}
	if env := proto.EnvString(c.Env); env != "" {
		text += " " + env
	}
	return text
}
