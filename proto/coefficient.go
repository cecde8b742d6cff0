package proto

import "encoding/json"

// Group is what a set of coefficients holds for: everything of a cell but its
// sequence length and batch, with the stack that it was measured on. Numbers of
// different groups or origins are never put into one fit.
type Group struct {
	Workload  Workload          `json:"workload"`
	GPU       string            `json:"gpu"`
	Driver    string            `json:"driver"`
	CUDA      string            `json:"cuda,omitempty"`
	Torch     string            `json:"torch,omitempty"`
	ChunkSize int               `json:"chunk_size"`
	Env       map[string]string `json:"env"`
}

// Term is one additive part of a target, in bytes: Value x the term's variable.
// Names are weights, context, modules, workspaces, slack (variable 1), BL, BL2
// and BL3 (variables batch x seq_len, x seq_len squared, x seq_len cubed), and
// where chunking is on CL and CL2 (seq_len and its square, without the batch:
// what one chunk of rows holds, however many there are).
type Term struct {
	Name string `json:"name"`
	// Value is in Unit, which is bytes, or bytes by the term's variable, as in
	// bytes/(batch*seq_len^2).
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Lo and Hi are the ends of Value's interval, in Unit.
	Lo float64 `json:"lo"`
	Hi float64 `json:"hi"`
}

// Range is an inclusive range of an axis.
type Range [2]int

// Domain is where coefficients were fitted; outside it they extrapolate.
type Domain struct {
	SeqLen Range `json:"seq_len"`
	Batch  Range `json:"batch"`
}

// Coefficients are the fitted terms of one target of one group.
type Coefficients struct {
	Group     Group     `json:"group"`
	QuotaKind QuotaKind `json:"quota_kind"`
	Origin    Origin    `json:"origin"`
	// Target is the peak that the terms add up to: allocated, reserved or process.
	Target string `json:"target"`
	Terms  []Term `json:"terms"`
	// ResidualMaxRel is the largest |fitted - measured| / measured of the points.
	ResidualMaxRel float64 `json:"residual_max_rel"`
	Domain         Domain  `json:"domain"`
	// Points is how many recordings went in, Notes what a reader should know.
	Points int      `json:"points"`
	Notes  []string `json:"notes,omitempty"`
	// Model is the fit's own document, with what Predict needs beyond the
	// terms (covariance, slack bounds); opaque here.
	Model json.RawMessage `json:"model,omitempty"`
}
