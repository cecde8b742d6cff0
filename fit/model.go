package fit

import (
	"math"
	"slices"
)

// Target is the peak that a model predicts.
type Target string

// The three ways in which a run's peak is seen, each holding the one before.
const (
	Allocated Target = "allocated" // what the allocator handed out
	Reserved  Target = "reserved"  // what the allocator took from the driver
	Process   Target = "process"   // what the process held on the card
)

// Term is one additive part of a target: Value times its variable, which is that
// of Variable. Where the variable is 1, Value is a whole number of bytes. A term
// with value 0 was left out of the fit, and Hi says how large it may yet be.
type Term struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Lo    float64 `json:"lo"`
	Hi    float64 `json:"hi"`
}

// Variable is what a term's value is multiplied with: batch x seq_len, x seq_len
// squared and x seq_len cubed for BL, BL2 and BL3; seq_len and its square, whatever
// the batch, for CL and CL2, which a chunk of rows holds; 1 for all others.
func Variable(name string, seqLen, batch int) float64 {
	l, b := float64(seqLen), float64(batch)
	switch name {
	case "BL":
		return b * l
	case "BL2":
		return b * l * l
	case "BL3":
		return b * l * l * l
	case "CL":
		return l
	case "CL2":
		return l * l
	}
	return 1
}

// Domain is the inclusive range of each axis in which a model was fitted.
type Domain struct {
	SeqLen [2]int `json:"seq_len"`
	Batch  [2]int `json:"batch"`
}

// Contains reports whether a prediction there is no extrapolation.
func (d Domain) Contains(seqLen, batch int) bool {
	return seqLen >= d.SeqLen[0] && seqLen <= d.SeqLen[1] && batch >= d.Batch[0] && batch <= d.Batch[1]
}

// Worst is the point that the terms explain worst.
type Worst struct {
	SeqLen    int   `json:"seq_len"`
	Batch     int   `json:"batch"`
	Measured  int64 `json:"measured_bytes"`
	Predicted int64 `json:"predicted_bytes"`
	// Rel is (predicted - measured) / measured.
	Rel float64 `json:"rel"`
}

// Component is a part of a target that was fitted on its own: what is measured
// and taken as it is, and the sets of terms that the data allow, best first.
type Component struct {
	Fixed []Term `json:"fixed,omitempty"`
	Sets  []Set  `json:"sets"`
	// Noise is what one run differs by from the next beyond what the sets'
	// residuals show of it.
	Noise []Wobble `json:"noise,omitempty"`
}

// Model is the fitted sum of one target. It is plain data: it survives JSON, and
// Predict gives the same answers after that.
type Model struct {
	Target         Target  `json:"target"`
	Terms          []Term  `json:"terms"`
	ResidualMaxRel float64 `json:"residual_max_rel"`
	Worst          Worst   `json:"worst"`
	Domain         Domain  `json:"domain"`
	// Points is how many different combinations of length and batch went in.
	Points     int     `json:"points"`
	Confidence float64 `json:"confidence"`
	// RunToRun is the relative half width by which repeats of a run differ (0
	// where none were made), as told apart from the residual: model error.
	// OutsideRel is how far runs that were left out of the domain lie off.
	RunToRun   float64     `json:"run_to_run"`
	OutsideRel float64     `json:"outside_rel,omitempty"`
	Components []Component `json:"components,omitempty"`
	// Notes are what a reader should know before trusting the numbers.
	Notes []string `json:"notes,omitempty"`
}

// Prediction is a predicted peak in bytes and the interval in which a new run
// lies at the model's confidence.
type Prediction struct {
	Value int64 `json:"value"`
	Lo    int64 `json:"lo"`
	Hi    int64 `json:"hi"`
	// InDomain is false when the prediction extrapolates: the terms may not
	// hold there, and the interval knows only of what was seen in the domain.
	InDomain bool `json:"in_domain"`
}

