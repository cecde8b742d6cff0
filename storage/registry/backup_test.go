package registry

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// backedUp is a log with something of every kind, and its backup.
func backedUp(t *testing.T) (*log, []byte) {
	t.Helper()
	l := certified(t)
	l.apply(Command{SetMember: &SetMember{Member: Member{ID: "old", API: "http://old:1"}}})
	var file bytes.Buffer
	if err := l.View().WriteBackup(&file); err != nil {
		t.Fatal(err)
	}
	return l, file.Bytes()
}

func TestBackupHoldsTheContent(t *testing.T) {
	l, file := backedUp(t)
	back, err := ReadBackup(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if back.Content() != l.View().Content() || len(back.Members) != 0 || len(back.Records) == 0 {
		t.Errorf("content %s, was %s; members %v", back.Content(), l.View().Content(), back.Members)
	}
	if back.Hash() == l.Hash() {
		t.Error("members are part of the state's hash, and a backup has none")
	}
}

func TestBackupTakesThePlace(t *testing.T) {
	_, file := backedUp(t)
	back, err := ReadBackup(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	now := New()
	late := time.Unix(1<<33, 0)
	now.Apply(3, late, Command{Version: 1, SetMember: &SetMember{Member: Member{ID: "new", API: "http://new:1"}}})
	if !now.View().Empty() || back.Empty() {
		t.Error("members alone are nothing to lose, sweeps are")
	}
	next := back.Replacing(now.View(), 1000)
	var snapshot bytes.Buffer
	if err := next.WriteSnapshot(&snapshot); err != nil {
		t.Fatal(err)
	}
	if err := now.Restore(&snapshot); err != nil {
		t.Fatal(err)
	}
	v := now.View()
	if v.Content() != back.Content() || v.Members["new"].API == "" || v.Members["old"].API != "" || v.Restored != 1000 || v.AppliedIndex != 1000 ||
		!v.AppliedTime.Equal(late) {
		t.Errorf("restored %+v at %d, time %s", v.Members, v.AppliedIndex, v.AppliedTime)
	}
}

func TestDamagedBackups(t *testing.T) {
	_, file := backedUp(t)
	newer := bytes.Replace(file, []byte(`"version":1`), []byte(`"version":7`), 1)
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"cut":     {file[:len(file)*2/3], ErrSnapshotDamaged},
		"altered": {bytes.Replace(file, []byte("certified"), []byte("bisected!"), 1), ErrSnapshotDamaged},
		"text":    {[]byte("hello\n"), ErrSnapshotDamaged},
		"empty":   {nil, ErrSnapshotDamaged},
		"newer":   {newer, ErrSnapshotVersion},
	} {
		if _, err := ReadBackup(bytes.NewReader(c.file)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSettlementsAreKept: a cell that is reopened and settles again keeps what
// it was settled as before, numbered, through a snapshot as well.
func TestSettlementsAreKept(t *testing.T) {
	l := newLog(t)
	l.apply(sweep("s", 32))
	key := keyOf(32)
	for i := range HistoryLimit + 3 {
		reply := l.apply(Command{Settle: &Settle{Key: key, Settlement: Settlement{State: proto.CellFailed, Reason: strings.Repeat("x", i+1)}}})
		if !reply.Accepted {
			t.Fatal(reply.Refused)
		}
		next := sweep("s" + strings.Repeat("x", i+1))
		next.AddSweep.Cells = sweep("s", 32).AddSweep.Cells
		l.apply(next) // a failed cell is tried again
	}
	v := l.View()
	kept := v.Settlements[key]
	if len(kept) != HistoryLimit || kept[0].Revision != 4 || kept[HistoryLimit-1].Revision != HistoryLimit+3 || len(kept[0].Reason) != 4 {
		t.Fatalf("%d kept, first %+v", len(kept), kept[0])
	}
	l.apply(Command{Settle: &Settle{Key: key, Settlement: Settlement{State: proto.CellFailed}}})
	if got := l.View().Records[key].Settled.Revision; got != HistoryLimit+4 {
		t.Errorf("revision %d", got)
	}
	var snapshot bytes.Buffer
	if err := l.Snapshot(&snapshot); err != nil {
		t.Fatal(err)
	}
	back := New()
	if err := back.Restore(&snapshot); err != nil || back.Hash() != l.Hash() || l.replay().Hash() != l.Hash() {
		t.Errorf("another state: %v", err)
	}
}

func TestSettledSweepIsNotCancelled(t *testing.T) {
	l := certified(t)
	for id := range l.View().Sweeps {
		before := l.View().Content()
		reply := l.apply(Command{CancelSweep: &CancelSweep{ID: id}})
		if reply.Accepted || !strings.Contains(reply.Refused, "has settled") || l.View().Content() != before {
			t.Errorf("%s: %+v", id, reply)
		}
	}
}

// TestWholeBackups: a backup that is as somebody wrote it, and names what is not
// in it, is not one to restore.
func TestWholeBackups(t *testing.T) {
	_, file := backedUp(t)
	for name, c := range map[string]struct {
		spoil func(v *View, s *Sweep, r *Record)
		says  string
	}{
		"nothing":        {func(*View, *Sweep, *Record) {}, ""},
		"no record":      {func(v *View, _ *Sweep, r *Record) { delete(v.Records, r.Key) }, "without a record"},
		"no sweep":       {func(v *View, s *Sweep, _ *Record) { delete(v.Sweeps, s.ID) }, "that is not there"},
		"imported sweep": {func(_ *View, s *Sweep, _ *Record) { s.Origin = proto.OriginImported }, "nothing else can be run"},
		"outcome":        {func(_ *View, _ *Sweep, r *Record) { r.Runs[0].Outcome = "luck" }, `outcome "luck"`},
		"state":          {func(_ *View, _ *Sweep, r *Record) { r.Settled.State = "done" }, `settled as "done"`},
		"position":       {func(v *View, _ *Sweep, _ *Record) { v.AppliedIndex = 1 << 63 }, "entries long"},
		"history":        {func(v *View, _ *Sweep, _ *Record) { v.History[GroupKey{Group: "g"}] = []*CoefficientSet{{}} }, "followed them"},
		"coefficients":   {func(v *View, _ *Sweep, _ *Record) { v.Coefficients[GroupKey{Group: "g"}] = &CoefficientSet{} }, "no model"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := ReadBackup(bytes.NewReader(file))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range v.Sweeps {
				c.spoil(&v, s, v.Records[Key{Origin: s.Origin, Cell: s.Cells[0]}])
				break
			}
			if err := v.Whole(); (err == nil) != (c.says == "") || err != nil && (!errors.Is(err, ErrSnapshotDamaged) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}
