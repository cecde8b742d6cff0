package allocator

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
)

type example struct {
	ID, Title string
	Config    struct {
		Cap         int64     `json:"cap"`
		DeviceFree  int64     `json:"device_free"`
		DeviceTotal int64     `json:"device_total"`
		MaxSplit    int64     `json:"max_split"`
		GC          float64   `json:"gc"`
		Div         [16]int64 `json:"div"`
		Expandable  bool      `json:"expandable"`
	}
	Events []struct {
		Op     string `json:"op"`
		ID     string `json:"id"`
		Size   int64  `json:"size"`
		Stream int64  `json:"stream"`
	}
	Expect map[string]json.RawMessage
}

func readExamples(t *testing.T) []example {
	t.Helper()
	f, err := os.Open("testdata/allocator_examples.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []example
	for s := bufio.NewScanner(f); s.Scan(); {
		var e example
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// TestExamples runs the 26 worked examples, each confirmed on a real GPU but
// E15, which needs a hard device limit. Every field of expect is compared.
func TestExamples(t *testing.T) {
	examples := readExamples(t)
	if len(examples) != 26 {
		t.Fatalf("%d examples, want 26", len(examples))
	}
	for _, e := range examples {
		t.Run(e.ID, func(t *testing.T) { runExample(t, e) })
	}
}

func runExample(t *testing.T, e example) {
	c := e.Config
	a := New(Settings{MaxSplit: c.MaxSplit, GCThreshold: c.GC, Divisions: c.Div, Expandable: c.Expandable},
		Limit{Cap: c.Cap, Device: c.DeviceFree}, c.DeviceTotal)
	names := map[string]int32{}
	oomAt := -1
	for i, ev := range e.Events {
		switch ev.Op {
		case "alloc":
			id, ok := a.Malloc(ev.Size, ev.Stream)
			if !ok {
				oomAt = i
			}
			for name, old := range names { // a freed block's slot is used again
				if old == id {
					delete(names, name)
				}
			}
			names[ev.ID] = id
		case "free":
			a.Free(names[ev.ID])
		case "record_stream":
			a.RecordStream(names[ev.ID], ev.Stream)
		case "complete":
			a.Complete(ev.Stream)
		case "empty_cache":
			a.EmptyCache()
		default:
			t.Fatalf("unknown op %q", ev.Op)
		}
		if oomAt >= 0 {
			break
		}
	}
	checkInvariants(t, a)
	for key, raw := range e.Expect {
		got := observed(t, a, key, oomAt, names)
		var want any
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(got)
		var norm any
		json.Unmarshal(text, &norm)
		if fmt.Sprint(norm) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", key, norm, want)
		}
	}
}

func observed(t *testing.T, a *Allocator, key string, oomAt int, names map[string]int32) any {
	s := a.Stats()
	switch key {
	case "oom_at":
		if oomAt < 0 {
			return nil
		}
		return oomAt
	case "tried":
		return fmt.Sprintf("%.2f MiB", float64(a.tried)/(1<<20))
	case "reserved":
		return s.Reserved
	case "reserved_peak":
		return s.ReservedPeak
	case "allocated":
		return s.Allocated
	case "allocated_peak":
		return s.AllocatedPeak
	case "active":
		return s.Active
	case "requested":
		return s.Requested
	case "num_alloc_retries":
		return s.Retries
	case "num_ooms":
		return s.OOMs
	case "num_device_alloc":
		return s.DeviceAllocs
	case "num_device_free":
		return s.DeviceFrees
	case "segments":
		return drawSegments(a, names)
	}
	t.Fatalf("the example expects %q, which the test does not know", key)
	return nil
}

// drawSegments writes the layout as the examples do: contiguous mapped ranges
// in creation order, blocks as [size, "A:id" | "F" | "P"].
func drawSegments(a *Allocator, names map[string]int32) any {
	byID := map[int32]string{}
	for name, id := range names {
		byID[id] = name
	}
	type drawn struct {
		Total  int64  `json:"total"`
		Pool   string `json:"pool"`
		Stream int64  `json:"stream"`
		Blocks []any  `json:"blocks"`
	}
	out := []drawn{}
	segments := slices.Clone(a.segments)
	slices.SortFunc(segments, func(x, y segment) int { return int(x.born - y.born) })
	for _, seg := range segments {
		open := -1
		for id := seg.head; id != none; id = a.blocks[id].next {
			b := a.blocks[id]
			if !b.has(mapped) {
				open = -1
				continue
			}
			if open < 0 {
				open = len(out)
				out = append(out, drawn{Pool: []string{"S", "L"}[b.pool], Stream: a.streams[b.stream].handle})
			}
			mark := "F"
			if b.has(inUse) {
				mark = "A:" + byID[id]
			} else if b.has(pinned) {
				mark = "P"
			}
			out[open].Total += b.size
			out[open].Blocks = append(out[open].Blocks, []any{b.size, mark})
		}
	}
	return out
}

// checkInvariants walks the whole state: blocks tile their segments without a
// gap, no two free neighbours are left unmerged, every free block is in its set
// once and in order, and the sums agree with the counters.
func checkInvariants(t interface{ Errorf(string, ...any) }, a *Allocator) {
	var reserved, active int64
	inSets := map[int32]bool{}
	for si := range a.streams {
		for pool := range a.streams[si].free {
			entries := a.streams[si].free[pool].entries
			for i, e := range entries {
				b := &a.blocks[e.id]
				if inSets[e.id] || !b.free() || b.size != e.size || b.addr != e.addr || int(b.stream) != si || int(b.pool) != pool {
					t.Errorf("free set of stream %d pool %d holds a wrong entry %+v for %+v", si, pool, e, *b)
				}
				inSets[e.id] = true
				if i > 0 && (entries[i-1].size > e.size || entries[i-1].size == e.size && entries[i-1].addr >= e.addr) {
					t.Errorf("free set of stream %d pool %d is out of order at %d", si, pool, i)
				}
			}
		}
	}
	free := 0
	for s, seg := range a.segments {
		var sum int64
		for id, prev := seg.head, none; id != none; prev, id = id, a.blocks[id].next {
			b := &a.blocks[id]
			if b.prev != prev || int(b.seg) != s || b.addr != seg.base+uint64(sum) || b.size <= 0 || b.size%minBlock != 0 {
				t.Errorf("segment %d: block %+v does not tile", s, *b)
			}
			if prev != none && b.free() && a.blocks[prev].free() {
				t.Errorf("segment %d: two free neighbours are not merged", s)
			}
			sum += b.size
			if b.has(mapped) {
				reserved += b.size
			}
			if b.flags&(inUse|pinned) != 0 {
				active += b.size
			}
			if b.free() {
				free++
				if !inSets[id] {
					t.Errorf("segment %d: a free block is in no set", s)
				}
			}
		}
		if seg.head != none && sum != seg.size {
			t.Errorf("segment %d: blocks sum to %d, want %d", s, sum, seg.size)
		}
	}
	if free != len(inSets) {
		t.Errorf("%d free blocks, %d in sets", free, len(inSets))
	}
	if reserved != a.stats.Reserved || active != a.stats.Active {
		t.Errorf("sums: reserved %d want %d, active %d want %d", reserved, a.stats.Reserved, active, a.stats.Active)
	}
}
