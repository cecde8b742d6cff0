package outcome

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

func readLog(t testing.TB, text string) Log {
	t.Helper()
	l, err := ReadLog(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// sentenceOf is a sentence of PyTorch 2 that differs by its size.
func sentenceOf(gib int) string {
	return fmt.Sprintf(g+"Tried to allocate %d.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 512.00 MiB is free. "+
		"Of the allocated memory 70.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.", gib)
}

const (
	tracebackHead = "Traceback (most recent call last):\n  File \"fold.py\", line 3, in <module>\n    out = model(x)\n"
	handling      = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
)

// TestReadLogIsRead: a text with one refusal reads as Read reads it, alone, at
// either end of a long log and in the middle of one.
func TestReadLogIsRead(t *testing.T) {
	step := "step 12345 loss 0.5 lr 1e-4 it/s 3.25 " + strings.Repeat("and more words ", 20) + "\n"
	filler := strings.Repeat(step, logWindow*5/4/len(step))
	for i, s := range samples(t) {
		want := show(Read(s.Text))
		texts := map[string]string{"alone": s.Text}
		switch i % 3 { // each place takes its time
		case 0:
			texts["first"] = s.Text + "\n" + filler
		case 1:
			texts["last"] = filler + s.Text
		case 2:
			texts["between"] = filler + s.Text + "\n" + filler
		}
		for name, text := range texts {
			if l := readLog(t, text); show(l.Reading) != want || l.Size != int64(len(text)) || l.Binary() {
				t.Errorf("%s %s: got %s, want %s", s.ID, name, show(l.Reading), want)
			}
		}
	}
}

// TestReadLogAcrossWindows puts a sentence at every kind of place around the
// ends of windows and of pieces of a line.
func TestReadLogAcrossWindows(t *testing.T) {
	want := show(Read(sentenceOf(3)))
	long := strings.Repeat("x", 97)
	for _, end := range []int{logPiece, logWindow, 2*logWindow - logOverlap} {
		for _, shift := range []int{-logOverlap, -maxSentence - 100, -maxSentence + 9, -300, -97, 0} {
			for _, fill := range []string{long, long + "\n", "\n[rank0]: " + long} {
				before := strings.Repeat(fill, (end+shift)/len(long))
				l := readLog(t, before+sentenceOf(3)+strings.Repeat(fill, 400))
				if show(l.Reading) != want || l.Refusals != 1 || l.Line != strings.Count(before, "\n")+1 {
					t.Fatalf("at %d%+d after %q: line %d, %d refusals, %s", end, shift, fill, l.Line, l.Refusals, show(l.Reading))
				}
			}
		}
	}
}

func TestReadLogOfSeveral(t *testing.T) {
	truncated := g + "Tried to allocate 9.00 GiB. GPU"
	pad := strings.Repeat("epoch 3 of 9\n", 60000)
	for _, c := range []struct {
		name, text    string
		tried         int // GiB
		refusals      int
		line, atFirst int
	}{
		{"the last", sentenceOf(1) + "\nretrying with half the batch\n" + sentenceOf(2) + "\n", 2, 2, 3, 1},
		{"the last, far apart", sentenceOf(1) + "\n" + pad + sentenceOf(2) + "\n" + pad + sentenceOf(4) + "\n" + pad, 4, 3, 120003, 1},
		{"said twice", sentenceOf(1) + "\nERROR " + sentenceOf(1), 1, 1, 1, 1},
		{"the aftermath of the first", tracebackHead + sentenceOf(5) + handling + tracebackHead + sentenceOf(6), 5, 1, 4, 4},
		{"a chain through another error", tracebackHead + sentenceOf(5) + handling + tracebackHead + "KeyError: 'x'" + handling + tracebackHead + sentenceOf(6), 5, 1, 4, 4},
		{"a new traceback after a chain", tracebackHead + sentenceOf(5) + handling + tracebackHead + "KeyError: 'x'\n" + pad + tracebackHead + sentenceOf(6), 6, 2, 60015, 4},
		{"the cause that says more", tracebackHead + truncated + handling + tracebackHead + sentenceOf(6), 6, 1, 11, 4},
		{"a cut one after a whole one", sentenceOf(1) + "\n" + truncated, 1, 2, 1, 1},
		{"then killed", sentenceOf(1) + "\n" + pad + "Killed\n", 1, 1, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := readLog(t, c.text)
			if l.Reading.Tried == nil || int64(*l.Reading.Tried) != int64(c.tried)<<30 || l.Refusals != c.refusals || l.Line != c.line || l.FirstLine != c.atFirst {
				t.Errorf("got %s, %d refusals, lines %d and %d", show(l.Reading), l.Refusals, l.Line, l.FirstLine)
			}
		})
	}
}

// TestReadLogRanks: over a long log the better evidence counts, wherever it is.
func TestReadLogRanks(t *testing.T) {
	pad := strings.Repeat("epoch 3 of 9\n", 60000)
	noSize, fault := "RuntimeError: CUDA error: out of memory\n", "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.\n"
	for _, c := range []struct {
		text, kind string
		line       int
	}{
		{noSize + pad + fault, KindNoSize, 1},
		{fault + pad + noSize, KindNoSize, 60002},
		{fault + pad + "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.\n", KindHostOOMKill, 60002},
		{pad + "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1024 bytes.\n" + noSize, KindXLA, 60001},
		{pad, KindNotOOM, 0},
		{"", KindNotOOM, 0},
	} {
		if l := readLog(t, c.text); l.Reading.Kind != c.kind || l.Line != c.line || l.Refusals != 0 {
			t.Errorf("%.60q...: %s in line %d, want %s in line %d", c.text, l.Reading.Kind, l.Line, c.kind, c.line)
		}
	}
}

// endless is a log of a given size that exists nowhere at once.
func endless(line string, size int64) io.Reader {
	return io.LimitReader(repeat(line), size)
}

type repeat string

func (r repeat) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], r)
	}
	return n, nil
}

