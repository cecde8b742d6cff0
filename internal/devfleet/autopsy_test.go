package devfleet

import (
	"cmp"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/klauspost/compress/zstd"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// autopsy is what a coordinator's log holds, entry by entry: not what the fleet
// says of itself, but what it has committed.
type autopsy struct {
	state    *registry.Machine
	settled  map[registry.Key]int // settlements that were accepted
	accepted int                  // results
	offered  int
	// reports are the results that were offered, the same one twice as one.
	reports map[report]bool
}

// report is what the queue knows a result by.
type report struct {
	task  proto.TaskID
	fence proto.Fence
	agent proto.AgentID
}

// open reads the log of a coordinator that is down.
func open(t *testing.T, dataDir string) *autopsy {
	t.Helper()
	log, err := wal.Open(filepath.Join(dataDir, "log"))
	if err != nil {
		t.Fatalf("open the log: %v", err)
	}
	defer log.Close()
	unpacker, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer unpacker.Close()
	first, err := log.FirstIndex()
	if err != nil || first != 1 {
		t.Fatalf("the log begins at %d (%v), it is needed from its first entry on", first, err)
	}
	last, err := log.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	a := &autopsy{state: registry.New(), settled: map[registry.Key]int{}, reports: map[report]bool{}}
	for index := first; index <= last; index++ {
		var entry raft.Log
		if err := log.GetLog(index, &entry); err != nil {
			t.Fatalf("entry %d: %v", index, err)
		}
		if entry.Type != raft.LogCommand {
			continue
		}
		data := entry.Data[1:]
		if entry.Data[0] == 1 { // packed
			if data, err = unpacker.DecodeAll(data, nil); err != nil {
				t.Fatalf("entry %d: %v", index, err)
			}
		}
		cmd, err := registry.DecodeCommand(data)
		if err != nil {
			t.Fatalf("entry %d: %v", index, err)
		}
		a.apply(&entry, cmd)
	}
	return a
}

func (a *autopsy) apply(entry *raft.Log, cmd registry.Command) {
	reply := a.state.Apply(entry.Index, entry.AppendedAt, cmd)
	switch {
	case cmd.Settle != nil && reply.Accepted:
		a.settled[cmd.Settle.Key]++
	case cmd.TakeResult != nil:
		r := cmd.TakeResult.Result
		a.offered++
		a.reports[report{r.Task, r.Fence, r.Agent}] = true
		if reply.Accepted {
			a.accepted++
		}
	}
}

// addsUp holds the log against itself and against the report that the fleet gave.
func (a *autopsy) addsUp(t *testing.T, r proto.Report) {
	t.Helper()
	view := a.state.View()
	late, runs := view.Late, 0
	ran := map[proto.TaskID]int{}
	for key, rec := range view.Records {
		late += rec.Late
		runs += len(rec.Runs)
		for _, run := range rec.Runs {
			ran[run.Task]++
		}
		if len(rec.Open) > 0 {
			t.Errorf("cell %s settled and has %d open tasks", key.Cell, len(rec.Open))
		}
		if n := a.settled[key]; n != 1 {
			t.Errorf("cell %s was settled %d times", key.Cell, n)
		}
	}
	for task, n := range ran {
		if n != 1 {
			t.Errorf("task %s counts %d times", task, n)
		}
	}
	if a.accepted != runs || a.accepted+late != a.offered {
		t.Errorf("%d results were offered; %d were accepted, %d are kept as runs, %d came late", a.offered, a.accepted, runs, late)
	}
	if c := r.Counts; c.Total != len(r.Cells) || c.Settled() != c.Total || c.Pending+c.Running != 0 || r.State != "settled" {
		t.Errorf("the sweep is %s with counts %+v of %d cells", r.State, c, len(r.Cells))
	}
	again, ok := view.Report(r.Matrix.ID)
	if !ok {
		t.Fatalf("the log knows no sweep %s", r.Matrix.ID)
	}
	if why := differ(again, r); why != "" {
		t.Errorf("the log tells of the sweep otherwise than the fleet did: %s", why)
	}
}

// finding is what a sweep has found out about a cell; how often it had to ask
// is not in it.
type finding struct {
	State    proto.CellState
	Boundary proto.Boundary
	Peaks    [3]proto.Bytes
	Origin   proto.Origin
}

func findings(r proto.Report) map[proto.CellID]finding {
	found := make(map[proto.CellID]finding, len(r.Cells))
	for _, c := range r.Cells {
		found[c.ID] = finding{c.State, c.Boundary, [3]proto.Bytes{c.PeakAllocated, c.PeakReserved, c.ProcessPeak}, c.Origin}
	}
	return found
}

// differ names a cell that two reports tell different things of; empty for none.
func differ(a, b proto.Report) string {
	fa, fb := findings(a), findings(b)
	ids := slices.Sorted(maps.Keys(fa))
	if !slices.Equal(ids, slices.Sorted(maps.Keys(fb))) {
		return "they have other cells"
	}
	for _, id := range ids {
		if !reflect.DeepEqual(fa[id], fb[id]) {
			return cmp.Or(string(id), "a cell") + " differs"
		}
	}
	return ""
}
