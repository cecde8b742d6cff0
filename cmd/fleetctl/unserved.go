package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// noAgent is why cells of a stack wait that no agent serves.
const noAgent = "none is announced"

// wait is why cells of one stack make no progress, or, without a stack, why none
// does.
type wait struct {
	gpu, driver string
	origin      proto.Origin
	cells       int
	reason      string
	since       time.Time // zero where nobody knows
	other       bool      // agents of this stack are announced, of another origin
	advice      string    // what ends it, where that is no matter of agents
}

// String is the sentence about it.
func (w wait) String() string {
	if w.gpu == "" {
		return w.reason
	}
	what := fmt.Sprintf("%d cells wait", w.cells)
	if w.cells == 1 {
		what = "1 cell waits"
	}
	return fmt.Sprintf("%s for an agent of %s: %s", what, w.stack(), w.reason)
}

func (w wait) stack() string { return fmt.Sprintf("%s, driver %s, %s", w.gpu, w.driver, w.origin) }

// atLength adds how long it has lasted at a time, and how it ends.
func (w wait) atLength(now time.Time) string {
	text := w.String()
	if !w.since.IsZero() {
		text += fmt.Sprintf(", for %s now", roughly(max(0, now.Sub(w.since))))
	}
	return text + w.remedy()
}

// remedy is what ends a wait that a person can end; it goes behind the sentence.
func (w wait) remedy() string {
	switch {
	case w.advice != "":
		return w.advice
	case w.reason != noAgent:
		return ""
	case w.other && w.origin == proto.OriginMeasured:
		return "; agents of this stack are announced, and simulated: matrix submit --origin simulated asks them"
	case w.origin == proto.OriginSimulated:
		return "; start one: fleetctl agent --sim --sim-driver " + w.driver + " --config FILE"
	}
	return "; start one on such a card: fleetctl agent --config FILE"
}

// unserved says, one wait a stack, which cells of a sweep wait for an agent
// that is not there. A sweep in this state makes no progress and no error.
func unserved(r proto.Report, agents []proto.AgentInfo) []wait {
	served := map[proto.Pool]bool{}
	for _, a := range agents {
		served[a.Stack.Pool(a.Origin)] = true
	}
	waits := waiting(r, func(pool proto.Pool) string {
		if served[pool] {
			return ""
		}
		return noAgent
	})
	for i, w := range waits {
		waits[i].other = served[proto.PoolOf(proto.OriginSimulated, w.gpu, w.driver)]
	}
	return waits
}

// resting says likewise which cells wait for agents that are there, and all take
// no work.
func resting(r proto.Report, agents []proto.AgentInfo) []wait {
	working, rest := map[proto.Pool]bool{}, map[proto.Pool][]string{}
	for _, a := range agents {
		pool := a.Stack.Pool(a.Origin)
		if a.State != proto.AgentQuarantined && a.State != proto.AgentDraining {
			working[pool] = true
			continue
		}
		text := fmt.Sprintf("%s is %s", a.ID, a.State)
		if a.Reason != "" {
			text += " (" + a.Reason + ")"
		}
		rest[pool] = append(rest[pool], text)
	}
	return waiting(r, func(pool proto.Pool) string {
		if working[pool] {
			return ""
		}
		return strings.Join(rest[pool], ", ")
	})
}

// waiting counts the cells that are not settled by their stack, where why has an
// answer for it.
func waiting(r proto.Report, why func(proto.Pool) string) []wait {
	found := map[string]*wait{}
	add := func(w wait) *wait {
		w.reason = why(proto.PoolOf(w.origin, w.gpu, w.driver))
		if w.reason == "" {
			return &wait{}
		}
		if found[w.stack()] == nil {
			found[w.stack()] = &w
		}
		return found[w.stack()]
	}
	for _, c := range r.Cells {
		if !settledState(c, r.State) {
			add(wait{gpu: c.GPU, driver: c.Driver, origin: c.Origin}).cells++
		}
	}
	for _, o := range r.Open {
		w := add(wait{gpu: o.GPU, driver: o.Driver, origin: r.Origin})
		if w.since = o.Since; w.cells == 0 { // settled cells, which wait to be recorded again
			w.cells = o.Cells
		}
	}
	var out []wait
	for _, stack := range slices.Sorted(maps.Keys(found)) {
		out = append(out, *found[stack])
	}
	return out
}

func sentences(waits []wait) (out []string) {
	for _, w := range waits {
		out = append(out, w.String())
	}
	return out
}

// patience bounds what is asked beside the status itself, which nothing that is
// broken may hold up.
const patience = 4 * time.Second

// whoIsMissing asks the fleet for its agents and names what a sweep waits for:
// agents, the queue that knows them, or a leader.
func whoIsMissing(ctx context.Context, client *api.Client, r proto.Report) (waits []wait) {
	if r.State != "running" {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	waits, queueRefuses, err := troubles(limited, client)
	if queueRefuses { // agents cannot be announced there either
		return waits
	}
	if err != nil && r.Role != "leader" {
		if at, err := client.Status(limited); err == nil && at.Leader == "" {
			waits = append(waits, wait{reason: "no coordinator leads, so nothing is settled: fleetctl cluster status says which do not answer"})
		}
	}
	list, err := client.Agents(limited)
	switch {
	case err == nil:
		return append(append(waits, unserved(r, list.Agents)...), resting(r, list.Agents)...)
	case ctx.Err() != nil:
		return waits
	}
	return append(waits, wait{reason: agentsUnknown(err, patience).Error()})
}

// agentsUnknown is why a list of agents was not had within a limit. Nobody but
// the queue has it, which each coordinator in turn waits for.
func agentsUnknown(err error, limit time.Duration) error {
	const what = "which agents there are is not known: "
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%sno answer within %.0f s; does the queue (NATS) answer the coordinators?", what, limit.Seconds())
	}
	return fmt.Errorf("%s%w", what, err)
}

// otherOrigin adds to the errors of a matrix that wants installed agents that those
// which are announced are of the other origin.
func otherOrigin(ctx context.Context, client *api.Client, origin proto.Origin, err error) error {
	if err == nil || !strings.Contains(err.Error(), "is installed, but no ") {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, listErr := client.Agents(limited)
	if listErr != nil || len(list.Agents) == 0 {
		return err
	}
	for _, a := range list.Agents {
		if a.Origin == origin {
			return err
		}
	}
	other := list.Agents[0].Origin
	return usagef("%w\nno agent that is announced is %s; all are %s: --origin %s asks them", err, origin, other, other)
}
