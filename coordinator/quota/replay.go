package quota

import (
	"errors"
	"fmt"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// settings are the question's allocator settings; false where the model does not
// know them, which is then noted once.
func (d *draft) settings() (allocator.Settings, bool) {
	set, err := allocator.SettingsFromEnv(proto.Cell{Env: d.scope.subject.Env}.AllocatorEnv())
	return set, err == nil
}

func (d *draft) expandable() bool {
	set, ok := d.settings()
	return ok && set.Expandable
}

// fromRecording replays a recording of this length and batch, made under any
// quota kind and any allocator settings, under the asked ones.
func (d *draft) fromRecording() bool {
	if d.Library.Recording == nil {
		return false
	}
	for _, r := range d.scope.records {
		run := r.Recording()
		if run == nil || run.Trace == nil || run.Trace.Digest == "" || !d.samePoint(r) {
			continue
		}
		recorded, err := allocator.SettingsFromEnv(r.Cell.AllocatorEnv())
		if err != nil {
			continue
		}
		program, err := d.Library.Recording(run.Trace.Digest)
		if err != nil {
			d.note("the recording of %s could not be read: %v", r.Cell, err)
			continue
		}
		if d.replay(program, recorded) {
			d.Basis, d.Torch = BasisRecording, run.Stack.Torch
			d.Evidence = append([]Evidence{{What: "recording", Cell: r.Cell.String(), ID: r.Key.Cell, State: r.State(), Trace: run.Trace.Digest, Bytes: d.Survive,
				Index: run.Index, AgeSeconds: d.age(run.AppliedTime), Detail: "replayed now under the asked settings and kind of quota"}}, d.Evidence...)
			return true
		}
	}
	return false
}

// fromProgram replays what a run of this length and batch would do.
func (d *draft) fromProgram() bool {
	cell := d.scope.cell(d.q, d.Step)
	p := d.View.Programs[registry.FamilyOf(d.q.Origin, cell)]
	if d.Library.Family == nil || p == nil {
		return false
	}
	if p.Stale != "" {
		d.note("the allocation program is stale (%s) and was not asked", p.Stale)
		return false
	}
	if !p.Covers(cell) {
		return false
	}
	family, err := d.Library.Family(p.Digest)
	if err != nil {
		d.note("the allocation program could not be read: %v", err)
		return false
	}
	program, err := family.At(cell.SeqLen, cell.Batch, cell.ChunkSize)
	if err != nil {
		if !errors.Is(err, allocator.ErrOutOfDomain) {
			d.note("the allocation program does not say: %v", err)
		}
		return false
	}
	if !d.replay(program, allocator.Settings{}) {
		return false
	}
	d.Basis = BasisProgram
	d.Margin, d.MarginWhy = 0, ""
	d.addMargin(true, true)
	d.Evidence = append([]Evidence{{What: "program", Program: p.Digest, Bytes: d.Survive, Index: p.Index, AgeSeconds: d.age(p.Set),
		Detail: fmt.Sprintf("made of %d recordings (%s), replayed now under the asked settings and kind of quota", len(p.Inputs), p.Tested)}}, d.Evidence...)
	for _, r := range d.scope.records {
		if stack := r.Group().Torch; stack != "" {
			d.Torch = stack
		}
	}
	for _, piece := range p.Domains {
		if piece.Holds(cell) {
			d.Domain = &proto.Domain{SeqLen: piece.SeqLen, Batch: piece.Batch}
		}
	}
	return true
}

// replay sweeps a program under the question's settings and kind; false where
// that says nothing, and the reason is noted.
func (d *draft) replay(program *allocator.Program, recorded allocator.Settings) bool {
	settings, ok := d.settings()
	if !ok {
		return false
	}
	o := allocator.SweepOptions{Settings: settings, Recorded: recorded, Step: int64(d.Step), Stop: d.Stop}
	if d.q.limitsProcess() {
		if d.outside.recordings == 0 {
			d.note("no recording says what a process holds outside the allocator, which a %s quota counts", d.q.Kind)
			return false
		}
		o.Kind, o.Overhead = allocator.SweepDevice, int64(d.outside.most)
	}
	result, err := program.Sweep(o)
	switch {
	case err != nil:
		d.note("a replay gave nothing: %v", err)
		return false
	case result.SelfCheckMismatches > 0:
		d.note("a recording holds what the model does not know (%d events landed elsewhere), and nothing is read off it", result.SelfCheckMismatches)
		return false
	}
	b := proto.Boundary{Boundary: proto.Bytes(result.Boundary), NoRetry: proto.Bytes(result.NoRetry), BandsKnown: true, FailBands: []proto.Band{}}
	for _, band := range result.FailBands {
		b.FailBands = append(b.FailBands, proto.Band{From: proto.Bytes(band.From), To: proto.Bytes(band.To)})
	}
	d.boundary(b)
	d.addMargin(false, result.LayoutSensitive)
	d.peak, d.peakBasis = proto.Bytes(result.Uncapped.PeakReserved), "replayed reserved peak"
	if d.q.limitsProcess() {
		d.Translation = d.outside.translation(proto.QuotaAllocator, d.q.Kind)
		d.measured()
	}
	return true
}
