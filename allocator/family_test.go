package allocator

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// record reads the recordings of ESMFold cells, by trace names like L384_B1_c64.
func record(t testing.TB, names ...string) []Recording {
	t.Helper()
	var out []Recording
	for _, name := range names {
		r := Recording{Events: readTrace(t, traceDir+"/"+name+".parquet")}
		if n, _ := fmt.Sscanf(name, "L%d_B%d_c%d", &r.SeqLen, &r.Batch, &r.Chunk); n < 2 {
			t.Fatalf("%q names no cell", name)
		}
		out = append(out, r)
	}
	return out
}

// TestFamilyPredictsRecordedCells: every operation and size of recordings that
// the family was not built from, exactly, and peaks and boundary near those of
// the recording's own replay. Where a recording's addresses enter (ties), the
// two may differ by a little.
func TestFamilyPredictsRecordedCells(t *testing.T) {
	for _, c := range []struct {
		from, to string
		tested   Tested
		reserved float64 // largest relative error of the peak
	}{
		{"L128_B1 L192_B1 L256_B1 L320_B1", "L300_B1 L301_B1 L333_B1 L384_B1 L448_B1 L640_B1", Untested, 0.002},
		{"L128_B1 L192_B1 L256_B1 L300_B1 L320_B1", "L640_B1", LeftOneOut, 0.002},
		{"L300_B1 L301_B1 L320_B1 L333_B1", "L256_B1", Untested, 0.002},
		{"L384_B1_c64 L512_B1_c64 L640_B1_c64", "L768_B1_c64", Untested, 0.005},
		{"L300_B1_c64 L384_B1_c64 L512_B1_c64 L640_B1_c64", "L768_B1_c64", Untested, 0.005},
		{"L384_B1_c64 L512_B1_c64 L640_B1_c64 L768_B1_c64", "", LeftOneOut, 0},
	} {
		t.Run(c.from, func(t *testing.T) {
			t.Parallel()
			f, err := BuildFamily(record(t, strings.Fields(c.from)...))
			if err != nil {
				t.Fatal(err)
			}
			f = reread(t, f)
			for _, r := range record(t, strings.Fields(c.to)...) {
				checkPrediction(t, f, r, c.reserved)
			}
			if d := f.Domains(); len(d) != 1 || d[0].Tested != c.tested {
				t.Errorf("%v", d)
			}
		})
	}
}

// reread sends a family through its file.
func reread(t testing.TB, f *Family) *Family {
	t.Helper()
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	out := &Family{}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(out); string(again) != string(text) {
		t.Error("written again, the family differs")
	}
	t.Logf("%v, %d bytes", out.Domains(), len(text))
	return out
}

