package sim

import (
	"fmt"

	"github.com/oomfleet/oomfleet/agent/runner"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

// Truth is what the simulated runs of one cell come to under every quota on its
// grid, its planted deviation included: the answer that a search is held to. It
// is made of the runs' own replays, not of allocator.Sweep, so that a search is
// not graded by what it predicts with.
type Truth struct {
	// Deviation is what was planted in the cell.
	Deviation Deviation
	step      proto.Bytes
	ways      []way // one for each variant of a run; DeviateOrder alone has several
}

// way is the outcome of one variant of the cell's runs: pass[i] is that at the
// quota floor + i steps. Every smaller quota fails, every larger one is as the
// last, which passes.
type way struct {
	floor proto.Bytes
	pass  []bool
}

// TruthOf finds out what the runs of a cell come to. It takes some replays for
// each path through the allocator: 0.1 s for most cells, seconds with
// expandable segments or for the orderVariants of DeviateOrder. It fails where a simulated agent would call the cell
// unsupported or wrong, and where even the whole card is not enough.
func TruthOf(cfg Config, c proto.Cell) (Truth, error) {
	req := requestOf(c)
	step := c.Step
	if step <= 0 {
		step = proto.DefaultStep
	}
	common, rejected, err := worldOf(cfg, req)
	if err != nil {
		return Truth{}, err
	}
	if rejected != nil {
		return Truth{}, fmt.Errorf("truth of %s: %s", c, rejected.message)
	}
	t := Truth{Deviation: common.deviation, step: step}
	variants := 1
	if t.Deviation.Kind == DeviateOrder {
		variants = orderVariants
	}
	for v := range variants {
		w := common
		req.QuotaBytes = int64(step) // any: the truth is that of runs under a quota
		w.deviate(cfg.Deviations, req, v)
		found, err := w.walk(req, step)
		if err != nil {
			return Truth{}, fmt.Errorf("truth of %s: %w", c, err)
		}
		t.ways = append(t.ways, found)
	}
	return t, nil
}

// requestOf is the cell as its runs are asked for it, without id and quota.
func requestOf(c proto.Cell) runner.Request {
	return runner.Request{Workload: runner.Workload{Name: c.Workload.Name, Params: c.Workload.Params},
		SeqLen: c.SeqLen, Batch: c.Batch, ChunkSize: c.ChunkSize, Env: c.Env, QuotaKind: string(c.QuotaKind)}
}

// expandablePage is by how much a run with expandable segments may reserve more
// than its quota.
const expandablePage = 20 * proto.MiB

// expandableTop is how far above what it reserves a run with expandable segments
// may still be refused; walk fails where it was not far enough.
const expandableTop = 4 * expandablePage

// walk replays the world's events from the quota that is always enough downward.
// A run that never held more than its peak goes the same way under every quota
// from that peak up to its own: what was granted still is, what was refused
// still is, and what is done about a refusal is the same. Not so with expandable
// segments, whose limit counts the whole of a request though part of it is
// mapped already, and with the threshold of the allocator's garbage collection, a
// share of the quota: there every quota is replayed.
func (w *world) walk(req runner.Request, step proto.Bytes) (way, error) {
	plays, err := w.program()
	if err != nil {
		return way{}, err
	}
	whole, rejected := w.limitOf(req, 0)
	if rejected != nil {
		return way{}, fmt.Errorf("without a quota: %s", rejected.message)
	}
	options := allocator.ReplayOptions{Limit: whole, DeviceTotal: int64(Total)}
	uncapped := plays.program.Replay(w.settings, options)
	if uncapped.OOM {
		return way{}, fmt.Errorf("needs more than the card's %v", Total)
	}
	var overhead proto.Bytes
	if req.QuotaKind != string(proto.QuotaAllocator) {
		overhead = w.outsideNow
	}
	top := (proto.Bytes(uncapped.PeakReserved) + overhead).RoundUp(step)
	if w.settings.Expandable {
		// The limit counts what is mapped already: what it reserves is not enough
		// for every run.
		top += expandableTop.RoundUp(step)
	}
	// What is asked for at once is reserved at once, whatever the quota; a run
	// that adapts may ask for less. Not so what was allocated at once without a
	// quota: a block may be larger than what was asked for, where one lay there,
	// by up to 20 MiB under max_split_size_mb.
	least := liveBytes(w.events)
	if plays.caught != nil {
		least = min(least, liveBytes(thrifty(w.events, w.deviation.Bytes)))
	}
	found := way{floor: (proto.Bytes(least) + overhead - expandablePage).RoundDown(step)}
	found.pass = make([]bool, (top-found.floor)/step+1)
	for q := top; q >= found.floor && q >= w.context; {
		limit, rejected := w.limitOf(req, q)
		if rejected != nil {
			return way{}, fmt.Errorf("at %v: %s", q, rejected.message)
		}
		result := plays.replay(w.settings, allocator.ReplayOptions{Limit: limit, DeviceTotal: int64(Total)})
		low := (proto.Bytes(result.PeakReserved) + overhead).RoundUp(step)
		if low > q || w.settings.Expandable || w.settings.GCThreshold > 0 {
			low = q
		}
		for low = max(low, found.floor); q >= low; q -= step {
			found.pass[(q-found.floor)/step] = !result.OOM
		}
	}
	if !found.pass[len(found.pass)-1] {
		return way{}, fmt.Errorf("fails under %v, which is what it reserves without a quota", top)
	}
	return found, nil
}

// liveBytes is the most that is asked for at once.
func liveBytes(events []allocator.Event) int64 {
	sizes := map[uint64]int64{}
	var live, most int64
	for _, e := range events {
		switch e.Action {
		case allocator.Alloc:
			sizes[e.Addr] = e.Size
			live += e.Size
			most = max(most, live)
		case allocator.FreeRequested:
			live -= sizes[e.Addr]
			delete(sizes, e.Addr)
		}
	}
	return most
}

// passes is the outcome at the largest quota on the grid up to q.
func (f way) passes(q, step proto.Bytes) bool {
	if q < f.floor {
		return false
	}
	return f.pass[min(int((q-f.floor)/step), len(f.pass)-1)]
}

// boundary is the smallest quota such that it and every larger one passes.
func (f way) boundary(step proto.Bytes) proto.Bytes {
	i := len(f.pass)
	for i > 0 && f.pass[i-1] {
		i--
	}
	return f.floor + proto.Bytes(i)*step
}

// Passes says of a quota whether every run of the cell passes under it, and
// whether any does. The two differ for DeviateOrder only.
func (t Truth) Passes(quota proto.Bytes) (every, any bool) {
	every = true
	for _, f := range t.ways {
		pass := f.passes(quota, t.step)
		every, any = every && pass, any || pass
	}
	return every, any
}

// Range is the lowest and the highest survive boundary of the cell's runs, in
// bytes. They differ for DeviateOrder only.
func (t Truth) Range() (lowest, highest proto.Bytes) {
	for i, f := range t.ways {
		b := f.boundary(t.step)
		if i == 0 || b < lowest {
			lowest = b
		}
		highest = max(highest, b)
	}
	return lowest, highest
}

// Boundary is the smallest quota such that under it and under every larger one
// each run of the cell passes.
func (t Truth) Boundary() proto.Bytes {
	_, highest := t.Range()
	return highest
}

// FailBands are the quotas below Boundary at which some run fails although some
// smaller quota passes in every run, ascending.
func (t Truth) FailBands() []proto.Band {
	var bands []proto.Band
	open, passed := false, false
	for q := t.floor(); q < t.Boundary(); q += t.step {
		every, _ := t.Passes(q)
		switch {
		case every:
			open, passed = false, true
		case open:
			bands[len(bands)-1].To = q
		case passed:
			bands = append(bands, proto.Band{From: q, To: q})
			open = true
		}
	}
	return bands
}

func (t Truth) floor() proto.Bytes {
	lowest := t.ways[0].floor
	for _, f := range t.ways {
		lowest = min(lowest, f.floor)
	}
	return lowest
}
