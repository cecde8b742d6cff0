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
	var heads []int32
	for id := range a.blocks {
		if b := &a.blocks[id]; b.state != vacant && b.prev == none {
			heads = append(heads, int32(id))
		}
	}
	slices.SortFunc(heads, func(x, y int32) int { return int(a.bornAt(x) - a.bornAt(y)) })
	for _, id := range heads {
		open := -1
		for ; id != none; id = a.blocks[id].next {
			b := a.blocks[id]
			if b.state == unmapped {
				open = -1
				continue
			}
			if open < 0 {
				open = len(out)
				out = append(out, drawn{Pool: []string{"S", "L"}[b.set&1], Stream: a.streams.handles[b.set/2]})
			}
			mark := map[blockState]string{free: "F", used: "A:" + byID[id], pending: "P"}[b.state]
			out[open].Total += b.size
			out[open].Blocks = append(out[open].Blocks, []any{b.size, mark})
		}
	}
	return out
}

func (a *Allocator) bornAt(id int32) int32 {
	if s := a.blocks[id].segment; s >= 0 {
		return a.ranges[s].born
	} else {
		return -s
	}
}

// checkInvariants walks the whole state: blocks tile their segments without a
// gap, no two free neighbours are left unmerged, every free block is in its set
// once and in order, and the sums agree with the counters.
func checkInvariants(t interface{ Errorf(string, ...any) }, a *Allocator) {
	inSets := map[int32]bool{}
	for si := range a.sets {
		s := &a.sets[si]
		for k, id := range s.head {
			if full := s.full[k/64]>>(k%64)&1 == 1; full != (id != none) {
				t.Errorf("set %d: bitmap of bin %d is wrong", si, k)
			}
		}
		last := block{}
		for _, id := range a.all(s, nil) {
			b := a.blocks[id]
			if inSets[id] || b.state != free || int(b.set) != si {
				t.Errorf("set %d holds a wrong block %+v", si, b)
			}
			inSets[id] = true
			if last.size > b.size || last.size == b.size && last.addr >= b.addr {
				t.Errorf("set %d is out of order at %+v", si, b)
			}
			last = b
		}
	}
	var reserved, allocated, active, requested int64
	nfree, seen := 0, 1
	for id := range a.blocks {
		if b := &a.blocks[id]; b.state == vacant || b.prev != none {
			continue
		}
		at := a.blocks[id].addr
		for id, prev := int32(id), none; id != none; prev, id = id, a.blocks[id].next {
			seen++
			b := &a.blocks[id]
			if b.prev != prev || b.addr != at || b.size <= 0 || b.size%minBlock != 0 || b.state == vacant {
				t.Errorf("block %+v does not tile", *b)
			}
			at += uint64(b.size)
			if (b.state == free || b.state == unmapped) && a.blocks[prev].state == b.state {
				t.Errorf("neighbours alike are not merged: %+v", *b)
			}
			if b.state != unmapped {
				reserved += b.size
			}
			switch b.state {
			case free:
				nfree++
				if !inSets[id] {
					t.Errorf("a free block is in no set: %+v", *b)
				}
			case used:
				allocated += b.size
				fallthrough
			case pending:
				active += b.size
				requested += b.requested
			}
		}
	}
	for id := a.vacancy; id != none; id = a.blocks[id].after {
		seen++
		if a.blocks[id].state != vacant {
			t.Errorf("block %d is vacant and %+v", id, a.blocks[id])
		}
	}
	if seen != len(a.blocks) {
		t.Errorf("%d blocks are linked, the arena has %d", seen, len(a.blocks))
	}
	if nfree != len(inSets) {
		t.Errorf("%d free blocks, %d in sets", nfree, len(inSets))
	}
	if s := a.stats; reserved != s.Reserved || allocated != s.Allocated || active != s.Active || requested != s.Requested {
		t.Errorf("sums: reserved %d allocated %d active %d requested %d, counters %+v", reserved, allocated, active, requested, s)
	}
}
