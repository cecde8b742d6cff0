package plan

import (
	"fmt"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// maxOpenProbes is how many probes of one cell may be out at once. Two certify
// an edge in the time of one; more only help where fail bands are probed too.
const maxOpenProbes = 4

// step is what one cell needs next: runs, a replay, or its settlement. All
// empty means: wait for what is out.
type step struct {
	wants  []aim
	replay *Replay
	settle *registry.Settlement
}

// decide says what the record's cell needs next.
func decide(rec *registry.Record) step {
	if rec.Settled != nil {
		return step{}
	}
	l := readLedger(rec)
	if reason, ok := l.exhausted(); ok {
		return l.settled(failed(reason))
	}
	recording := aim{kind: proto.TaskRecord}
	switch l.verdict(recording) {
	case unknown:
		return l.wanting(recording)
	case fails:
		return l.settled(failed(tooSmallCard(l.tallies[recording].last)))
	}
	run := rec.Recording()
	lim := limitsOf(rec, run)
	if rec.Search.Strategy == proto.StrategyBisect {
		return bisect(l, lim, bracketOf(rec.Cell, run, lim), "")
	}
	if why := unpredictable(rec, run); why != "" {
		return bisect(l, lim, bracketOf(rec.Cell, run, lim), why)
	}
	if rec.Prediction == nil {
		return step{replay: replayOf(rec, run)}
	}
	return certify(rec, l, lim)
}

// unpredictable says why the recording cannot lead the search; empty when it
// can, or when replay has not said yet.
func unpredictable(rec *registry.Record, run *registry.Run) string {
	if p := rec.Prediction; p != nil {
		switch {
		case p.Refused != "":
			return "replay refused to predict: " + p.Refused
		case p.Boundary.Boundary <= 0:
			return "replay names no passing quota"
		}
		return ""
	}
	if run.Trace == nil {
		return "the recording has no trace"
	}
	if _, metered := overheadOf(run.Meters); !metered && rec.Cell.QuotaKind != proto.QuotaAllocator {
		return fmt.Sprintf("the recording's process peak was not metered, and a %s quota counts it", rec.Cell.QuotaKind)
	}
	return ""
}

func replayOf(rec *registry.Record, run *registry.Run) *Replay {
	overhead, _ := overheadOf(run.Meters)
	return &Replay{Key: rec.Key, Cell: rec.Cell, Trace: *run.Trace, Overhead: overhead, Step: gridOf(rec.Cell)}
}

// bisect searches with probes alone. why says why no prediction leads it; it is
// empty when the matrix asked for bisection.
func bisect(l ledger, lim limits, br bracket, why string) step {
	f := search(l.points(), br, lim)
	switch {
	case f.noPass:
		return l.settled(failed(noPass(lim, why)))
	case f.found:
		return l.settled(bisected(f, lim, why))
	}
	return l.wanting(probesAt(f.probes)...)
}

func probesAt(quotas []proto.Bytes) []aim {
	aims := make([]aim, len(quotas))
	for i, q := range quotas {
		aims[i] = aim{kind: proto.TaskProbe, quota: q}
	}
	return aims
}
