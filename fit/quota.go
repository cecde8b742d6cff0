package fit

import (
	"errors"
	"fmt"
	"math"
)

// ErrOutside is returned for a length or batch outside the domain of a model.
var ErrOutside = errors.New("outside what was measured")

// ErrBadRisk is returned for a risk that is no probability a fit can speak of.
var ErrBadRisk = errors.New("bad risk")

// ErrNoRisk is returned by a model that was stripped to its terms and cannot
// tell how likely a larger peak is.
var ErrNoRisk = errors.New("risk is not known")

// Quota is a bound that a run's peak exceeds with at most the given risk.
type Quota struct {
	// Bytes is the bound, Expected the predicted peak below it.
	Bytes    int64 `json:"quota_bytes"`
	Expected int64 `json:"expected_bytes"`
	// Risk is the probability that one run's peak is larger.
	Risk float64 `json:"risk"`
	// InDomain is false when the bound extrapolates: the risk then holds only as
	// far as the terms do.
	InDomain bool `json:"in_domain"`
}

// QuotaFor returns the quota that a new run's peak exceeds with a probability of
// at most risk: the end of a one-sided prediction interval. The model's target
// says which kind of quota that is: Reserved for allocator quotas, Process for
// process and device quotas. A run may well survive with less, as the allocator
// can flush what it holds; it is bound to pass with this.
//
// The answer is not rounded to a grid. ErrBadRisk is returned for a risk outside
// 0.0001 to 0.5, ErrBadPoint for a length or batch below 1, ErrNoRisk by a model
// of terms alone when asked for less risk than its intervals were made for.
// Outside the domain the answer comes together with ErrOutside, for callers
// that were asked to extrapolate.
func (m Model) QuotaFor(seqLen, batch int, risk float64) (Quota, error) {
	if !(risk >= 1e-4 && risk <= 0.5) {
		return Quota{}, fmt.Errorf("%w: %v is not between 0.0001 and 0.5", ErrBadRisk, risk)
	}
	if seqLen < 1 || batch < 1 {
		return Quota{}, fmt.Errorf("%w: seq_len %d and batch %d must be at least 1", ErrBadPoint, seqLen, batch)
	}
	p := m.Predict(seqLen, batch)
	q := Quota{Expected: p.Value, Bytes: p.Hi, Risk: risk, InDomain: p.InDomain}
	if m.complete() {
		_, up := m.halves(seqLen, batch, 1-risk)
		if !p.InDomain {
			up = max(up, m.OutsideRel*float64(p.Value))
		}
		q.Bytes = whole(math.Ceil(float64(p.Value) + up))
	} else if confidence, err := (Options{Confidence: m.Confidence}).confidence(); err != nil || risk < (1-confidence)/2 {
		return Quota{}, fmt.Errorf("%w: the terms alone do not tell how likely %v is; fit the runs again", ErrNoRisk, risk)
	}
	if !p.InDomain {
		return q, fmt.Errorf("%w: length %d at batch %d; lengths %d to %d and batches %d to %d were", ErrOutside,
			seqLen, batch, m.Domain.SeqLen[0], m.Domain.SeqLen[1], m.Domain.Batch[0], m.Domain.Batch[1])
	}
	return q, nil
}
