package proto

import "fmt"

// QuotaKind says which limit a quota is. The three are never mixed: a boundary
// of one kind says nothing about another without the measured overhead.
type QuotaKind string

const (
	// QuotaAllocator is PyTorch's per-process fraction: reserved bytes only.
	QuotaAllocator QuotaKind = "allocator"
	// QuotaProcess is the MPS pinned device memory limit: the whole process.
	QuotaProcess QuotaKind = "process"
	// QuotaDevice is what a ballast process leaves free on the card.
	QuotaDevice QuotaKind = "device"
)

// QuotaKinds lists the kinds in the order in which help texts show them.
func QuotaKinds() []QuotaKind { return []QuotaKind{QuotaAllocator, QuotaProcess, QuotaDevice} }

// ParseQuotaKind reads a kind; anything else is an error that lists the three.
func ParseQuotaKind(s string) (QuotaKind, error) {
	for _, k := range QuotaKinds() {
		if string(k) == s {
			return k, nil
		}
	}
	return "", fmt.Errorf("quota kind %.80q is not one of allocator, process, device", s)
}

// Origin says how a number came to be.
type Origin string

const (
	OriginMeasured  Origin = "measured"
	OriginSimulated Origin = "simulated"
	OriginImported  Origin = "imported"
)

// ParseOrigin reads an origin; anything else is an error that lists the three.
func ParseOrigin(s string) (Origin, error) {
	switch o := Origin(s); o {
	case OriginMeasured, OriginSimulated, OriginImported:
		return o, nil
	}
	return "", fmt.Errorf("origin %.80q is not one of measured, simulated, imported", s)
}

// Strategy says how a cell's boundary is looked for.
type Strategy string

const (
	// StrategyPredict replays a recording, the cell's own or those of cells like
	// it, through the allocator's model, and spends probes only to certify what
	// that says.
	StrategyPredict Strategy = "predict"
	// StrategyBisect halves the bracket with real probes only. It sees one
	// edge and knows nothing of fail bands.
	StrategyBisect Strategy = "bisect"
)

// Certify says which predictions are probed for real.
type Certify string

const (
	// CertifyEdges probes a pass at the boundary and a fail one step below.
	CertifyEdges Certify = "edges"
	// CertifyAll also probes both edges of every fail band.
	CertifyAll Certify = "all"
	// CertifySample does as CertifyEdges for a seeded share of the cells.
	CertifySample Certify = "sample"
	// CertifyNone probes nothing; results are predictions and marked so.
	CertifyNone Certify = "none"
)

// Search is how a sweep looks for boundaries. It is no part of a cell's id.
type Search struct {
	Strategy Strategy `json:"strategy"`
	Certify  Certify  `json:"certify"`
	// SamplePercent is the share for CertifySample, 1 to 100.
	SamplePercent int `json:"sample_percent,omitempty"`
	// Min and Max bound the quotas that probes may use. Zero means: no lower
	// bound of its own, and the card's total memory.
	Min Bytes `json:"min_bytes,omitempty"`
	Max Bytes `json:"max_bytes,omitempty"`
}
