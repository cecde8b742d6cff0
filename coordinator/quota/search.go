package quota

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// Largest is the answer to a question asked backwards: the largest length or
// batch that a quota holds.
type Largest struct {
	// Axis is seq_len or batch, Value the largest of it that fits.
	Axis  string      `json:"axis"`
	Value int         `json:"value"`
	Quota proto.Bytes `json:"given_bytes"`
	// LimitedBy is quota, or domain where the evidence ends before the quota.
	LimitedBy string `json:"limited_by"`
	// At is the recommendation for Value, Next that for the one after it, which
	// does not fit; absent where the evidence ends.
	At   Recommendation  `json:"at"`
	Next *Recommendation `json:"next,omitempty"`
	// Asked is how many lengths or batches were looked at.
	Asked int `json:"asked"`
	Stamp
}

const (
	// downTo is how many values below a found one are looked at too: needs grow
	// with length all but monotonically, and a shorter run must not fail.
	downTo = 4
	// mostGap is how far an answerable length is looked for: a program that
	// knows full chunks alone answers every chunk-size-th.
	mostGap = 256
)

// MaxSeqLen is the largest length that fits a quota at a batch: its
// recommendation, margin and risk included, is at most the quota. Every error is
// a *Refusal.
func (a Adviser) MaxSeqLen(q Question, quota proto.Bytes) (Largest, error) {
	q.SeqLen = 1
	return a.largest(q, search{quota, "seq_len", func(q *Question, n int) { q.SeqLen = n }})
}

// MaxBatch is the largest batch that fits a quota at a length, else as MaxSeqLen.
func (a Adviser) MaxBatch(q Question, quota proto.Bytes) (Largest, error) {
	q.Batch = 1
	return a.largest(q, search{quota, "batch", func(q *Question, n int) { q.Batch = n }})
}

// search is what is looked for, along which axis.
type search struct {
	quota proto.Bytes
	axis  string
	set   func(q *Question, n int)
}

// finder asks the ladder along one axis, each value once.
type finder struct {
	Adviser
	scope scope
	q     Question
	search
	known map[int]*Recommendation // nil for refused
}

func (a Adviser) largest(q Question, look search) (Largest, error) {
	quota, axis := look.quota, look.axis
	if quota <= 0 {
		return Largest{}, refusef(BadQuestion, "the quota is %d bytes, and must be more than 0", int64(quota))
	}
	if q.Extrapolate {
		return Largest{}, refusef(BadQuestion, "the largest %s is looked for where evidence is; extrapolate answers a single length and batch alone", axis)
	}
	if err := q.Validate(); err != nil {
		return Largest{}, err
	}
	s, err := a.scopeOf(q)
	if err != nil {
		return Largest{}, err
	}
	f := &finder{Adviser: a, scope: s, q: q, search: look, known: map[int]*Recommendation{}}
	spans := f.spans()
	if len(spans) == 0 {
		return Largest{}, refusef(NotCovered, "nothing is known of this combination yet, at any %s: wait until the sweep has settled, or add to the matrix%s", axis, a.elsewhere(q))
	}
	var smallest *Recommendation
	for i := len(spans) - 1; i >= 0; i-- {
		lo, r := f.up(spans[i][0], spans[i][1])
		if r == nil {
			continue
		}
		smallest = r
		if r.Quota > quota {
			continue
		}
		return f.answer(f.bisect(lo, spans[i][1]), spans[i], i == len(spans)-1), nil
	}
	if smallest == nil {
		_, err := a.at(s, f.question(spans[0][0]))
		var refused *Refusal
		if errors.As(err, &refused) {
			return Largest{}, refused
		}
		return Largest{}, refusef(NotCovered, "nothing is known of this combination: add it to the matrix")
	}
	return Largest{}, refusef(NothingFits, "no %s fits %s: the smallest that is known (length %d at batch %d) needs %s", axis, quota,
		smallest.SeqLen, smallest.Batch, smallest.Quota)
}

func (f *finder) question(n int) Question {
	q := f.q
	f.set(&q, n)
	return q
}

// ask is the recommendation at n, nil where it is refused.
func (f *finder) ask(n int) *Recommendation {
	r, seen := f.known[n]
	if !seen {
		if answer, err := f.at(f.scope, f.question(n)); err == nil {
			r = &answer
		}
		f.known[n] = r
	}
	return r
}

