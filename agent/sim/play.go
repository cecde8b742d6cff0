package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"

	"github.com/oomfleet/oomfleet/agent/runner"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

// play replays the recording and tells of it as the real runner does.
func (r *run) play(w world) (ok bool, err error) {
	result, seen, err := r.replay(w)
	if err != nil {
		return false, err
	}
	m := r.meters(w, result)
	if err := r.phases(w, result, m); err != nil {
		return false, err
	}
	if err := r.trace(seen); err != nil {
		return false, err
	}
	if result.OOM {
		return false, r.refused(w, result, m)
	}
	finite := true
	return true, runner.WriteEvent(r.out, &runner.Done{
		RunID: r.id, Meters: m, OutputFinite: &finite, Settings: effective(w),
		Dtypes:  map[string]string{"esm": "bfloat16", "trunk": "float32"},
		Seconds: r.seconds(w, result),
	})
}

// replay is the run itself, and what was seen of it when it is to be recorded.
func (r *run) replay(w world) (result allocator.CaughtResult, seen []allocator.Event, err error) {
	options := allocator.ReplayOptions{Limit: w.limit, DeviceTotal: int64(Total)}
	if r.Request.Record {
		seen = make([]allocator.Event, 0, len(w.events)+len(w.events)/4)
		options.Observe = func(e allocator.Event) { seen = append(seen, e) }
	}
	plays, err := w.program()
	if err != nil {
		return result, nil, fmt.Errorf("recording %s: %w", traceName(r.Request.SeqLen, r.Request.Batch, r.Request.ChunkSize), err)
	}
	return plays.replay(w.settings, options), seen, nil
}

// seconds is how long the run takes the card.
func (r *run) seconds(w world, result allocator.CaughtResult) float64 {
	return modelSeconds(r.Request, w.reached(result), result.Retries) + w.effect.seconds
}

// meters are the run's own counters at its end.
func (r *run) meters(w world, result allocator.CaughtResult) runner.Meters {
	n := func(v proto.Bytes) *int64 { i := int64(v); return &i }
	m := runner.Meters{
		PeakAllocated: n(proto.Bytes(result.PeakAllocated)), PeakReserved: n(proto.Bytes(result.PeakReserved)),
		ProcessPeak: n(w.outsideNow + proto.Bytes(result.PeakReserved)), Context: n(w.context),
		DeviceTotal: n(Total), DeviceFreeBefore: n(Total),
		NumAllocRetries: n(proto.Bytes(result.Retries)), NumOOMs: n(proto.Bytes(result.OOMs)),
	}
	if r.Request.QuotaKind == string(proto.QuotaDevice) && r.Request.QuotaBytes > 0 {
		m.DeviceFreeBefore = n(min(Total, proto.Bytes(r.Request.QuotaBytes)))
	}
	return m
}

// phases tells how far the run came. m gets what is known once the weights are
// loaded.
func (r *run) phases(w world, result allocator.CaughtResult, m runner.Meters) error {
	start := &runner.Phase{RunID: r.id, Phase: "start", Meters: runner.Meters{Context: m.Context, DeviceTotal: m.DeviceTotal, DeviceFreeBefore: m.DeviceFreeBefore}}
	if err := runner.WriteEvent(r.out, start); err != nil {
		return err
	}
	if !loaded(result) {
		return nil
	}
	load, err := allocator.Replay(w.events[:loadEvents], w.settings, w.limit)
	if err != nil {
		return fmt.Errorf("recording's load: %w", err)
	}
	weights := int64(w.meta.Weights)
	meters := runner.Meters{LoadedAllocated: &load.Allocated, LoadedReserved: &load.Reserved, Weights: &weights}
	for _, phase := range []string{"load", "forward"} {
		if err := runner.WriteEvent(r.out, &runner.Phase{RunID: r.id, Phase: phase, Meters: meters}); err != nil {
			return err
		}
	}
	return nil
}

// reached is how much of its events a run came through, 1 for all: an attempt
// that was refused and begun again counts up to there.
func (w *world) reached(result allocator.CaughtResult) float64 {
	done := 1.0
	if result.OOM {
		done = float64(result.OOMAt) / float64(len(w.events))
	}
	if result.Refused >= 0 {
		done += float64(result.Refused) / float64(len(w.events))
	}
	return done
}

