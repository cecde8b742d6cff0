package fit

import (
	"errors"
	"fmt"
)

// ErrNothingToCompare is returned when a side of a comparison has no points.
var ErrNothingToCompare = errors.New("nothing to compare")

// DefaultMargin is the change that counts as none where the caller names no
// other: 16 MiB, the width within which the outcome of a process quota is not
// determined either.
const DefaultMargin = 16 << 20

// CompareOptions are the choices of a comparison; the zero value is the default.
type CompareOptions struct {
	// Confidence is that of the whole comparison, between 0.5 and 0.999; 0
	// means 0.95.
	Confidence float64
	// Margin is the largest change, in bytes, that counts as none; 0 means
	// DefaultMargin.
	Margin int64
}

// Side is what is known of one stack: uncapped runs that passed, repeats
// welcome, and the boundaries that were found. All of one group and origin, the
// boundaries of one kind of quota.
type Side struct {
	Points     []Point
	Boundaries []CellBoundary
}

// CellBoundary is one finding of the survive quota of a length and batch.
type CellBoundary struct {
	SeqLen, Batch int
	// Boundary is the quota in bytes, Step the grid that it was found on.
	Boundary, Step int64
	// Limits is the peak that the quota's kind limits: Reserved for allocator
	// quotas, Process for process and device quotas.
	Limits Target
}

// Verdict is what a comparison says of a term, of a cell and of the whole.
type Verdict string

// The closed set of verdicts.
const (
	Same     Verdict = "same"      // surely within the margin
	Changed  Verdict = "changed"   // surely not nothing, and by more than the margin
	NeedMore Verdict = "need more" // the runs do not say yet
)

// Change is how much something moved from before to after, in bytes.
type Change struct {
	Verdict Verdict `json:"verdict"`
	Diff    int64   `json:"diff_bytes"`
	// Lo and Hi are the interval of this change alone at the comparison's
	// confidence; -4 EiB and 4 EiB where nothing tells how much runs differ.
	Lo int64 `json:"lo_bytes"`
	Hi int64 `json:"hi_bytes"`
	// P is the probability of such a difference by run-to-run noise alone,
	// corrected for all comparisons made (Holm).
	P float64 `json:"p"`
}

// TermChange is the change of one term over all cells.
type TermChange struct {
	// Term is a name as in Term.Name, or activations where too few cells tell
	// workspaces, BL, BL2 and BL3 apart.
	Term string `json:"term"`
	Change
	// SeqLen and Batch are the cell at which Diff is that many bytes, for terms
	// that grow (BL, BL2, BL3, activations); 0 for the others.
	SeqLen int `json:"seq_len,omitempty"`
	Batch  int `json:"batch,omitempty"`
}

// CellChange is the change of one measure of one cell that both sides have.
type CellChange struct {
	SeqLen int `json:"seq_len"`
	Batch  int `json:"batch"`
	// Measure is allocated, reserved, process or boundary.
	Measure string `json:"measure"`
	// Before and After are the means in bytes, Runs how many each rests on.
	Before int64  `json:"before_bytes"`
	After  int64  `json:"after_bytes"`
	Runs   [2]int `json:"runs"`
	Change
}

// Need is what would settle a verdict of need more: so many further runs of one
// cell on each side.
type Need struct {
	SeqLen int `json:"seq_len"`
	Batch  int `json:"batch"`
	// Repeats is how many uncapped runs more, on each side.
	Repeats int `json:"repeats"`
}

// Unpaired is a cell that one side lacks; it is left out of every verdict.
type Unpaired struct {
	SeqLen int `json:"seq_len"`
	Batch  int `json:"batch"`
	// Only is the side that has it: before or after.
	Only string `json:"only"`
}

// Comparison is the verdict on two sides and all that it rests on.
type Comparison struct {
	// Verdict is changed if a term or a cell changed, same if all of them are
	// the same, else need more.
	Verdict Verdict `json:"verdict"`
	// Moved names the terms that changed, as in "context +40 MiB"; empty unless
	// the verdict is changed.
	Moved    string       `json:"moved,omitempty"`
	Terms    []TermChange `json:"terms"`
	Cells    []CellChange `json:"cells"`
	NeedMore []Need       `json:"need_more,omitempty"`
	Unpaired []Unpaired   `json:"unpaired,omitempty"`
	// Noise is the run-to-run standard deviation in bytes by measure.
	Noise      map[string]int64 `json:"noise_bytes"`
	Margin     int64            `json:"margin_bytes"`
	Confidence float64          `json:"confidence"`
	// Notes are what a reader should know before trusting the verdict.
	Notes []string `json:"notes,omitempty"`
}

// String is the verdict in a line, as in "changed: context +40 MiB".
func (c Comparison) String() string {
	switch {
	case c.Verdict == Changed:
		return string(c.Verdict) + ": " + c.Moved
	case c.Verdict == NeedMore && len(c.NeedMore) > 0:
		return fmt.Sprintf("%s: %d cells to repeat", c.Verdict, len(c.NeedMore))
	}
	return string(c.Verdict)
}

// Compare says what moved from before to after. Cells are compared in pairs of
// the same length and batch, so that a program's shape cancels out and only
// run-to-run noise is left; that noise is estimated from repeats, or, where there
// are too few, from how far the differences scatter around a smooth one.
//
// A change is the same if its interval lies within the margin (the equivalence
// test of Schuirmann 1987; all together at the same level, Berger 1982), changed
// if its difference is larger than the margin and no noise once all comparisons
// are corrected for (Holm 1979), else more runs are needed.
//
// The order of points never matters. ErrBadPoint is returned for input that
// contradicts itself, ErrNothingToCompare if a side has nothing.
func Compare(before, after Side, opts CompareOptions) (Comparison, error) {
	confidence, err := Options{Confidence: opts.Confidence}.confidence()
	if err != nil {
		return Comparison{}, err
	}
	if opts.Margin < 0 {
		return Comparison{}, fmt.Errorf("%w: a margin of %d bytes", ErrBadPoint, opts.Margin)
	}
	for _, s := range []Side{before, after} {
		if err := s.validate(); err != nil {
			return Comparison{}, err
		}
	}
	c := comparer{before: before, after: after, confidence: confidence, margin: float64(opts.Margin)}
	if opts.Margin == 0 {
		c.margin = DefaultMargin
	}
	c.out = Comparison{Margin: int64(c.margin), Confidence: confidence, Noise: map[string]int64{}}
	c.before.Points, c.after.Points = sorted(before.Points), sorted(after.Points)
	c.terms()
	c.cells()
	c.judge()
	return c.out, nil
}

func (s Side) validate() error {
	if len(s.Points)+len(s.Boundaries) == 0 {
		return fmt.Errorf("%w: a side has neither points nor boundaries", ErrNothingToCompare)
	}
	for _, p := range s.Points {
		if err := p.validate(); err != nil {
			return err
		}
	}
	for _, b := range s.Boundaries {
		if b.SeqLen < 1 || b.Batch < 1 || b.Boundary < 1 || b.Step < 1 || (b.Limits != Reserved && b.Limits != Process) {
			return fmt.Errorf("%w: boundary %+v", ErrBadPoint, b)
		}
		if b.Limits != s.Boundaries[0].Limits {
			return fmt.Errorf("%w: boundaries of two kinds of quota", ErrBadPoint)
		}
	}
	return nil
}
