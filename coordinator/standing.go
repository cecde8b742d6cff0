package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/matrix"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// rolloutDay is the time over which a standing order's sweeps are counted.
const rolloutDay = 24 * time.Hour

// standingOrders are the sweeps whose matrix is to be swept again on stacks to
// come: of each name and origin the newest that has an order, unless that one
// was cancelled. A one-off of the same file has none and changes nothing.
func standingOrders(v registry.View) []*registry.Sweep {
	type order struct {
		origin proto.Origin
		name   string
	}
	newest := make(map[order]*registry.Sweep)
	for _, s := range v.Sweeps {
		if s.Rollout == nil || s.Rollout.Policy == nil {
			continue
		}
		if k := (order{s.Origin, s.Name}); newest[k] == nil || newest[k].Index < s.Index {
			newest[k] = s
		}
	}
	orders := slices.Collect(maps.Values(newest))
	orders = slices.DeleteFunc(orders, func(s *registry.Sweep) bool { return !s.Standing() })
	slices.SortFunc(orders, func(a, b *registry.Sweep) int { return cmp.Compare(a.Index, b.Index) })
	return orders
}

// newcomer is a stack as its first agent announced it.
type newcomer struct {
	stack proto.Stack
	agent proto.AgentID
}

// newcomers are the stacks of an origin's agents, each once, in a fixed order.
// An agent in quarantine could run nothing, so its stack can wait.
func newcomers(origin proto.Origin, agents []proto.AgentInfo) []newcomer {
	var out []newcomer
	for _, a := range agents {
		if a.Origin == origin && a.State != proto.AgentQuarantined && a.Stack.GPU != "" && a.Stack.Driver != "" {
			out = append(out, newcomer{a.Stack, a.ID})
		}
	}
	slices.SortFunc(out, func(a, b newcomer) int {
		return cmp.Or(strings.Compare(a.stack.GPU, b.stack.GPU), strings.Compare(a.stack.Driver, b.stack.Driver),
			strings.Compare(a.stack.CUDA, b.stack.CUDA), strings.Compare(a.stack.Torch, b.stack.Torch), cmp.Compare(a.agent, b.agent))
	})
	return slices.CompactFunc(out, func(a, b newcomer) bool { return runsOn(a.stack, b.stack) })
}

// runsOn reports whether two stacks are one as far as memory goes.
func runsOn(a, b proto.Stack) bool {
	return a.GPU == b.GPU && a.Driver == b.Driver && a.CUDA == b.CUDA && a.Torch == b.Torch
}

// expansions are the matrices of standing orders, expanded for a stack. A stack that
// waits, for the next day or for its cells, is looked at with every audit.
type expansions struct{ known map[string]*matrix.Expansion }

// mostExpansions is how many are remembered.
const mostExpansions = 64

// of is an order's matrix with the cells of one stack alone; they are none where
// the order is about another GPU. Nobody may change it.
func (x *expansions) of(order *registry.Sweep, n newcomer, all []newcomer) (*matrix.Expansion, error) {
	options := matrix.Options{Set: order.Set}
	for _, other := range all {
		if other.stack.GPU == n.stack.GPU { // the model may be `installed` too
			options.Installed = append(options.Installed, other.stack)
		}
	}
	key := fmt.Sprintf("%q %q %q %q %q", order.Source, order.Set, n.stack.GPU, n.stack.Driver, options.Installed)
	if known := x.known[key]; known != nil {
		return known, nil
	}
	e := &matrix.Expansion{}
	spec, err := matrix.Parse([]byte(order.Source), options)
	if err != nil || spec.GPU == matrix.Installed || spec.GPU == n.stack.GPU {
		if e, err = matrix.Expand([]byte(order.Source), options); err != nil {
			return nil, err
		}
	}
	e.Cells = slices.DeleteFunc(e.Cells, func(c proto.Cell) bool { return c.GPU != n.stack.GPU || c.Driver != n.stack.Driver })
	e.Rollout = nil // the sweep of one stack is no order itself
	if x.known == nil || len(x.known) >= mostExpansions {
		x.known = make(map[string]*matrix.Expansion)
	}
	x.known[key] = e
	return e, nil
}

