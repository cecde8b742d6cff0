package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/oomfleet/oomfleet/agent/runner"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

// DeviationKind is a way in which a cell does not do what its recording says.
type DeviationKind string

const (
	// DeviateAdaptive: refused in its forward pass, the workload catches it,
	// gives back what that pass holds and does it again in smaller pieces: each
	// of its largest blocks is smaller by Deviation.Bytes, at most by half (see
	// thrifty). Refused again, it fails. Nothing of this shows without a quota.
	DeviateAdaptive DeviationKind = "adaptive"
	// DeviateOrder: large blocks are freed a little later or not, differently
	// from run to run, which moves edges by some MiB (as GPT-2's backward
	// pass). Each run draws one of the cell's orderVariants.
	DeviateOrder DeviationKind = "order"
	// DeviateExtra: every run under a quota holds one more block of
	// Deviation.Bytes from its forward pass on, which the recording lacks.
	DeviateExtra DeviationKind = "extra"
)

// Deviations plant behaviour that the predictor's model does not know of, so
// that a search is never graded by its own model. They are a pure function of
// Seed and cell; Share is the part of all cells that deviates, 0 to 1.
type Deviations struct {
	Seed  uint64
	Share float64
	// Kinds to choose from, evenly; all of them when empty.
	Kinds []DeviationKind
}

// Deviation is what one cell does. Kind is "" for a cell that does not deviate.
type Deviation struct {
	Kind  DeviationKind
	Bytes proto.Bytes
}

func (d Deviations) validate() error {
	var errs []error
	if d.Share < 0 || d.Share > 1 || d.Share != d.Share {
		errs = append(errs, fmt.Errorf("share of deviating cells %v is not between 0 and 1", d.Share))
	}
	for _, k := range d.Kinds {
		if k != DeviateAdaptive && k != DeviateOrder && k != DeviateExtra {
			errs = append(errs, fmt.Errorf("deviation %q is not one of adaptive, order, extra", string(k)))
		}
	}
	return errors.Join(errs...)
}

// Of says what a cell does, for tests that know the truth.
func (d Deviations) Of(c proto.Cell) Deviation { return d.of(requestOf(c)) }

func (d Deviations) of(req runner.Request) Deviation {
	if d.Share == 0 {
		return Deviation{}
	}
	r := d.random(req, "")
	if r.Float64() >= d.Share {
		return Deviation{}
	}
	kinds := d.Kinds
	if len(kinds) == 0 {
		kinds = []DeviationKind{DeviateAdaptive, DeviateOrder, DeviateExtra}
	}
	return Deviation{Kind: kinds[r.IntN(len(kinds))], Bytes: proto.Bytes(8+r.IntN(57)) * 2 * proto.MiB} // 16 to 128 MiB
}

// orderVariants is in how many ways a cell of DeviateOrder goes: few enough that
// TruthOf can look at each.
const orderVariants = 8

// variantOf draws the way that a run goes, of orderVariants; the same for the
// same run of the same cell.
func (d Deviations) variantOf(req runner.Request, run string) int {
	return d.random(req, run).IntN(orderVariants)
}

// random is a source that depends on the seed, the cell and what, only.
func (d Deviations) random(req runner.Request, what string) *rand.Rand {
	if req.Env == nil {
		req.Env = map[string]string{}
	}
	key, err := json.Marshal([]any{d.Seed, req.Workload, req.SeqLen, req.Batch, req.ChunkSize, req.Env, req.QuotaKind, what})
	if err != nil {
		panic(fmt.Sprintf("sim: a request is plain data and always marshals: %v", err))
	}
	sum := sha256.Sum256(key)
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16])))
}

// Addresses that no recording holds.
const extraAddr = uint64(1) << 62

// withExtra adds the block of DeviateExtra right after the weights.
func withExtra(events []allocator.Event, size proto.Bytes) []allocator.Event {
	out := make([]allocator.Event, 0, len(events)+1)
	out = append(out, events[:loadEvents]...)
	out = append(out, allocator.Event{Action: allocator.Alloc, Addr: extraAddr, Size: int64(size)})
	return append(out, events[loadEvents:]...)
}

// thrifty are the events of a forward pass in smaller pieces: every block of at
// least half the largest size asks for by less, at most for half of itself less.
func thrifty(events []allocator.Event, by proto.Bytes) []allocator.Event {
	largest := int64(0)
	for _, e := range events[loadEvents:] {
		if e.Action == allocator.Alloc {
			largest = max(largest, e.Size)
		}
	}
	out := slices.Clone(events)
	for i := loadEvents; i < len(out); i++ {
		switch e := &out[i]; e.Action {
		case allocator.Alloc, allocator.FreeRequested, allocator.FreeCompleted:
			if e.Size >= largest/2 {
				e.Size -= min(int64(by), e.Size/2)
			}
		}
	}
	return out
}

// player is a world's program and, for a cell that adapts, how it goes on after
// a refusal.
type player struct {
	program *allocator.Program
	caught  *allocator.Caught
}

// program compiles the world's events. Without a quota nothing is caught: there
// the card itself is full.
func (w *world) program() (player, error) {
	program, err := allocator.Compile(w.events)
	if err != nil || !w.adapts {
		return player{program: program}, err
	}
	then, err := allocator.Compile(thrifty(w.events, w.deviation.Bytes))
	return player{program: program, caught: &allocator.Caught{From: loadEvents, Then: then}}, err
}

func (p player) replay(s allocator.Settings, o allocator.ReplayOptions) allocator.CaughtResult {
	if p.caught == nil {
		return allocator.CaughtResult{ReplayResult: p.program.Replay(s, o), Refused: -1}
	}
	return p.program.ReplayCaught(s, o, *p.caught)
}

// reordered delays one large free in eight of the forward pass past the next
// allocation. The recorded addresses serve as names, so a free whose address
// that allocation takes over stays where it is.
func reordered(events []allocator.Event, r *rand.Rand) []allocator.Event {
	const large = 1 << 20
	out := append([]allocator.Event(nil), events...)
	for i := loadEvents; i+2 < len(out); i++ {
		free, done, next := out[i], out[i+1], out[i+2]
		if free.Action != allocator.FreeRequested || free.Size < large ||
			done.Action != allocator.FreeCompleted || done.Addr != free.Addr ||
			next.Action != allocator.Alloc || next.Addr == free.Addr || r.IntN(8) != 0 {
			continue
		}
		out[i], out[i+1], out[i+2] = next, free, done
		i += 2
	}
	return out
}
