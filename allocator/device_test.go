package allocator

import "testing"

// TestDeviceLimitsAgreeWithRealRuns: runs that another process, or a process
// limit, left less memory. What the process holds beside the allocator is known
// from the cell's run without a limit; within 16 MiB of an edge that is not
// enough to tell.
func TestDeviceLimitsAgreeWithRealRuns(t *testing.T) {
	const margin = 16 << 20
	overhead := map[string]int64{}
	decided, undetermined := 0, 0
	for i, m := range readRuns(t) {
		if m.Kind == "none" && len(m.Env) == 0 && m.Trunk == "float32" && overhead[m.trace()] == 0 {
			overhead[m.trace()] = m.Process - m.Reserved
		}
		if m.Kind != "device" && m.Kind != "process" {
			continue
		}
		r, err := compileFile(t, m.trace()).Sweep(SweepOptions{Kind: SweepDevice, Overhead: overhead[m.trace()]})
		if err != nil {
			t.Fatal(err)
		}
		if r.EdgeWithin(m.Cap, margin) {
			undetermined++
			continue
		}
		decided++
		if at, _ := r.At(m.Cap); at.Pass != (m.Outcome == "ok") {
			t.Errorf("row %d: %+v: replay says pass %v", i, m, at.Pass)
		}
	}
	t.Logf("%d decided, %d undetermined", decided, undetermined)
	if decided != 7 || undetermined != 4 {
		t.Errorf("%d rows decided, %d undetermined", decided, undetermined)
	}
}

// TestMapLookUps: the path of a quota, and whether an edge is near, on the map
// of a program that passes at 104 MiB, fails at 100 and 102, passes down to 88.
func TestMapLookUps(t *testing.T) {
	r, err := e20(t).Sweep(SweepOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		quota, margin int64
		pass, near    bool
	}{
		{1000, 16, true, false},
		{120, 16, true, false}, // 104 to 136: all pass
		{120, 18, true, true},
		{104, 0, true, false},
		{102, 0, false, false},
		{102, 2, false, true},
		{98, 0, true, false},
		{98, 2, true, true},
		{94, 5, true, false},
		{94, 7, true, true}, // 87 lies below the map
		{86, 1, false, false},
		{80, 7, false, false},
		{80, 8, false, true},
	} {
		at, _ := r.At(c.quota * mib)
		if near := r.EdgeWithin(c.quota*mib, c.margin*mib); at.Pass != c.pass || near != c.near {
			t.Errorf("%d MiB +- %d: pass %v, edge near %v", c.quota, c.margin, at.Pass, near)
		}
	}
}

// TestFlushOvertakesCompletion: a flush under a cap completes a deferred free
// early; the completion that the recording shows later must not end the wait of
// another block that has taken its place.
func TestFlushOvertakesCompletion(t *testing.T) {
	const m = int64(mib)
	step := func(a Action, addr uint64, size int64) Event { return Event{Action: a, Addr: addr, Size: size} }
	p, err := Compile([]Event{
		step(Alloc, 1, 20*m), step(FreeRequested, 1, 20*m), // deferred
		step(Alloc, 2, 40*m),         // flushes under a cap of 50 MiB
		step(FreeRequested, 2, 40*m), // deferred too
		step(FreeCompleted, 1, 20*m), // late
		step(Alloc, 3, 40*m),         // may not take the second block yet
		step(FreeCompleted, 2, 40*m),
	})
	if err != nil {
		t.Fatal(err)
	}
	free := p.Replay(Settings{}, ReplayOptions{})
	if free.PeakReserved != 100*m || free.PeakActive != 100*m-20*m {
		t.Errorf("without a limit: %+v", free)
	}
	capped := p.Replay(Settings{}, ReplayOptions{Limit: Limit{Cap: 50 * m}})
	if capped.OOM || capped.Retries != 2 || capped.PeakReserved != 40*m || capped.PeakActive != 40*m {
		t.Errorf("under 50 MiB: %+v", capped)
	}
}
