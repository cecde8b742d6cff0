// Package probe owns the words between an agent and what it works with: what a
// prober says of its stack and of one run, and what a meter says of the card.
// It holds data only. It refuses to run anything and to judge what was seen:
// package agent/child runs probes, agent/gpu reads the card, agent/outcome
// names the outcome.
//
// Start reading at Description and Observation.
package probe

import (
	"fmt"
	"slices"
	"time"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

// Description is what a prober runs on.
type Description struct {
	Stack proto.Stack
	Card  proto.Card
	// Simulated says that nothing here was measured: every result of this
	// prober is of origin simulated.
	Simulated bool
	// QuotaKinds are the kinds of quota that the prober can enforce.
	QuotaKinds []proto.QuotaKind
}

// Origin is the origin of everything that the prober finds.
func (d Description) Origin() proto.Origin {
	if d.Simulated {
		return proto.OriginSimulated
	}
	return proto.OriginMeasured
}

// Pool is the queue that an agent on this prober works for.
func (d Description) Pool() proto.Pool { return d.Stack.Pool(d.Origin()) }

// Equal reports whether two descriptions are of the same stack, card and kinds.
func (d Description) Equal(o Description) bool {
	return d.Stack == o.Stack && d.Card == o.Card && d.Simulated == o.Simulated && slices.Equal(d.QuotaKinds, o.QuotaKinds)
}

// Observation is what was seen of one run.
type Observation struct {
	Evidence proto.Evidence
	// Events are the allocator's trace of a recording, oldest first; nil
	// otherwise.
	Events []allocator.Event
	// BadCell says that the runner rejected the cell's environment itself,
	// before anything ran: no agent can run the cell.
	BadCell bool
}

// Identity is what NVML says of the card.
type Identity struct {
	// GPU is the model's name, Driver the version of the driver, both as NVML
	// prints them.
	GPU    string
	Driver string
	UUID   string
	Total  proto.Bytes
}

// Sample is one look at the card's memory, in bytes.
type Sample struct {
	Used  proto.Bytes
	Free  proto.Bytes
	Total proto.Bytes
	// Processes are those that hold memory on the card, ours and others', with
	// the ids that NVML gives (inside a pid namespace they may be unknown here).
	Processes []Process
}

// Process is one process that holds memory on the card; Used is nil where NVML
// does not tell how much.
type Process struct {
	PID  int
	Used *proto.Bytes
}

// Silent is the error of a driver that hangs: what was asked of it for so long
// has no answer.
func Silent(within time.Duration) error {
	return fmt.Errorf("the driver has not answered for %v: look at dmesg, and whether nvidia-smi answers; a card that hangs wants a reset or its machine a restart", within)
}