// loaded is whether a run got past loading its weights.
func loaded(result allocator.CaughtResult) bool { return !result.OOM || result.OOMAt >= loadEvents }

func (r *run) refused(w world, result allocator.CaughtResult, m runner.Meters) error {
	phase := "start"
	if loaded(result) {
		phase = "forward"
	}
	process := w.outsideNow + proto.Bytes(result.Reserved)
	text := refusal{
		tried: proto.Bytes(result.Tried), total: Total, free: Total - process, process: process, allowed: proto.Bytes(w.limit.Cap),
		allocated: proto.Bytes(result.Allocated), reserved: proto.Bytes(result.Reserved),
	}
	switch quota := proto.Bytes(r.Request.QuotaBytes); {
	case quota == 0:
	case r.Request.QuotaKind == string(proto.QuotaDevice):
		// The runner plays the ballast.
		text.free, text.other, text.otherPID = quota-process, Total-quota, os.Getppid()
	case r.Request.QuotaKind == string(proto.QuotaProcess):
		text.free = quota - process
	}
	text.free = max(0, text.free)
	message := text.text()
	return runner.WriteEvent(r.out, &runner.Failed{
		RunID: r.id, Phase: phase, Exception: "OutOfMemoryError", Message: message,
		Traceback: "torch.OutOfMemoryError: " + message, Meters: m, Settings: effective(w),
		Seconds: r.seconds(w, result),
	})
}

// trace sends the events in stretches.
func (r *run) trace(events []allocator.Event) error {
	for len(events) > 0 {
		part := events[:min(len(events), runner.MaxTraceRows)]
		events = events[len(part):]
		t := &runner.Trace{RunID: r.id, Addr: make([]uint64, len(part)), Size: make([]int64, len(part)),
			Stream: make([]int64, len(part)), TimeUS: make([]int64, len(part))}
		var actions strings.Builder
		for i, e := range part {
			actions.WriteByte(letter(e.Action))
			t.Addr[i], t.Size[i], t.Stream[i] = e.Addr, e.Size, e.Stream
		}
		t.Actions = actions.String()
		if err := runner.WriteEvent(r.out, t); err != nil {
			return err
		}
	}
	return nil
}

func letter(a allocator.Action) byte {
	switch a {
	case allocator.Alloc:
		return runner.ActionAlloc
	case allocator.FreeRequested:
		return runner.ActionFreeRequested
	case allocator.FreeCompleted:
		return runner.ActionFreeCompleted
	case allocator.SegmentAlloc:
		return runner.ActionSegmentAlloc
	case allocator.SegmentFree:
		return runner.ActionSegmentFree
	case allocator.SegmentMap:
		return runner.ActionSegmentMap
	case allocator.SegmentUnmap:
		return runner.ActionSegmentUnmap
	case allocator.OOM:
		return runner.ActionOOM
	case allocator.Snapshot:
		return runner.ActionSnapshot
	}
	panic(fmt.Sprintf("sim: action %v has no letter", a))
}

// effective are the settings as torch's snapshot shows them, as JSON values:
// those of the recording with the run's own put in.
func effective(w world) map[string]string {
	s := w.settings
	out := maps.Clone(w.meta.Settings)
	out["PYTORCH_CUDA_ALLOC_CONF"] = w.conf
	out["expandable_segments"] = strconv.FormatBool(s.Expandable)
	out["garbage_collection_threshold"] = strconv.FormatFloat(s.GCThreshold, 'g', -1, 64)
	out["max_split_size"] = "-1" // unlimited
	if s.MaxSplit > 0 {
		out["max_split_size"] = strconv.FormatInt(s.MaxSplit, 10)
	}
	divisions := map[string]int64{}
	for i, d := range s.Divisions {
		divisions[strconv.Itoa(1<<i)] = d
	}
	text, err := json.Marshal(divisions)
	if err != nil {
		panic(fmt.Sprintf("sim: a map of numbers always marshals: %v", err))
	}
	out["roundup_power2_divisions"] = string(text)
	return out
}
