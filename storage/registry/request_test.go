package registry

import (
	"strings"
	"testing"
)

func requestedSweep(id, request string, seqLens ...int) Command {
	c := sweep(id, seqLens...)
	c.AddSweep.Request = request
	return c
}

// TestRequestCountsOnce: a request whose answer was lost is proposed again, under
// another id by then, and makes nothing new; also after a restart and in a backup.
func TestRequestCountsOnce(t *testing.T) {
	l := newLog(t)
	first := l.apply(requestedSweep("s", "key-1", 32, 64))
	if !first.Accepted || first.Sweep != "s" || first.New != 2 {
		t.Fatalf("first: %+v", first)
	}
	for _, machine := range []*Machine{l.Machine, l.replay()} {
		again := applyAt(t, machine, 2, requestedSweep("s-2", "key-1", 64, 32))
		if again.Accepted || again.Refused != "" || again.Sweep != "s" || again.Known != 2 || len(machine.View().Sweeps) != 1 {
			t.Errorf("again: %+v", again)
		}
		if made := machine.View().Requested("key-1"); made == nil || made.ID != "s" {
			t.Errorf("requested %+v", made)
		}
	}
	if made := l.View().Requested(""); made != nil {
		t.Errorf("no request made %s", made.ID)
	}
}

func TestRequestsDiffer(t *testing.T) {
	l := newLog(t)
	l.apply(requestedSweep("s", "key-1", 32))
	if r := l.apply(requestedSweep("s-2", "key-2", 32)); !r.Accepted || r.Sweep != "s-2" {
		t.Errorf("another request: %+v", r)
	}
	if r := l.apply(sweep("s-3", 32)); !r.Accepted || r.Sweep != "s-3" {
		t.Errorf("without a key: %+v", r)
	}
	if r := l.apply(requestedSweep("s-4", "key-1", 64)); r.Accepted || !strings.Contains(r.Refused, "has made sweep s") {
		t.Errorf("the same key for other cells: %+v", r)
	}
	for _, key := range []string{"two words", "a/b", strings.Repeat("x", RequestLimit+1)} {
		if r := l.apply(requestedSweep("s-5", key, 32)); r.Accepted || !strings.Contains(r.Refused, "request key") {
			t.Errorf("key %q: %+v", key, r)
		}
	}
}

// TestRepeatRequestedAgain: a repeat whose cells have been reopened since is
// still the one that was made.
func TestRepeatRequestedAgain(t *testing.T) {
	l := certified(t)
	ask := func(id string) Reply {
		c := repeatSweep(id, 1, 32)
		c.AddSweep.Request = "key-1"
		return l.apply(c)
	}
	if r := ask("r"); !r.Accepted {
		t.Fatalf("%+v", r)
	}
	wider := sweep("all", 32)
	wider.AddSweep.Search.Certify = "all"
	l.apply(wider)
	if l.View().Records[keyOf(32)].Settled != nil {
		t.Fatal("the cell was not reopened")
	}
	if r := ask("r-2"); r.Refused != "" || r.Sweep != "r" {
		t.Errorf("%+v", r)
	}
}