// TestReadLogIsBounded reads 8 MiB, once of lines and once of one line without
// an end, and may not hold on to more than a few windows' worth.
func TestReadLogIsBounded(t *testing.T) {
	for _, line := range []string{"step 12345 loss 0.5 lr 1e-4 it/s 3.25 and some more words to make it long\n", "abcdefgh"} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s := io.MultiReader(endless(line, 8<<20), strings.NewReader("\n"+sentenceOf(7)))
		l, err := ReadLog(s)
		runtime.ReadMemStats(&after)
		if err != nil || l.Reading.Tried == nil {
			t.Fatalf("%q: %+v, %v", line, l, err)
		}
		if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 24<<20 {
			t.Errorf("%q: the heap grew by %d MiB", line, grown>>20)
		}
	}
}

func TestReadLogOfNoText(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	garbage := make([]byte, 3<<20)
	for i := range garbage {
		garbage[i] = byte(rng.Uint32())
	}
	l, err := ReadLog(bytes.NewReader(garbage))
	if err != nil || l.Reading.Kind != KindNotOOM || !l.Binary() {
		t.Errorf("%+v, %v", l, err)
	}
	if l := readLog(t, "\x1b[31mFehler: Größe ändern, 显存不足\x1b[0m\r\n"); l.Binary() {
		t.Errorf("%+v", l)
	}
	broken := errors.New("broken")
	if _, err := ReadLog(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

func BenchmarkReadLog(b *testing.B) {
	const size = 8 << 20
	b.SetBytes(size)
	for b.Loop() {
		if _, err := ReadLog(endless("2025-11-12 11:25:13,496 - INFO - step 12345 loss 0.5 lr 1e-4 it/s 3.25\n", size)); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzReadLog: whatever the bytes, there is an answer, and of a text that fits
// into one window with at most one refusal it is Read's.
func FuzzReadLog(f *testing.F) {
	for _, s := range samples(f) {
		f.Add(s.Text)
	}
	f.Add(tracebackHead + sentenceOf(5) + handling + tracebackHead + sentenceOf(6))
	f.Fuzz(func(t *testing.T, text string) {
		l := readLog(t, text)
		if l.Reading.Kind == "" || l.Odd > l.Size {
			t.Errorf("%+v", l)
		}
		if got, want := show(l.Reading), show(Read(text)); len(text) < logPiece && l.Refusals < 2 && got != want {
			t.Errorf("%q: %s, Read says %s", text, got, want)
		}
		again, err := ReadLog(iotest.HalfReader(strings.NewReader(text)))
		if err != nil || !reflect.DeepEqual(again, l) {
			t.Errorf("%q: in pieces %+v, whole %+v (%v)", text, again, l, err)
		}
	})
}
