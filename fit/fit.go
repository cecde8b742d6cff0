package fit

import (
	"fmt"
	"math"
	"slices"
)

// Fit returns one model for each target that the points hold, in the order
// allocated, reserved, process. The points must be of one group and one origin,
// of uncapped runs that passed; repeats of a run are welcome and their order
// never matters.
//
// The least that it can work with is two different combinations of length and
// batch when the weights were measured, three otherwise; with fewer it returns
// ErrTooFewPoints if that holds for every target, and a note if for some.
// ErrBadPoint is returned for points that contradict themselves.
func Fit(points []Point, opts Options) ([]Model, error) {
	confidence, err := opts.confidence()
	if err != nil {
		return nil, err
	}
	for _, p := range points {
		if err := p.validate(); err != nil {
			return nil, err
		}
		if p.Chunk != points[0].Chunk {
			return nil, fmt.Errorf("%w: chunk sizes %d and %d are of two groups", ErrBadPoint, points[0].Chunk, p.Chunk)
		}
	}
	g := newGroup(sorted(points), confidence)
	g.narrow()
	var models []Model
	for _, t := range []Target{Allocated, Reserved, Process} {
		if m, ok := g.build(g.recipe(t, models), models); ok {
			models = append(models, m)
		}
	}
	if len(models) == 0 {
		return nil, g.tooFew()
	}
	for i := range models {
		models[i].Notes = append(models[i].Notes, g.notes...)
	}
	return models, nil
}

// group is one call's points and what is known of all of them.
type group struct {
	points     []Point // sorted, in the domain
	left       []Point // outside the domain that the fit kept to
	confidence float64
	weights    int64 // 0: not known, or known to be wrong
	context    []int64
	notes      []string // for every model
}

func newGroup(points []Point, confidence float64) *group {
	g := &group{points: points, confidence: confidence}
	weights := known(points, func(p Point) int64 { return p.Weights })
	g.context = known(points, func(p Point) int64 { return p.Context })
	if len(weights) == 0 {
		g.note("weights were not measured: the term is the fitted constant and holds every other fixed part as well")
		return g
	}
	g.weights = weights[len(weights)/2]
	if weights[0] != weights[len(weights)-1] {
		g.note("weights differ between points (%d to %d bytes): are they of one group?", weights[0], weights[len(weights)-1])
	}
	g.checkWeights()
	return g
}

func (g *group) note(format string, args ...any) {
	g.notes = append(g.notes, fmt.Sprintf(format, args...))
}

