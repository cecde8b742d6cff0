package allocator

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
)

const secondDir = "testdata/second"

// TestReplayAgreesWithASecondProcess: runs of another runner's process, whose
// segments lie elsewhere, with quotas at and around the edges that depend on the
// driver's places. One run is known to disagree: between its flush and its
// refusal others took holes of 2 MiB that the recording does not show.
func TestReplayAgreesWithASecondProcess(t *testing.T) {
	programs := map[string]*Program{}
	compared, wrong := 0, 0
	for _, line := range lines(t, secondDir+"/runs.jsonl") {
		var m struct {
			measured
			Trace string `json:"trace"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		set, err := SettingsFromEnv(m.Env)
		if err != nil {
			t.Fatal(err)
		}
		p := programs[m.Trace]
		if p == nil {
			p = compileFile(t, secondDir+"/"+m.Trace+".parquet")
			programs[m.Trace] = p
		}
		r := p.Replay(set, ReplayOptions{Limit: Limit{Cap: m.Cap}})
		compared++
		if r.OOM == (m.Outcome == "oom") && r.Retries == m.Retries && (r.OOM || r.PeakReserved == m.Reserved && r.PeakAllocated == m.Allocated) {
			continue
		}
		wrong++
		if m.Trace != "L256_B2_c64" || m.Cap != 9580<<20 {
			t.Errorf("%s at %d MiB: %s with %d retries and %d MiB reserved; the replay says oom %v, %d, %d", m.Trace, m.Cap>>20, m.Outcome, m.Retries,
				m.Reserved>>20, r.OOM, r.Retries, r.PeakReserved>>20)
		}
	}
	t.Logf("%d runs compared, %d disagree", compared, wrong)
	if compared < 30 || wrong > 1 {
		t.Errorf("%d runs compared, %d disagree", compared, wrong)
	}
}

// TestDriverSpaceFindsRealAddresses: what the driver gave after a flush, in real
// runs under a quota, is where driverSpace puts it.
func TestDriverSpaceFindsRealAddresses(t *testing.T) {
	const MiB = 1 << 20
	asked, found := 0, 0
	for _, line := range lines(t, secondDir+"/segments.jsonl") {
		var run struct {
			Run string `json:"run"`
			// Segments are addresses and sizes in MiB; a size below zero was
			// given back.
			Segments [][2]int64 `json:"segments"`
		}
		if err := json.Unmarshal(line, &run); err != nil {
			t.Fatal(err)
		}
		var d driverSpace
		flushed := false
		for _, pair := range run.Segments {
			s := span{uint64(pair[0]) * MiB, pair[1] * MiB}
			if s.size < 0 {
				s.size, flushed = -s.size, true
				d.give(s)
				continue
			}
			if flushed && s.size > 2*MiB { // holes of 2 MiB others take too, unseen
				asked++
				if d.choose(s.size).addr == s.addr {
					found++
				}
			}
			d.record(s)
		}
	}
	t.Logf("%d of %d segments after a flush are where they are looked for", found, asked)
	if asked < 30 || found < asked {
		t.Errorf("%d of %d segments after a flush are where they are looked for", found, asked)
	}
}

// TestDriverSpace: chunks of 32 MiB from above downward, the smallest hole of the
// lowest chunk, gaps that need room for the alignment.
func TestDriverSpace(t *testing.T) {
	const MiB, top = 1 << 20, uint64(0x7f0000000000)
	var d driverSpace
	at := func(mib int64) uint64 { return uint64(int64(top) + mib*MiB) }
	take := func(what string, size, want int64) {
		t.Helper()
		if got := d.take(size * MiB); got != at(want) {
			t.Errorf("%s: %d MiB at %d, want %d", what, size, int64(got-top)/MiB, want)
		}
	}
	d.record(span{at(0), 20 * MiB})
	take("the rest of the chunk", 8, 20)
	take("a chunk below", 40, -64)
	take("the lowest chunk with room", 4, -24)
	take("what is left there", 20, -20)
	take("too large for a hole", 64, -128)
	d.give(span{at(-64), 40 * MiB})
	take("a hole of its own chunk", 6, -64)
	take("the lowest chunk again", 4, -58)
	d.give(span{at(-128), 64 * MiB})
	take("below all, since what was lowest is free again", 96, -160)
	take("below all", 64, -224)
	take("below all", 32, -256)
	d.give(span{at(-160), 96 * MiB})
	take("at the top of a gap", 64, -128)
	take("a gap without room for the alignment is left alone", 32, -288)
}

// TestDriverSpaceLearns: a place that the driver would have preferred was held by
// something else, which then stays there.
func TestDriverSpaceLearns(t *testing.T) {
	const MiB, top = 1 << 20, uint64(0x7f0000000000)
	var d driverSpace
	d.record(span{top, 20 * MiB})
	d.record(span{top - 32*MiB, 12 * MiB}) // not behind the first: less than 12 MiB are free there
	if got := d.choose(10 * MiB).addr; got != top-20*MiB {
		t.Errorf("10 MiB at %#x, want the rest of the lower chunk", got)
	}
	d.take(20 * MiB)
	if got := d.choose(10 * MiB).addr; got != top+22*MiB {
		t.Errorf("10 MiB at %#x, want the end of the first chunk", got)
	}
	if got := d.choose(12 * MiB).addr; got != top-64*MiB {
		t.Errorf("12 MiB at %#x, want a chunk of their own", got)
	}
}

func lines(t *testing.T, path string) (out [][]byte) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		out = append(out, append([]byte(nil), s.Bytes()...))
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestDriverSpaceAtTheBottom: where no room is left below, segments go above all.
func TestDriverSpaceAtTheBottom(t *testing.T) {
	const MiB = 1 << 20
	var d driverSpace
	d.record(span{128 * MiB, 32 * MiB})
	if got := d.take(160 * MiB); got != 160*MiB {
		t.Errorf("160 MiB at %d MiB, want above", got/MiB)
	}
	if got := d.take(96 * MiB); got != 32*MiB {
		t.Errorf("96 MiB at %d MiB, want below", got/MiB)
	}
	if got := d.take(64 * MiB); got != 320*MiB {
		t.Errorf("64 MiB at %d MiB, want above all", got/MiB)
	}
}

// TestDriverSpaceOfOneHugeRequest: a first request larger than the addresses
// below the first one handed out has its place, too.
func TestDriverSpaceOfOneHugeRequest(t *testing.T) {
	r, err := Replay([]Event{{Action: Alloc, Addr: 1 << 21, Size: 1 << 50}, {Action: Alloc, Addr: 1 << 52, Size: 1 << 50}}, Settings{}, Limit{})
	if err != nil || r.OOM || r.PeakReserved != 2<<50 {
		t.Errorf("%+v, %v; want 2 PiB reserved", r, err)
	}
}

// TestCompileRefusesImpossibleSegments: no process has them, and the driver's
// places could not be told from them.
func TestCompileRefusesImpossibleSegments(t *testing.T) {
	const MiB = 1 << 20
	for what, events := range map[string][]Event{
		"beyond any address space": {{Action: SegmentAlloc, Addr: 1 << 63, Size: 2 * MiB}},
		"too large":                {{Action: SegmentAlloc, Addr: MiB, Size: 1 << 60}},
		"on top of another":        {{Action: SegmentAlloc, Addr: 0, Size: 20 * MiB}, {Action: SegmentAlloc, Addr: 2 * MiB, Size: 2 * MiB}},
	} {
		if _, err := Compile(events); err == nil {
			t.Errorf("%s: compiled", what)
		}
	}
	again := []Event{{Action: SegmentAlloc, Addr: MiB, Size: 2 * MiB}, {Action: SegmentFree, Addr: MiB, Size: 2 * MiB}, {Action: SegmentAlloc, Addr: MiB, Size: 20 * MiB}}
	if _, err := Compile(again); err != nil {
		t.Errorf("given back in between: %v", err)
	}
}