func checkPrediction(t *testing.T, f *Family, r Recording, reserved float64) {
	t.Helper()
	got, err := f.At(r.SeqLen, r.Batch, r.Chunk)
	if err != nil {
		t.Error(err)
		return
	}
	want, err := Compile(r.Events)
	if err != nil {
		t.Fatal(err)
	}
	gotSteps, gotSizes := shapeOf(got)
	wantSteps, wantSizes := shapeOf(want)
	if !slices.Equal(gotSteps, wantSteps) || !slices.Equal(gotSizes, wantSizes) {
		t.Errorf("L%d B%d: the operations or sizes differ", r.SeqLen, r.Batch)
		return
	}
	a, b := got.Replay(Settings{}, ReplayOptions{}), want.Replay(Settings{}, ReplayOptions{})
	off := float64(a.PeakReserved-b.PeakReserved) / float64(b.PeakReserved)
	sa, err := got.Sweep(SweepOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sb, err := want.Sweep(SweepOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("L%d B%d: reserved off by %.4f %%, boundary %d, recorded %d MiB", r.SeqLen, r.Batch, 100*off, sa.Boundary/mib, sb.Boundary/mib)
	if max(off, -off) > reserved || a.PeakAllocated != b.PeakAllocated {
		t.Errorf("L%d B%d: %+v, recorded %+v", r.SeqLen, r.Batch, a, b)
	}
	if d := sa.Boundary - sb.Boundary; max(d, -d) > 24*mib {
		t.Errorf("L%d B%d: boundary %d MiB, recorded %d", r.SeqLen, r.Batch, sa.Boundary/mib, sb.Boundary/mib)
	}
}

// TestFamilyDomain: where four short recordings reach, and where they do not.
func TestFamilyDomain(t *testing.T) {
	f, err := BuildFamily(record(t, "L128_B1", "L192_B1", "L256_B1", "L320_B1", "L384_B1_c64", "L512_B1_c64", "L640_B1_c64"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		seqLen, batch, chunk int
		want                 string // of the refusal; empty inside
	}{
		{97, 1, 0, ""}, {301, 1, 0, ""}, {777, 1, 0, ""}, {1024, 1, 0, ""},
		{384, 1, 64, ""}, {1024, 1, 64, ""},
		{95, 1, 0, "96 to 1280"}, {1281, 1, 0, "96 to 1280"}, {0, 1, 0, "no cell"},
		{256, 2, 0, "batches of 1 to 1"}, {256, 1, 32, "chunk sizes 0, 64"},
		{320, 1, 64, "384 to 2560"}, {400, 1, 64, "16 of 64 rows"},
	} {
		d, err := f.Domain(c.seqLen, c.batch, c.chunk)
		p, errAt := f.At(c.seqLen, c.batch, c.chunk)
		if c.want == "" {
			if err != nil || errAt != nil || d.Tested != Untested || p.Events() < 53_000 {
				t.Errorf("%+v: %v, %v", c, err, errAt)
			}
		} else if !errors.Is(err, ErrOutOfDomain) || !errors.Is(errAt, ErrOutOfDomain) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, %v", c, err, errAt)
		}
	}
}

// TestFamilyTrace: the trace of a prediction is one that a recording could be:
// it passes the self-check and sweeps like the program.
func TestFamilyTrace(t *testing.T) {
	f, err := BuildFamily(record(t, "L128_B1", "L192_B1", "L256_B1", "L320_B1"))
	if err != nil {
		t.Fatal(err)
	}
	events, err := f.Trace(512, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile(events)
	if err != nil {
		t.Fatal(err)
	}
	if check := p.SelfCheck(Settings{}); check.Mismatches > 0 || check.Allocs == 0 {
		t.Fatalf("%+v", check)
	}
	program, err := f.At(512, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, errA := p.Sweep(SweepOptions{})
	b, errB := program.Sweep(SweepOptions{})
	if errA != nil || errB != nil || a.Boundary != b.Boundary || a.NoRetry != b.NoRetry || a.Uncapped != b.Uncapped && a.Uncapped.OOMAt != -1 {
		t.Errorf("%+v, %v; %+v, %v", a, errA, b, errB)
	}
	want, err := BuildFamily([]Recording{{512, 1, 0, events}})
	if !errors.Is(err, ErrTooFewTraces) {
		t.Errorf("one recording makes a family: %v, %v", want, err)
	}
}

// TestFamilyRefuses: workloads whose recordings do not determine a program. None
// of them gives a family that leaves something out.
func TestFamilyRefuses(t *testing.T) {
	for _, c := range []struct {
		name, files string
		want        error
	}{
		{"two lengths", "llama_L256_B1 llama_L512_B1 llama_L512_B2", ErrTooFewTraces},
		{"a loop that is no chunk's", "llama_gen_L256_B1 llama_gen_L512_B1", ErrSequencesDiffer},
		{"other kernels", "gpt2_train_L256_B4 gpt2_train_L384_B4 gpt2_train_L512_B8", ErrSequencesDiffer},
		{"varies from run to run", "gpt2_train_L512_B8 gpt2_train_L512_B8_r", ErrSequencesDiffer},
		{"one recording twice", "resnet_train_L224_B16 resnet_train_L224_B16_r", ErrTooFewTraces},
		{"one length", "resnet_train_L224_B8 resnet_train_L224_B16", ErrSequencesDiffer},
		{"none", "", ErrTooFewTraces},
	} {
		var recordings []Recording
		for _, file := range strings.Fields(c.files) {
			r := Recording{Events: readTrace(t, "testdata/other/"+file+".parquet")}
			if _, err := fmt.Sscanf(file[strings.Index(file, "_L"):], "_L%d_B%d", &r.SeqLen, &r.Batch); err != nil {
				t.Fatal(err)
			}
			recordings = append(recordings, r)
		}
		f, err := BuildFamily(recordings)
		if !errors.Is(err, c.want) || f != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		t.Logf("%s: %v", c.name, err)
	}
	for name, c := range map[string]struct {
		cells string
		want  error
	}{
		"three lengths":         {"L128_B1 L192_B1 L256_B1", ErrTooFewTraces},
		"batches, four cells":   {"L128_B8 L256_B2 L256_B3 L301_B2", ErrTooFewTraces},
		"batches, two chunked":  {"L256_B2_c64 L384_B2_c64", ErrTooFewTraces},
		"a second piece short":  {"L128_B1 L192_B1 L256_B1 L320_B1 L256_B2", ErrTooFewTraces},
		"a second chunk short":  {"L128_B1 L192_B1 L256_B1 L320_B1 L384_B1_c64", ErrTooFewTraces},
		"one length mislabeled": {"L128_B1 L192_B1 L256_B1 L300_B1 L320_B1 L333_B1", ErrNotPolynomial},
	} {
		recordings := record(t, strings.Fields(c.cells)...)
		if strings.Contains(name, "mislabeled") {
			recordings[3].SeqLen++
		}
		if f, err := BuildFamily(recordings); !errors.Is(err, c.want) || f != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

// TestFamilyOfDeflatedNothing: a small file cannot make its reader hold gigabytes,
// in one piece or in many.
func TestFamilyOfDeflatedNothing(t *testing.T) {
	flushes := func(n int) pieceDoc {
		var packed bytes.Buffer
		w, err := flate.NewWriter(&packed, flate.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Repeat([]byte{byte(opFlush)}, n)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return pieceDoc{Tested: make([]Tested, 2), Recorded: [][2]int{{1, 1}}, Steps: packed.Bytes()}
	}
	text, err := json.Marshal(familyDoc{Version: familyVersion, Pieces: []pieceDoc{flushes(maxStepFile + 1)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &Family{}); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("one piece in %d bytes: %v", len(text), err)
	}
	small, room := flushes(100), 150
	if _, err := small.piece(&room); err != nil {
		t.Errorf("the first of two: %v", err)
	}
	if _, err := small.piece(&room); err == nil {
		t.Error("the second took room that was not there")
	}
}
