package quota

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
)

// ModelOf is the fit's own document if coefficients have one, which knows tighter
// intervals, else a model of the terms alone. Either can be asked. The error is
// the end of a sentence that begins with the coefficients ("have no terms").
func ModelOf(c proto.Coefficients) (fit.Model, error) {
	m := fit.Model{Target: fit.Target(c.Target), ResidualMaxRel: c.ResidualMaxRel, Domain: fit.Domain{SeqLen: c.Domain.SeqLen, Batch: c.Domain.Batch}}
	for _, t := range c.Terms {
		m.Terms = append(m.Terms, fit.Term(t))
	}
	if len(m.Terms) == 0 {
		return m, errors.New("have no terms")
	}
	if len(c.Model) > 0 && string(c.Model) != "null" {
		var own fit.Model
		if err := json.Unmarshal(c.Model, &own); err != nil {
			return m, fmt.Errorf("have a model that cannot be read (%.300w): remove it to predict from the terms", err)
		}
		if own.Target != m.Target || own.Domain != m.Domain || !slices.Equal(own.Terms, m.Terms) {
			return m, errors.New("have terms, a target or a domain that disagree with their model, as after an edit by hand: remove the model to predict from the terms")
		}
		m = own
	}
	if err := m.Validate(); err != nil {
		return m, fmt.Errorf("cannot be asked: %w", err)
	}
	return m, nil
}
