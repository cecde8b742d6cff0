package registry

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/oomfleet/oomfleet/proto"
)

// fullLog has something of everything in it.
func fullLog(t reporter) *log {
	l := newLog(t)
	add := sweep("s", 32, 64)
	add.AddSweep.Set = []string{"axes.seq_len=32,64"}
	l.apply(add)
	l.apply(take(result(l.issue(record(64))[0], proto.OutcomePass)))
	l.apply(Command{SetPrediction: &SetPrediction{Key: keyOf(64), Prediction: proto.Prediction{Trace: "d0"}}})
	l.apply(program([]proto.Digest{"d1", "d0"}, nil))
	l.apply(program([]proto.Digest{"d0", "d1"}, func(c *SetProgram) { c.Stale = "sizes differ" }))
	l.apply(settle(64, 1, proto.CellPredicted))
	l.issue(record(32), probe(32, proto.GiB))
	l.apply(coefficients(l, 1.0/3, "m-a"))
	l.apply(coefficients(l, 2.0/3, "m-a"))
	l.apply(Command{SetMember: &SetMember{Member: Member{ID: "n1", API: "http://n1:8080", CommandVersion: 1}}})
	stranger := result(proto.Task{ID: "x", Fence: 1, CellID: "x", Origin: proto.OriginMeasured}, proto.OutcomePass)
	l.apply(take(stranger))
	l.apply(Command{CancelSweep: &CancelSweep{ID: "s"}})
	return l
}

func snapshotOf(t reporter, m *Machine) string {
	t.Helper()
	var b bytes.Buffer
	if err := m.Snapshot(&b); err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	return b.String()
}

func TestReplayOfTheLogIsTheSnapshot(t *testing.T) {
	l := fullLog(t)
	restored := New()
	if err := restored.Restore(strings.NewReader(snapshotOf(t, l.Machine))); err != nil {
		t.Fatal(err)
	}
	want := snapshotOf(t, l.replay())
	if got := snapshotOf(t, restored); got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
	if set := restored.View().Sweeps["s"].Set; !slices.Equal(set, []string{"axes.seq_len=32,64"}) {
		t.Errorf("overrides %v", set)
	}
	if restored.View().Late != 1 || len(restored.View().History) != 1 || len(restored.View().Members) != 1 {
		t.Fatalf("%+v", restored.View())
	}
	next := Command{Version: CommandVersion, CancelSweep: &CancelSweep{ID: "none"}}
	restored.Apply(uint64(len(l.entries)+1), start, next)
	l.Machine.Apply(uint64(len(l.entries)+1), start, next)
	if restored.Hash() != l.Hash() {
		t.Fatal("the restored machine goes on differently")
	}
}

func TestRestoreRefuses(t *testing.T) {
	good := snapshotOf(t, fullLog(t).Machine)
	lines := strings.SplitAfter(good, "\n")
	for name, test := range map[string]struct {
		text string
		want error
		says string
	}{
		"empty file":         {"", ErrSnapshotDamaged, "recover"},
		"cut in half":        {good[:len(good)/2], ErrSnapshotDamaged, "snapshot before it"},
		"cut after a line":   {strings.Join(lines[:3], ""), ErrSnapshotDamaged, "end line"},
		"a line missing":     {lines[0] + strings.Join(lines[2:], ""), ErrSnapshotDamaged, "checksum"},
		"one letter other":   {strings.Replace(good, `"name":"s"`, `"name":"t"`, 1), ErrSnapshotDamaged, "checksum"},
		"goes on":            {good + "x", ErrSnapshotDamaged, "goes on"},
		"an unknown field":   {lines[0] + `{"sweeps":{}}` + "\n" + good, ErrSnapshotDamaged, "unknown field"},
		"an empty line":      {lines[0] + "{}\n" + good, ErrSnapshotDamaged, "nothing that this build knows"},
		"a newer version":    {strings.Replace(good, `"version":1`, `"version":2,"more":true`, 1), ErrSnapshotVersion, "start the build that wrote it"},
		"something other":    {"PK\x03\x04\n", ErrSnapshotDamaged, "does not begin"},
		"a foreign header":   {`{"format":"other","version":1}` + "\n", ErrSnapshotDamaged, "does not begin"},
		"a header's unknown": {strings.Replace(good, `"version":1`, `"version":1,"more":true`, 1), ErrSnapshotDamaged, "unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			l := fullLog(t)
			before := l.Hash()
			err := l.Restore(strings.NewReader(test.text))
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("got %v, want %v with %q", err, test.want, test.says)
			}
			if l.Hash() != before {
				t.Fatal("a refused snapshot changed the machine")
			}
		})
	}
}

// FuzzRestore: bytes are a state that survives another round and goes on as the
// log does, or are refused with nothing changed. Most inputs are given the end
// line that belongs to them, as a checksum is not what keeps a wrong state out.
func FuzzRestore(f *testing.F) {
	good := snapshotOf(f, fullLog(f).Machine)
	lines := strings.SplitAfter(good, "\n")
	f.Add([]byte(good), false)
	f.Add([]byte(snapshotOf(f, New())), false)
	f.Add([]byte(strings.Join(lines[:len(lines)-2], "")), true)
	for _, line := range lines[1 : len(lines)-2] {
		f.Add([]byte(lines[0]+line), true) // small ones change more
	}
	f.Fuzz(func(t *testing.T, data []byte, end bool) {
		if end {
			text, err := json.Marshal(snapshotLine{End: &snapshotEnd{SHA256: fmt.Sprintf("%x", sha256.Sum256(data)), Lines: bytes.Count(data, []byte("\n"))}})
			if err != nil {
				t.Fatal(err)
			}
			data = append(append(slices.Clip(data), text...), '\n')
		}
		l := newLog(t)
		before := l.Hash()
		if err := l.Restore(bytes.NewReader(data)); err != nil {
			if text := err.Error(); l.Hash() != before || len(text) > 2000 || strings.ContainsAny(text, "\n\r") {
				t.Fatalf("refused with %d bytes: %.300q", len(text), text)
			}
			return
		}
		view := l.View()
		if err := view.Whole(); err != nil {
			return // nobody takes it for a backup
		}
		again := New()
		if err := again.Restore(iotest.OneByteReader(strings.NewReader(snapshotOf(t, l.Machine)))); err != nil || again.Hash() != l.Hash() {
			t.Fatalf("what was restored does not survive another round: %v", err)
		}
		for id := range view.Sweeps {
			view.Report(id) //nolint:errcheck // it ends
		}
		view.Content()
		// What the log says next is taken or refused, as anywhere.
		at := view.AppliedIndex
		for i, c := range fullLog(t).entries {
			c.Version = CommandVersion
			l.Machine.Apply(at+uint64(i)+1, start, c)
		}
		snapshotOf(t, l.Machine)
	})
}
