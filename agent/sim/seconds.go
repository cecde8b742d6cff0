package sim

import "github.com/oomfleet/oomfleet/agent/runner"

// modelSeconds is the time that a run takes the card. It is a model, fitted by
// weighted least squares (weights 1/t²) to the 42 uncapped runs with default
// settings in testdata/esmfold_h200_runs.jsonl; its median error is 5 %, that of
// the first runs after a pause up to 50 % (they were slower):
//
//	t = 0.93 + 4.40e-6·B·L² + 13.8e-9·B·L³ + 0.028·ceil(B·L/64) [chunk 64 only]
//
// Each flush and retry costs 6 ms more (runs with 49 to 192 retries). A run
// that was refused takes the share of its events that it reached. One that is
// recorded takes historyShare more of all that.
func modelSeconds(req runner.Request, reached float64, retries int) float64 {
	b, l := float64(req.Batch), float64(req.SeqLen)
	t := 4.40e-6*b*l*l + 13.8e-9*b*l*l*l
	if req.ChunkSize > 0 {
		t += 0.028 * float64((req.Batch*req.SeqLen+63)/64)
	}
	t = 0.93 + t*reached + 0.006*float64(retries)
	if req.Record {
		t *= 1 + historyShare
	}
	return t
}

// historyShare is what the allocator's history adds to a run, for recordings and
// for probes whose trace may be kept. On an H200 it was 0 to 10 % (docs/measured);
// this is the middle.
const historyShare = 0.05
