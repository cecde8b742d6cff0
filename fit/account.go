package fit

import "math"

// Part is what one term comes to in a run's peak.
type Part struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Account is a measured peak taken apart: the parts and the remainder add up to
// it to the byte. The remainder is what the terms do not explain, of either sign.
type Account struct {
	SeqLen    int    `json:"seq_len"`
	Batch     int    `json:"batch"`
	Measured  int64  `json:"measured_bytes"`
	Parts     []Part `json:"parts"`
	Remainder int64  `json:"remainder_bytes"`
}

// Account takes the point's peak apart; ok is false if it was not measured.
func (m Model) Account(p Point) (a Account, ok bool) {
	a = Account{SeqLen: p.SeqLen, Batch: p.Batch, Measured: p.peak(m.Target), Remainder: p.peak(m.Target)}
	if a.Measured == 0 {
		return a, false
	}
	for _, t := range m.Terms {
		part := Part{Name: t.Name, Bytes: whole(math.Round(t.Value * Variable(t.Name, p.SeqLen, p.Batch)))}
		a.Parts = append(a.Parts, part)
		a.Remainder -= part.Bytes
	}
	return a, true
}
