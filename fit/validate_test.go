package fit

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

// TestValidateTakesWhatFitMakes: every model of the data, also after JSON.
func TestValidateTakesWhatFitMakes(t *testing.T) {
	var points []Point
	for _, r := range readRuns(t) {
		if r.Weights == esmfold && r.Chunk == 0 && len(r.Env) == 0 {
			points = append(points, r.point())
		}
	}
	for name, points := range map[string][]Point{"runs": points, "article": articlePoints(t)} {
		models, err := Fit(points, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range models {
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			var again Model
			if err := errors.Join(json.Unmarshal(text, &again), m.Validate(), again.Validate()); err != nil {
				t.Errorf("%s, %s: %v", name, m.Target, err)
			}
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	good := func() Model {
		return Model{Target: Reserved, Confidence: 0.95, Domain: Domain{SeqLen: [2]int{1, 9}, Batch: [2]int{1, 2}},
			Terms: []Term{{Name: "weights", Value: 5, Lo: 4, Hi: 6}},
			Components: []Component{{Fixed: []Term{{Name: "context"}}, Noise: []Wobble{{Rel: 0.1, DOF: 2}},
				Sets: []Set{{Names: []string{"weights", "BL"}, Values: []float64{5, 0}, Cov: [][]float64{{1, -1}, {-1, 1}}, DOF: 3}}}}}
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		edit func(*Model)
		says string
	}{
		"target":          {func(m *Model) { m.Target = "cached" }, "not one of"},
		"no terms":        {func(m *Model) { m.Terms = nil }, "no terms"},
		"unknown term":    {func(m *Model) { m.Terms[0].Name = "ballast" }, `"ballast" is not known`},
		"term twice":      {func(m *Model) { m.Terms = append(m.Terms, m.Terms[0]) }, "twice"},
		"negative term":   {func(m *Model) { m.Terms[0].Value, m.Terms[0].Lo = -5, -6 }, "0 <= lo"},
		"infinite term":   {func(m *Model) { m.Terms[0].Hi = math.Inf(1) }, "0 <= lo"},
		"value above hi":  {func(m *Model) { m.Terms[0].Value = 7 }, "0 <= lo"},
		"empty domain":    {func(m *Model) { m.Domain.SeqLen = [2]int{9, 1} }, "lengths 9 to 1"},
		"huge domain":     {func(m *Model) { m.Domain.Batch[1] = math.MaxInt }, "batches"},
		"confidence":      {func(m *Model) { m.Confidence = 1.5 }, "confidence"},
		"error":           {func(m *Model) { m.ResidualMaxRel = math.NaN() }, "negative or no number"},
		"no sets":         {func(m *Model) { m.Components[0].Sets = nil }, "no sets"},
		"fewer values":    {func(m *Model) { m.Components[0].Sets[0].Values = []float64{1} }, "2 names, 1 values"},
		"short cov":       {func(m *Model) { m.Components[0].Sets[0].Cov = m.Components[0].Sets[0].Cov[:1] }, "1 rows"},
		"ragged cov":      {func(m *Model) { m.Components[0].Sets[0].Cov[1] = []float64{1} }, "row 2"},
		"negative var":    {func(m *Model) { m.Components[0].Sets[0].Cov[0][0] = -1 }, "variance of weights"},
		"set's term":      {func(m *Model) { m.Components[0].Sets[0].Names[1] = "L" }, `"L" is not known`},
		"set's freedom":   {func(m *Model) { m.Components[0].Sets[0].DOF = -1 }, "degrees of freedom"},
		"noise's freedom": {func(m *Model) { m.Components[0].Noise[0].DOF = 0 }, "noise"},
		"fixed term":      {func(m *Model) { m.Components[0].Fixed[0].Name = "" }, "not known"},
	} {
		m := good()
		c.edit(&m)
		if err := m.Validate(); !errors.Is(err, ErrBadModel) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCompareLeavesBoundariesAlone: room behind the caller's list stays the caller's.
func TestCompareLeavesBoundariesAlone(t *testing.T) {
	all := []CellBoundary{{SeqLen: 64, Batch: 1, Boundary: 4 * mib, Step: mib, Limits: Reserved}, {SeqLen: 1}}
	side := Side{Points: []Point{{SeqLen: 64, Batch: 1, Reserved: 3 * mib}}, Boundaries: all[:1]}
	if _, err := Compare(side, Side{Points: side.Points, Boundaries: []CellBoundary{all[0]}}, CompareOptions{}); err != nil {
		t.Fatal(err)
	}
	if all[1].SeqLen != 1 {
		t.Errorf("the caller's list was written to: %+v", all)
	}
}
