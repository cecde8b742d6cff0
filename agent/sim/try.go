package sim

import (
	"fmt"

	"github.com/oomfleet/oomfleet/agent/runner"
	"github.com/oomfleet/oomfleet/allocator"
)

// Trial is what one simulated run comes to.
type Trial struct {
	Passed bool
	Meters runner.Meters
	// Seconds is how long it takes the card, by the model.
	Seconds float64
	// Events is its trace, when it was to be recorded.
	Events []allocator.Event
}

// Try makes a run as a simulated agent makes it, in this process and without its
// events: for tests that play many fleets. The same request (its ID included)
// gives the same trial. It fails where an agent would call the request
// unsupported or wrong; Config.Fault is left out.
func Try(cfg Config, req runner.Request) (Trial, error) {
	r := run{job: job{Config: cfg, Request: req}, id: runner.RunID{ID: req.ID}}
	w, rejected, err := r.prepare()
	if err != nil {
		return Trial{}, err
	}
	if rejected != nil {
		return Trial{}, fmt.Errorf("try run %s: %s", req.ID, rejected.message)
	}
	result, seen, err := r.replay(w)
	if err != nil {
		return Trial{}, err
	}
	return Trial{Passed: !result.OOM, Meters: r.meters(w, result), Seconds: r.seconds(w, result), Events: seen}, nil
}