// Predict adds up the terms for a length and batch. A model that was stripped to
// its terms (Components empty) still predicts; its interval is then the sum
// of the terms' own, which is wider because it cannot know how they move together.
func (m Model) Predict(seqLen, batch int) Prediction {
	value, lo, hi := 0.0, 0.0, 0.0
	for _, t := range m.Terms {
		x := Variable(t.Name, seqLen, batch)
		value += t.Value * x
		lo += t.Lo * x
		hi += t.Hi * x
	}
	down, up := max(value-lo, m.ResidualMaxRel*value), max(hi-value, m.ResidualMaxRel*value)
	if m.complete() {
		down, up = m.halves(seqLen, batch, (1+m.Confidence)/2)
	}
	inside := m.Domain.Contains(seqLen, batch)
	if !inside {
		down, up = max(down, m.OutsideRel*value), max(up, m.OutsideRel*value)
	}
	return Prediction{
		Value:    whole(math.Round(value)),
		Lo:       whole(math.Floor(max(0, value-down))),
		Hi:       whole(math.Ceil(value + up)),
		InDomain: inside,
	}
}

// value adds up the terms alone.
func (m Model) value(seqLen, batch int) int64 {
	v := 0.0
	for _, t := range m.Terms {
		v += t.Value * Variable(t.Name, seqLen, batch)
	}
	return whole(math.Round(v))
}

// complete reports whether the model knows its errors, beyond its terms' own
// intervals; a document of an earlier build, or one cut short, does not.
func (m Model) complete() bool {
	for _, c := range m.Components {
		if len(c.Sets) == 0 || slices.ContainsFunc(c.Sets, func(s Set) bool { return s.DOF == 0 }) {
			return false
		}
	}
	return len(m.Components) > 0
}

// whole ends at Saturated: an extrapolation far beyond any card must not wrap
// around, and what is no number is not a small one.
func whole(v float64) int64 {
	if math.IsNaN(v) {
		return Saturated
	}
	return int64(max(min(v, Saturated), -Saturated))
}

// Saturated is where predictions end, 4 EiB: such a one says nothing.
const Saturated = 1 << 62

// halves returns how far the interval reaches below and above the value; each
// end is passed with a probability of 1 - level. The components' errors are of
// different making (program, allocator, driver), so they add as squares.
func (m Model) halves(seqLen, batch int, level float64) (down, up float64) {
	peak := 0.0
	for _, c := range m.Components {
		for _, t := range c.Fixed {
			peak += t.Value
		}
		peak += c.Sets[0].value(seqLen, batch)
		below, above := c.halves(observation{seqLen: seqLen, batch: batch, scale: peak}, level)
		down, up = math.Hypot(down, below), math.Hypot(up, above)
	}
	return down, up
}

// halves is the hull of all plausible sets' intervals around the best set's sum,
// with the noise of a single run. It ends where the component would turn
// negative: no peak is below the one that it holds. Of at, y is not used.
func (c Component) halves(at observation, level float64) (down, up float64) {
	best := c.Sets[0].value(at.seqLen, at.batch)
	for _, s := range c.Sets {
		v, half := s.at(at.seqLen, at.batch, at.scale, level)
		down, up = max(down, best-v+half), max(up, v+half-best)
	}
	down = min(down, best)
	for _, w := range c.Noise {
		half := w.half(at.scale, level)
		down, up = math.Hypot(down, half), math.Hypot(up, half)
	}
	return down, up
}

// terms lists the component's terms, fixed ones first, each with the hull of its
// intervals over all plausible sets; absent from a set means 0 there.
func (c Component) terms(names []string, level float64) []Term {
	out := append([]Term(nil), c.Fixed...)
	for _, name := range names {
		best, _, _ := c.Sets[0].term(name, level)
		t := Term{Name: name, Value: best, Lo: best, Hi: best}
		seen := false
		for _, s := range c.Sets {
			v, half, ok := s.term(name, level)
			seen = seen || ok
			t.Lo, t.Hi = min(t.Lo, v-half), max(t.Hi, v+half)
		}
		t.Lo = max(0, t.Lo)
		if seen {
			out = append(out, t)
		}
	}
	return out
}
