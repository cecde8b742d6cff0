package child

import (
	"errors"
	"log/slog"
	"time"

	"github.com/oomfleet/oomfleet/agent/probe"
)

// Meter reads the card beside the runner. Both methods answer in milliseconds
// or return an error that says what to do, as long as the driver does not hang
// (see Timing); neither makes a CUDA context.
type Meter interface {
	// Identify reads model, driver, UUID and size of the card.
	Identify() (probe.Identity, error)
	// Sample reads the card's memory and its processes.
	Sample() (probe.Sample, error)
}

// Config says how to run a runner.
type Config struct {
	// Guard is the command that calls Guard, without the "--" after it, for
	// example {"/usr/bin/fleetctl", "internal", "guard"}.
	Guard []string
	// Command is the runner with its arguments; see PythonCommand.
	Command []string
	// Environ is the environment to take the allowed names from; nil takes
	// nothing but what Extra has. Extra is added whatever it is.
	Environ []string
	Extra   []string
	// Meter reads the card; nil for a simulated runner, which brings its own.
	Meter  Meter
	Timing Timing
	Log    *slog.Logger
}

// Validate reports everything that is missing, at once.
func (c Config) Validate() error {
	var errs []error
	if len(c.Guard) == 0 {
		errs = append(errs, errors.New("no guard command"))
	}
	if len(c.Command) == 0 {
		errs = append(errs, errors.New("no runner command"))
	}
	if c.Log == nil {
		errs = append(errs, errors.New("no logger"))
	}
	return errors.Join(errs...)
}

// Timing holds how long a Prober waits for what. A zero field is its default.
type Timing struct {
	// Hello is for a runner to import its libraries and say hello: 3 minutes
	// (20 s when warm; a cold network disk takes minutes).
	Hello time.Duration
	// Start is for a run's process to exist once it was asked for: 1 minute
	// (a device quota fills the card first).
	Start time.Duration
	// Kill is for a run to end once it was killed, before its runner and
	// everything else is killed too: 5 s.
	Kill time.Duration
	// Gone is for a killed process tree to disappear: 20 s. One that hangs in
	// the driver never does.
	Gone time.Duration
	// Check is for the run of a check, once its process exists: 2 minutes (a
	// few seconds when all is well). It counts in whole seconds.
	Check time.Duration
	// Meter is for one answer of the meter: 30 s. A driver that hangs gives none.
	Meter time.Duration
	// Sample is the time between two looks of the meter: 25 ms.
	Sample time.Duration
}

func (t Timing) withDefaults() Timing {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Hello, 3 * time.Minute}, {&t.Start, time.Minute}, {&t.Kill, 5 * time.Second},
		{&t.Gone, 20 * time.Second}, {&t.Check, 2 * time.Minute}, {&t.Meter, 30 * time.Second}, {&t.Sample, 25 * time.Millisecond},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return t
}