// due is the sweep that a standing order asks for on a new stack; nil when the
// order has nothing for that stack, or everything was asked for already: by
// this order or by anybody, and also when that was cancelled. Which other agents
// are there changes neither its cells nor its id. waits is whether that may
// change without a new stack: cells are still in work.
func (x *expansions) due(v registry.View, order *registry.Sweep, n newcomer, all []newcomer) (add *registry.AddSweep, waits bool, err error) {
	e, err := x.of(order, n, all)
	if err != nil {
		return nil, false, fmt.Errorf("expand the matrix of %s for driver %s: %w", order.ID, n.stack.Driver, err)
	}
	if len(e.Cells) == 0 {
		return nil, false, nil
	}
	if known(v, order.Origin, e.Cells) {
		add, waits = dueAgain(v, order, n, e.Cells)
		return add, waits, nil
	}
	trigger := &proto.RolloutTrigger{Kind: proto.TriggerNewStack, Of: order.ID, Stack: &n.stack, Agent: n.agent}
	add = &registry.AddSweep{Name: order.Name, Origin: order.Origin, Search: e.Search, Source: order.Source,
		Set: append(slices.Clone(order.Set), "target.gpu="+n.stack.GPU, "axes.driver="+n.stack.Driver), Cells: e.Cells, Rollout: &proto.Rollout{Trigger: trigger}}
	add.ID = matrixID(order.Origin, e)
	return add, false, nil
}

// dueAgain is the sweep for a torch or CUDA that is new under a GPU and driver
// which the order has covered: these are no part of a cell, so the cells that
// were recorded are recorded once more. It is nil when one of them was recorded
// there already; waits is whether they have not settled yet.
func dueAgain(v registry.View, order *registry.Sweep, n newcomer, cells []proto.Cell) (add *registry.AddSweep, waits bool) {
	if n.stack.Torch == "" {
		return nil, false
	}
	add = &registry.AddSweep{Name: order.Name, Origin: order.Origin, Search: order.Search, Source: order.Source, Set: order.Set,
		Rollout: &proto.Rollout{Trigger: &proto.RolloutTrigger{Kind: proto.TriggerNewStack, Of: order.ID, Stack: &n.stack, Agent: n.agent, Repeats: 1}}}
	for _, c := range cells {
		rec := v.Records[registry.Key{Origin: order.Origin, Cell: c.ID()}]
		if rec.Settled == nil {
			return nil, true
		}
		for i := range rec.Runs {
			if on := rec.Runs[i].Stack; on.CUDA == n.stack.CUDA && on.Torch == n.stack.Torch {
				return nil, false
			}
		}
		if rec.Recording() != nil && rec.Settled.State != proto.CellFailed && rec.Settled.State != proto.CellCancelled {
			add.Cells = append(add.Cells, c)
		}
	}
	if len(add.Cells) == 0 {
		return nil, false
	}
	id := matrixID(order.Origin, &matrix.Expansion{Name: order.Name + " " + n.stack.Torch + " " + n.stack.CUDA, Search: order.Search, Cells: add.Cells})
	if add.ID = id; v.Sweeps[id] != nil {
		return nil, false
	}
	return add, false
}

// known reports whether every cell was asked for before.
func known(v registry.View, origin proto.Origin, cells []proto.Cell) bool {
	return !slices.ContainsFunc(cells, func(c proto.Cell) bool { return v.Records[registry.Key{Origin: origin, Cell: c.ID()}] == nil })
}

// startedToday counts the sweeps that an order has started within a day.
func startedToday(v registry.View, order *registry.Sweep, now time.Time) int {
	n := 0
	for _, s := range v.Sweeps {
		if s.Rollout != nil && s.Rollout.Trigger != nil && s.Rollout.Trigger.Kind == proto.TriggerNewStack &&
			s.Name == order.Name && s.Origin == order.Origin && now.Sub(s.Submitted) < rolloutDay {
			n++
		}
	}
	return n
}