// up is the first value from n on, to end, that has an answer.
func (f *finder) up(n, end int) (int, *Recommendation) {
	for last := min(end, n+mostGap); n <= last; n++ {
		if r := f.ask(n); r != nil {
			return n, r
		}
	}
	return 0, nil
}

// bisect finds the largest value that fits in lo..end, where lo does. Needs grow
// all but monotonically, so some below the find are looked at too, and the
// answer goes below any that does not fit.
func (f *finder) bisect(lo, end int) int {
	first, hi := lo, end+1 // from hi on nothing fits, or nothing is known
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if at, r := f.up(mid, hi-1); r != nil && r.Quota <= f.quota {
			lo = at
		} else {
			hi = mid
		}
	}
	for n := lo - 1; n >= max(first, lo-downTo); n-- {
		if r := f.ask(n); r != nil && r.Quota > f.quota {
			lo = n - 1
		}
	}
	for lo > first && f.ask(lo) == nil {
		lo--
	}
	return f.probed(lo)
}

// probed is a larger value than n at which real probes passed under the quota;
// else n. What lies between may be predicted with a margin that the quota does
// not hold, and is taken to need no more than the larger run did.
func (f *finder) probed(n int) int {
	at := f.question(n)
	for _, r := range f.scope.records {
		own, fixed, wanted := r.Cell.SeqLen, r.Cell.Batch, at.Batch
		if f.axis == "batch" {
			own, fixed, wanted = r.Cell.Batch, r.Cell.SeqLen, at.SeqLen
		}
		if own <= n || fixed != wanted || !probed(r) {
			continue
		}
		if a := f.ask(own); a != nil && a.Basis == BasisBoundary && a.Quota <= f.quota {
			n = own
		}
	}
	return n
}

func (f *finder) answer(n int, span [2]int, last bool) Largest {
	out := Largest{Axis: f.axis, Value: n, Quota: f.quota, LimitedBy: "quota", At: *f.ask(n), Stamp: f.Adviser.At}
	if _, next := f.up(n+1, span[1]); next != nil {
		out.Next = next
	} else if last {
		out.LimitedBy = "domain"
		out.At.Notes = append(out.At.Notes, fmt.Sprintf("nothing is known beyond %s %d: the quota may hold more", f.axis, n))
	}
	for _, r := range f.known {
		if r != nil {
			out.Asked++
		}
	}
	return out
}

// spans are the ranges of the axis in which something may answer, ascending and
// apart from each other.
func (f *finder) spans() [][2]int {
	var out [][2]int
	add := func(own, other proto.Range, fixed int) {
		if fixed >= other[0] && fixed <= other[1] && own[0] <= own[1] {
			out = append(out, [2]int{max(1, own[0]), own[1]})
		}
	}
	along := func(d proto.Domain) {
		if f.axis == "seq_len" {
			add(d.SeqLen, d.Batch, f.q.Batch)
		} else {
			add(d.Batch, d.SeqLen, f.q.SeqLen)
		}
	}
	for _, set := range f.scope.sets {
		for _, c := range set.Models {
			along(c.Domain)
		}
	}
	for _, batch := range []int{1, 2} { // one batch of each class of families
		q := f.q
		if q.Batch = batch; f.axis == "seq_len" {
			q.Batch = f.q.Batch
		}
		if p := f.View.Programs[registry.FamilyOf(q.Origin, f.scope.cell(q, proto.DefaultStep))]; p.Usable() {
			for _, piece := range p.Domains {
				along(proto.Domain{SeqLen: piece.SeqLen, Batch: piece.Batch})
			}
		}
	}
	for _, r := range f.scope.records {
		if r.Settled != nil && r.Settled.Boundary.Boundary > 0 || r.Recording() != nil {
			c := r.Cell
			along(proto.Domain{SeqLen: proto.Range{c.SeqLen, c.SeqLen}, Batch: proto.Range{c.Batch, c.Batch}})
		}
	}
	return merged(out)
}

// merged joins spans that touch.
func merged(spans [][2]int) [][2]int {
	slices.SortFunc(spans, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	var out [][2]int
	for _, s := range spans {
		if n := len(out); n > 0 && s[0] <= out[n-1][1]+1 {
			out[n-1][1] = max(out[n-1][1], s[1])
			continue
		}
		out = append(out, s)
	}
	return out
}
