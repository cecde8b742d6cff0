package plan

import (
	"cmp"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// face is what a family has to know of one of its records. As long as it stays
// the same, nothing changes for the others.
type face struct {
	// shares: the cell may be predicted from what others recorded. waits: it
	// is in work and has no recording of its own, so it needs that.
	shares, waits bool
	// able: it may be asked for a recording that others can use; out: it has
	// been asked for one.
	able, out bool
	// trace is its own recording, made at the log's index on this stack and
	// card; empty without one.
	trace       proto.TraceRef
	index       uint64
	cuda, torch string
	total       proto.Bytes
	// refusedBy is the program that would not predict the cell.
	refusedBy proto.Digest
}

func faceOf(rec *registry.Record) face {
	modelled := modelled(rec.Cell)
	run := rec.Recording()
	f := face{
		shares: modelled && rec.Search.Strategy == proto.StrategyPredict && rec.Cell.QuotaKind == proto.QuotaAllocator,
		able:   modelled && rec.Settled == nil && run == nil,
	}
	f.waits = f.shares && rec.Settled == nil && run == nil
	for _, o := range rec.Open {
		f.out = f.out || o.Task.Kind == proto.TaskRecord
	}
	if run != nil && run.Trace != nil && modelled {
		f.trace, f.index = *run.Trace, run.Index
		f.cuda, f.torch, f.total = run.Stack.CUDA, run.Stack.Torch, totalOf(run)
	}
	if p := rec.Prediction; p != nil && p.Program != "" && unusable(*p) != "" {
		f.refusedBy = p.Program
	}
	return f
}

// modelled reports whether replay knows the cell's allocator settings. Other
// settings (another backend) have recordings of another kind.
func modelled(c proto.Cell) bool {
	_, err := allocator.SettingsFromEnv(c.AllocatorEnv())
	return err == nil
}

// unusable says why nothing can be certified of a prediction; empty when it can.
func unusable(p proto.Prediction) string {
	switch {
	case p.Refused != "":
		return "replay refused to predict: " + p.Refused
	case p.Boundary.Boundary <= 0:
		return "replay names no passing quota"
	}
	return ""
}

// byRank orders the members of a point by who should record for all: one whose
// recording is out, one that records in any case, then default settings, which
// the most people can compare with.
func byRank(a, b *memo) int {
	return cmp.Or(
		-compareBools(a.face.out, b.face.out),
		compareBools(a.face.shares, b.face.shares),
		cmp.Compare(a.settings, b.settings), // none is the smallest
		a.record.Key.Compare(b.record.Key),
	)
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
