package fleetsim

import (
	"fmt"
	"math/rand/v2"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

const (
	// cardTotal is the memory of every simulated card.
	cardTotal = 40 * proto.GiB
	// outside is what a run holds on the card beside the allocator's bytes, on the
	// oldest drivers.
	outside = 600 * proto.MiB
	// orders is how many ways a run of a deviateOrder cell may go.
	orders = 3
)

// deviation is how a cell behaves otherwise than its recording says.
type deviation int

const (
	deviateNone deviation = iota
	// deviateAdaptive passes where a larger quota would have been enough.
	deviateAdaptive
	// deviateExtra allocates more under a quota than without.
	deviateExtra
	// deviateOrder frees in another order from run to run.
	deviateOrder
	// deviateChanged runs other operations at its length and batch than the rest
	// of its family: its own recording is right, a program of others is wrong.
	deviateChanged
)

func (d deviation) String() string {
	return [...]string{"as recorded", "adaptive", "extra", "order", "changed"}[d]
}

// truth is what the runs of one cell come to.
type truth struct {
	cell     proto.Cell
	deviates deviation
	bytes    proto.Bytes // of the deviation
	settings allocator.Settings
	// recorded is what a run without a quota does, capped what one under a quota
	// does; of deviateOrder there are several ways.
	recorded, capped []*allocator.Program
	// live is what the program itself holds at most: less is never enough, but for
	// a page of an expandable segment.
	live proto.Bytes
	// beside is what a run holds on the card outside the allocator.
	beside     proto.Bytes
	known      map[proto.Bytes]bool // passes, remembered
	floor, top proto.Bytes          // below floor all fail, from top on all pass
}

func newTruth(r *rand.Rand, w workload, cell proto.Cell, d deviation) *truth {
	t := &truth{cell: cell, deviates: d, beside: outside, live: w.live(cell.SeqLen, cell.Batch), known: make(map[proto.Bytes]bool)}
	var err error
	if t.settings, err = allocator.SettingsFromEnv(cell.AllocatorEnv()); err != nil {
		t.settings = allocator.Settings{} // another backend: nobody can replay it, it runs all the same
	}
	ways, under := []workload{w}, []workload{w}
	switch d {
	case deviateAdaptive:
		t.bytes = proto.Bytes(3+r.IntN(60)) * cell.Step
	case deviateExtra:
		t.bytes = proto.Bytes(30+r.IntN(200)) * proto.MiB
		under = []workload{w.with(t.bytes)}
	case deviateChanged: // drawn by length and batch: every cell of them is the same program
		ways = []workload{w.with(proto.Bytes(20+(cell.SeqLen*7+cell.Batch*13)%90) * proto.MiB)}
		under = ways
	case deviateOrder:
		ways = nil
		for n := range orders {
			ways = append(ways, w.variant(n))
		}
		under = ways
	}
	for _, way := range ways {
		t.recorded = append(t.recorded, way.compile(cell.SeqLen, cell.Batch))
	}
	for _, way := range under {
		t.capped = append(t.capped, way.compile(cell.SeqLen, cell.Batch))
	}
	return t
}

// limit is what a quota leaves the allocator; 0 is no quota.
func (t *truth) limit(quota proto.Bytes) allocator.Limit {
	l := allocator.Limit{Device: int64(cardTotal - t.beside)}
	switch {
	case quota == 0:
	case t.cell.QuotaKind == proto.QuotaAllocator:
		l.Cap = int64(quota)
	default:
		l.Device = max(1, int64(min(quota, cardTotal)-t.beside))
	}
	return l
}

// run is what one run comes to. way picks among those of deviateOrder. seen gets
// the trace when it is not nil.
func (t *truth) run(quota proto.Bytes, way int, seen func(allocator.Event)) allocator.ReplayResult {
	programs := t.recorded
	if quota > 0 {
		programs = t.capped
	}
	p := programs[way%len(programs)]
	o := allocator.ReplayOptions{Limit: t.limit(quota), DeviceTotal: int64(cardTotal), Observe: seen}
	result := p.Replay(t.settings, o)
	if result.OOM && quota > 0 && t.deviates == deviateAdaptive {
		o.Limit, o.Observe = t.limit(quota+t.bytes), nil
		if wider := p.Replay(t.settings, o); !wider.OOM {
			wider.Retries = result.Retries
			return wider
		}
	}
	return result
}

// passes reports whether every run under the quota does.
func (t *truth) passes(quota proto.Bytes) bool {
	pass, ok := t.known[quota]
	if !ok {
		pass = true
		for way := range t.capped {
			pass = pass && !t.run(quota, way, nil).OOM
		}
		t.known[quota] = pass
	}
	return pass
}

// mayPass and mayFail: some run under the quota does.
func (t *truth) mayPass(quota proto.Bytes) bool {
	if t.deviates != deviateOrder {
		return t.passes(quota)
	}
	for way := range t.capped {
		if !t.run(quota, way, nil).OOM {
			return true
		}
	}
	return false
}

func (t *truth) mayFail(quota proto.Bytes) bool { return !t.passes(quota) }

// edges are the quotas on the grid at which a pass follows a fail, ascending.
func (t *truth) edges() []proto.Bytes {
	t.span()
	var edges []proto.Bytes
	for q := t.floor + t.cell.Step; q <= t.top; q += t.cell.Step {
		if t.passes(q) && !t.passes(q-t.cell.Step) {
			edges = append(edges, q)
		}
	}
	return edges
}

// span finds between which quotas anything changes.
func (t *truth) span() {
	if t.top > 0 {
		return
	}
	for _, p := range t.capped {
		free := p.Replay(t.settings, allocator.ReplayOptions{})
		beside := proto.Bytes(0)
		if t.cell.QuotaKind != proto.QuotaAllocator {
			beside = t.beside
		}
		t.floor = (t.live + beside - t.bytes - 24*proto.MiB).RoundDown(t.cell.Step)
		reserved := proto.Bytes(free.PeakReserved)
		if t.settings.GCThreshold > 0 {
			reserved *= 2 // collecting garbage moves blocks elsewhere, and may need more than leaving it
		}
		t.top = max(t.top, (reserved + beside + 24*proto.MiB).RoundUp(t.cell.Step))
	}
	t.floor = max(t.floor, t.cell.Step)
}

// holds says how an exact boundary differs from the truth; nil when it does not.
// It is made of the runs' own replays, quota by quota, and not of the sweep that
// the fleet predicts with.
func (t *truth) holds(b proto.Boundary) error {
	t.span()
	edge, pass := proto.Bytes(0), true
	var bands []proto.Band
	var lowest proto.Bytes
	for q := t.top; q >= t.floor; q -= t.cell.Step {
		now := t.passes(q)
		switch {
		case now:
			lowest = q
			if edge == 0 && !t.passes(q-t.cell.Step) {
				edge = q
			}
		case pass:
			bands = append(bands, proto.Band{From: q, To: q})
		default:
			bands[len(bands)-1].From = q
		}
		pass = now
	}
	if n := len(bands); n > 0 {
		bands = bands[:n-1] // what lies below the lowest pass is no band
	}
	if b.Boundary != edge || b.LowestPass != lowest || len(b.FailBands) != len(bands) {
		return fmt.Errorf("boundary %s, lowest pass %s, bands %v; the truth is %s, %s, %v", b.Boundary, b.LowestPass, b.FailBands, edge, lowest, bands)
	}
	for i, band := range bands { // found from above
		if b.FailBands[len(bands)-1-i] != band {
			return fmt.Errorf("bands %v; the truth, from above, is %v", b.FailBands, bands)
		}
	}
	return nil
}