// known returns the values that are known, sorted.
func known(points []Point, value func(Point) int64) []int64 {
	var out []int64
	for _, p := range points {
		if v := value(p); v > 0 {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}

// surely is the confidence at which a claim of the caller is called wrong.
const surely = 0.999

// checkWeights compares the claimed weights with the peaks: all of them must be
// in every peak, and in the constant of the smallest measured target. Where they
// are not, the claim is dropped: a fit forced through it bends every other term.
func (g *group) checkWeights() {
	trial := &group{points: g.points, confidence: surely}
	asked := false
	for _, t := range []Target{Allocated, Reserved, Process} {
		c, obs := trial.component(direct(t, "weights"))
		for _, o := range obs {
			if o.y+o.round < float64(g.weights) {
				g.dropWeights("L%d B%d peaked at %s %s", o.seqLen, o.batch, inUnits(o.y), t)
				return
			}
		}
		if len(c.Sets) == 0 || asked {
			continue
		}
		asked = true
		constant := c.terms([]string{"weights"}, (1+surely)/2)
		if len(constant) == 1 && constant[0].Hi < float64(g.weights) {
			g.dropWeights("the %s peaks have a constant of %s (%s to %s)", t, inUnits(constant[0].Value), inUnits(constant[0].Lo), inUnits(constant[0].Hi))
			return
		}
	}
}

func (g *group) dropWeights(format string, args ...any) {
	g.note("weights conflict: %s are claimed, but %s; the claim is not used, and the term is the fitted constant",
		inUnits(float64(g.weights)), fmt.Sprintf(format, args...))
	g.weights = 0
}

// inUnits is a number of bytes for people.
func inUnits(bytes float64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%.2f MiB", bytes/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", bytes/(1<<30))
}

// tooFew says what would be needed.
func (g *group) tooFew() error {
	best := 0
	for _, t := range []Target{Allocated, Reserved, Process} {
		best = max(best, len(gather(g.points, direct(t, "").read)))
	}
	return fmt.Errorf("%w: %d combination(s) of seq_len and batch have a measured peak; a fit needs at least 2 different ones with weights_bytes known, else 3 (4 or more lengths and 2 batches make intervals useful)",
		ErrTooFewPoints, best)
}

// component fits one recipe on its own.
func (g *group) component(r recipe) (Component, []observation) {
	obs := gather(g.points, r.read)
	fitted := obs
	if z := r.zero(g); z.scale > 0 && len(obs) > 0 {
		fitted = append([]observation{z}, obs...)
	}
	c := Component{Fixed: r.fixed}
	if len(obs) >= r.least {
		fewest := 1
		if len(r.fixed) > 0 || r.on != "" {
			fewest = 0
		}
		c.Sets = plausible(fitted, r.names, fewest, g.confidence)
		c.Noise = append(slices.Clone(r.noise), repeatNoise(g.points, r.read)...)
	}
	return c, obs
}

// build makes the model of a recipe's target on top of the model below it.
func (g *group) build(r recipe, below []Model) (Model, bool) {
	c, obs := g.component(r)
	if len(c.Sets) == 0 {
		if len(obs) > 0 {
			g.note("%s: not fitted, measured at %d combination(s) of seq_len and batch only", r.target, len(obs))
		}
		return Model{}, false
	}
	m := Model{Target: r.target, Confidence: g.confidence, Notes: r.notes}
	if r.on != "" {
		base := below[slices.IndexFunc(below, func(m Model) bool { return m.Target == r.on })]
		m.Components = append(m.Components, base.Components...)
		m.Terms = append(m.Terms, base.Terms...)
	}
	m.Components = append(m.Components, c)
	for _, t := range c.terms(r.names, (1+g.confidence)/2) {
		m.Terms = addTerm(m.Terms, t)
	}
	g.assess(&m)
	return m, true
}

// addTerm adds a term to a sum: to the term of its name if there is one.
func addTerm(terms []Term, t Term) []Term {
	i := slices.IndexFunc(terms, func(o Term) bool { return o.Name == t.Name })
	if i < 0 {
		return append(terms, finish(t))
	}
	o := terms[i]
	sum := Term{Name: t.Name, Value: o.Value + t.Value}
	sum.Lo = max(0, sum.Value-math.Hypot(o.Value-o.Lo, t.Value-t.Lo))
	sum.Hi = sum.Value + math.Hypot(o.Hi-o.Value, t.Hi-t.Value)
	terms = slices.Clone(terms)
	terms[i] = finish(sum)
	return terms
}

// finish gives a term its unit and rounds it: constants to whole bytes, the
// others to a millionth, so that lo <= value <= hi still holds.
func finish(t Term) Term {
	grain := 1.0
	switch t.Name {
	case "BL":
		t.Unit, grain = "bytes/(batch*seq_len)", 1e6
	case "BL2":
		t.Unit, grain = "bytes/(batch*seq_len^2)", 1e6
	case "BL3":
		t.Unit, grain = "bytes/(batch*seq_len^3)", 1e6
	case "CL":
		t.Unit, grain = "bytes/seq_len", 1e6
	case "CL2":
		t.Unit, grain = "bytes/seq_len^2", 1e6
	default:
		t.Unit = "bytes"
	}
	t.Value = math.Round(t.Value*grain) / grain
	t.Lo, t.Hi = math.Floor(t.Lo*grain)/grain, math.Ceil(t.Hi*grain)/grain
	return t
}
