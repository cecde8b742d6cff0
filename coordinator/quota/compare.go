package quota

import (
	"cmp"

	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
)

// SideBySide is two answers side by side. It judges nothing: whether a change
// is more than noise is for a comparison of sweeps.
type SideBySide struct {
	A Recommendation `json:"a"`
	B Recommendation `json:"b"`
	// Difference is B's quota less A's, Survive and Outside likewise.
	Difference proto.Bytes `json:"difference_bytes"`
	Survive    proto.Bytes `json:"survive_difference_bytes"`
	Outside    proto.Bytes `json:"outside_allocator_difference_bytes"`
	// Terms are the fitted terms of the two groups, where both have them.
	Terms []TermPair `json:"terms"`
	Stamp
}

// TermPair is one term of two fits at the question's length and batch.
type TermPair struct {
	Target string      `json:"target"`
	Name   string      `json:"name"`
	A      proto.Bytes `json:"a_bytes"`
	B      proto.Bytes `json:"b_bytes"`
	// Apart is whether the two intervals have nothing in common.
	Apart bool `json:"apart"`
}

// Compare answers two questions side by side. They must be of one quota kind:
// quotas of two kinds cannot be subtracted, and of one origin, as origins never
// meet. Every error is a *Refusal.
func (a Adviser) Compare(one, other Question) (SideBySide, error) {
	if one.Kind != other.Kind {
		return SideBySide{}, refusef(BadQuestion, "a %s quota and a %s quota are no two of a kind: ask both with the same quota_kind", one.Kind, other.Kind)
	}
	if one.Origin != other.Origin {
		return SideBySide{}, refusef(BadQuestion, "what is %s and what is %s are never subtracted from each other: ask both with the same origin, or ask twice", one.Origin, other.Origin)
	}
	out := SideBySide{Stamp: a.At}
	var err error
	if out.A, err = a.Recommend(one); err != nil {
		return SideBySide{}, err
	}
	if out.B, err = a.Recommend(other); err != nil {
		return SideBySide{}, err
	}
	out.Difference, out.Survive = out.B.Quota-out.A.Quota, out.B.Survive-out.A.Survive
	if out.A.Outside > 0 && out.B.Outside > 0 {
		out.Outside = out.B.Outside - out.A.Outside
	}
	out.Terms = []TermPair{}
	sides := [2]map[[2]string]sized{a.terms(one), a.terms(other)}
	for _, target := range []string{"allocated", "reserved", "process"} {
		for _, name := range []string{"weights", "context", "modules", "workspaces", "slack", "BL", "BL2", "BL3", "CL", "CL2"} {
			x, inA := sides[0][[2]string{target, name}]
			y, inB := sides[1][[2]string{target, name}]
			if inA && inB {
				out.Terms = append(out.Terms, TermPair{Target: target, Name: name, A: x.value, B: y.value, Apart: x.hi < y.lo || y.hi < x.lo})
			}
		}
	}
	return out, nil
}

// sized is a term in bytes at one length and batch.
type sized struct{ value, lo, hi proto.Bytes }

// terms are those of a question's newest coefficients; empty for none.
func (a Adviser) terms(q Question) map[[2]string]sized {
	s, err := a.scopeOf(q)
	if err != nil || len(s.sets) == 0 {
		return nil
	}
	newest := s.sets[0]
	for _, set := range s.sets {
		if cmp.Compare(set.Index, newest.Index) > 0 {
			newest = set
		}
	}
	out := map[[2]string]sized{}
	bytes := func(v float64) proto.Bytes { return proto.Bytes(min(v, fit.Saturated)) }
	for _, c := range newest.Models {
		if _, err := ModelOf(c); err != nil {
			continue
		}
		for _, t := range c.Terms {
			x := fit.Variable(t.Name, q.SeqLen, q.Batch)
			if t.Value != 0 || t.Hi != 0 {
				out[[2]string{c.Target, t.Name}] = sized{bytes(t.Value * x), bytes(t.Lo * x), bytes(t.Hi * x)}
			}
		}
	}
	return out
}
