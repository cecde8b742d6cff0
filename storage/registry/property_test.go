package registry

import (
	"bytes"
	"slices"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
	"pgregory.net/rapid"
)

// stream drives a machine with random commands and keeps the little that must
// hold whatever they are.
type stream struct {
	*log
	offered int
	issued  []proto.Task
	// settled is how often each cell settled since it was last reopened.
	settled map[Key]int
}

func (s *stream) apply(c Command) Reply {
	before := s.View()
	reply := s.log.apply(c)
	for key, r := range s.View().Records {
		was := before.Records[key]
		switch {
		case was == nil || was.Settled == nil && r.Settled == nil:
		case was.Settled == nil:
			s.settled[key]++
		case r.Settled == nil:
			if c.AddSweep == nil {
				s.t.Fatalf("cell %v was reopened by %+v", key, c)
			}
			s.settled[key] = 0
		case was.Settled != r.Settled:
			s.t.Fatalf("cell %v was settled over", key)
		}
		if s.settled[key] > 1 {
			s.t.Fatalf("cell %v settled %d times", key, s.settled[key])
		}
	}
	if c.TakeResult == nil {
		s.again(c)
	} else {
		s.offered++
	}
	s.issued = append(s.issued, reply.Issued...)
	return reply
}

// again checks that a command applied a second time changes nothing.
func (s *stream) again(c Command) {
	before := body(s.View())
	s.log.apply(c)
	if after := body(s.View()); after != before {
		s.t.Fatalf("applied twice is not applied once: %+v\n%s\n%s", c, before, after)
	}
}

// body is the view as text, without the log position.
func body(v View) string {
	v.AppliedIndex, v.AppliedTime = 0, start
	var b bytes.Buffer
	if err := v.WriteSnapshot(&b); err != nil {
		panic(err)
	}
	return b.String()
}

func (s *stream) check() {
	view := s.View()
	total := view.Late
	for _, r := range view.Records {
		total += len(r.Runs) + r.Late
		if r.Settled != nil && len(r.Open) > 0 {
			s.t.Fatalf("settled cell %v has open tasks", r.Key)
		}
	}
	if total != s.offered {
		s.t.Fatalf("runs and late are %d, results offered %d", total, s.offered)
	}
	for id, sweep := range view.Sweeps {
		report, ok := view.Report(id)
		c := report.Counts
		if !ok || c.Pending+c.Running+c.Settled() != c.Total || c.Total != len(sweep.Cells) || c.Total != len(report.Cells) {
			s.t.Fatalf("counts of %s do not add up: %+v", id, c)
		}
		if sweep.Cancelled && c.Settled() != c.Total {
			s.t.Fatalf("cancelled sweep %s has no final state: %+v", id, c)
		}
	}
}

func TestRandomCommandStreams(t *testing.T) {
	seqLens := []int{32, 64, 96, 128}
	quotas := []proto.Bytes{0, proto.GiB, 2 * proto.GiB}
	rapid.Check(t, func(t *rapid.T) {
		s := &stream{log: &log{Machine: New(), t: t}, settled: map[Key]int{}}
		pick := func() int { return rapid.SampledFrom(seqLens).Draw(t, "cell") }
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { s.check() },
			"add sweep": func(t *rapid.T) {
				c := sweep(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "sweep"),
					rapid.SliceOfNDistinct(rapid.SampledFrom(seqLens), 1, 3, rapid.ID[int]).Draw(t, "cells")...)
				c.AddSweep.Search.Certify = rapid.SampledFrom([]proto.Certify{proto.CertifyNone, proto.CertifyEdges}).Draw(t, "certify")
				s.apply(c)
			},
			"cancel sweep": func(t *rapid.T) {
				s.apply(Command{CancelSweep: &CancelSweep{ID: proto.MatrixID(rapid.SampledFrom([]string{"a", "b", "c", "x"}).Draw(t, "sweep"))}})
			},
			"issue": func(t *rapid.T) {
				quota := rapid.SampledFrom(quotas).Draw(t, "quota")
				request := probe(pick(), quota)
				if quota == 0 {
					request = record(pick())
				}
				seen := s.View().AppliedIndex - min(s.View().AppliedIndex, uint64(rapid.IntRange(0, 3).Draw(t, "behind")))
				s.apply(Command{Issue: &Issue{Seen: seen, Requests: []IssueRequest{request, request}}})
			},
			"take result": func(t *rapid.T) {
				if len(s.issued) == 0 {
					t.Skip("nothing issued")
				}
				r := result(rapid.SampledFrom(s.issued).Draw(t, "task"), rapid.SampledFrom(proto.Outcomes()).Draw(t, "outcome"))
				r.Fence += proto.Fence(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "fence"))
				if rapid.IntRange(0, 9).Draw(t, "stranger") == 0 {
					r.CellID = "0123"
				}
				s.apply(take(r))
			},
			"predict": func(t *rapid.T) {
				trace := proto.Digest(rapid.SampledFrom([]string{"d0", "d1"}).Draw(t, "trace"))
				s.apply(Command{SetPrediction: &SetPrediction{Key: keyOf(pick()), Prediction: proto.Prediction{Trace: trace}}})
			},
			"predict by program": func(t *rapid.T) {
				digest := proto.Digest(rapid.SampledFrom([]string{"p0", "p1"}).Draw(t, "program"))
				s.apply(Command{SetPrediction: &SetPrediction{Key: keyOf(pick()), Prediction: proto.Prediction{Program: digest}}})
			},
			"program": func(t *rapid.T) {
				inputs := rapid.SliceOfN(rapid.SampledFrom([]proto.Digest{"d0", "d1", "d2"}), 1, 3).Draw(t, "inputs")
				s.apply(program(inputs, func(c *SetProgram) {
					switch rapid.IntRange(0, 3).Draw(t, "form") {
					case 0:
						c.Program, c.Domains, c.Refused, c.NeedMore = "", nil, "they differ", rapid.Bool().Draw(t, "more")
					case 1:
						c.Stale = "sizes differ"
					}
				}))
			},
			"settle": func(t *rapid.T) {
				n := pick()
				runs := 0
				if r := s.View().Records[keyOf(n)]; r != nil {
					runs = len(r.Runs)
				}
				s.apply(settle(n, runs, rapid.SampledFrom(settledStates()).Draw(t, "state")))
			},
		})
		if got, want := s.replay().Hash(), s.Hash(); got != want {
			t.Fatalf("replay of the log gives another state")
		}
		restored := New()
		var b bytes.Buffer
		if err := s.Snapshot(&b); err != nil {
			t.Fatal(err)
		}
		if err := restored.Restore(&b); err != nil {
			t.Fatal(err)
		}
		if restored.Hash() != s.Hash() {
			t.Fatalf("snapshot and restore give another state")
		}
	})
}

func TestOrderOfCellsDoesNotMatter(t *testing.T) {
	numbers := []int{16, 32, 48, 64, 80, 96, 112, 128}
	a := newLog(t)
	a.apply(sweep("s", numbers...))
	rapid.Check(t, func(t *rapid.T) {
		shuffled := rapid.Permutation(slices.Clone(numbers)).Draw(t, "cells")
		b := &log{Machine: New(), t: t}
		b.apply(sweep("s", append(shuffled, shuffled[0])...)) // and one of them twice
		if a.Hash() != b.Hash() {
			t.Fatalf("another state for %v", shuffled)
		}
	})
}
