package fit

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrBadModel is returned for a model that nothing can be asked of.
var ErrBadModel = errors.New("the model cannot be used")

// maxAxis is a length or batch, and maxDOF a number of runs, that no fit comes
// near to.
const maxAxis, maxDOF = 1_000_000, 1_000_000

// termNames are the terms that a model may have; see Variable.
func termNames() []string {
	return []string{"weights", "context", "modules", "workspaces", "slack", "BL", "BL2", "BL3", "CL", "CL2"}
}

// Validate says what is wrong with a model that came from outside; nil for one
// that Predict and QuotaFor can answer from. The error satisfies ErrBadModel.
func (m Model) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrBadModel, fmt.Sprintf(format, args...))
	}
	if !slices.Contains([]Target{Allocated, Reserved, Process}, m.Target) {
		return bad("target %.80q is not one of allocated, reserved, process", m.Target)
	}
	for name, r := range map[string][2]int{"lengths": m.Domain.SeqLen, "batches": m.Domain.Batch} {
		if r[0] < 1 || r[1] < r[0] || r[1] > maxAxis {
			return bad("its domain has %s %d to %d, and they are within 1 to %d", name, r[0], r[1], maxAxis)
		}
	}
	if m.Confidence != 0 && !(m.Confidence >= 0.5 && m.Confidence <= 0.999) {
		return bad("confidence %v is not between 0.5 and 0.999", m.Confidence)
	}
	if !amounts(m.ResidualMaxRel, m.RunToRun, m.OutsideRel) {
		return bad("an error of it is negative or no number")
	}
	if len(m.Terms) == 0 {
		return bad("it has no terms")
	}
	if why := badTerms(m.Terms); why != "" {
		return bad("%s", why)
	}
	for i, c := range m.Components {
		if why := c.wrong(); why != "" {
			return bad("component %d: %s", i+1, why)
		}
	}
	return nil
}

// amounts reports whether all are finite and at least 0.
func amounts(values ...float64) bool {
	return !slices.ContainsFunc(values, func(v float64) bool { return !(v >= 0 && v <= math.MaxFloat64) })
}

func badTerms(terms []Term) string {
	seen := map[string]bool{}
	for _, t := range terms {
		switch {
		case !slices.Contains(termNames(), t.Name):
			return fmt.Sprintf("a term %.80q is not known", t.Name)
		case seen[t.Name]:
			return fmt.Sprintf("the term %s is there twice", t.Name)
		case !amounts(t.Lo, t.Value, t.Hi) || t.Lo > t.Value || t.Value > t.Hi:
			return fmt.Sprintf("the term %s is %v, within %v to %v, and it takes 0 <= lo <= value <= hi", t.Name, t.Value, t.Lo, t.Hi)
		}
		seen[t.Name] = true
	}
	return ""
}

// wrong says why a component cannot be added up; empty for nothing.
func (c Component) wrong() string {
	if why := badTerms(c.Fixed); why != "" {
		return why
	}
	if len(c.Sets) == 0 {
		return "it has no sets of terms"
	}
	for i, s := range c.Sets {
		if why := s.wrong(); why != "" {
			return fmt.Sprintf("set %d: %s", i+1, why)
		}
	}
	for _, w := range c.Noise {
		if !amounts(w.Rel, w.Bytes, w.Unseen) || w.DOF < 1 || w.DOF > maxDOF {
			return "its noise is negative, no number, or of no degree of freedom"
		}
	}
	return ""
}

func (s Set) wrong() string {
	if len(s.Values) != len(s.Names) || len(s.Cov) != len(s.Names) {
		return fmt.Sprintf("it has %d names, %d values and %d rows of covariance", len(s.Names), len(s.Values), len(s.Cov))
	}
	for i, name := range s.Names {
		switch {
		case !slices.Contains(termNames(), name):
			return fmt.Sprintf("a term %.80q is not known", name)
		case slices.Contains(s.Names[:i], name):
			return fmt.Sprintf("the term %s is there twice", name)
		case len(s.Cov[i]) != len(s.Names):
			return fmt.Sprintf("row %d of its covariance has %d columns, and there are %d names", i+1, len(s.Cov[i]), len(s.Names))
		case !amounts(s.Values[i], s.Cov[i][i]):
			return fmt.Sprintf("the value or variance of %s is negative or no number", name)
		case slices.ContainsFunc(s.Cov[i], func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }):
			return fmt.Sprintf("row %d of its covariance holds what is no number", i+1)
		}
	}
	if why := notCovariance(s.Names, s.Cov); why != "" {
		return why
	}
	if !amounts(s.Sigma, s.Floor) || s.DOF < 0 || s.DOF > maxDOF {
		return "its error or degrees of freedom are negative, or no number"
	}
	return ""
}
