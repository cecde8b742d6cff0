package fleetsim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/matrix"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// order is a standing order of a town: a matrix that a person submits once, and
// the stacks that agents come with after it.
type order struct {
	source   string
	policy   proto.RolloutPolicy
	arrivals []arrival
	// wants are the cells that each new driver is to be swept with, sorted.
	wants map[string][]proto.CellID
}

// arrival is a stack that is rolled out.
type arrival struct {
	stack proto.Stack
	at    time.Duration
	// swept: the order is to cover it; else it is another GPU's, or its card is lost.
	swept bool
}

const (
	// foreignGPU is a model that no order is about.
	foreignGPU = "NVIDIA A100"
	// orderKey is the key of the one request that submits the order.
	orderKey = "on-monday"
	// night is by how much the clocks of all machines go on when a stack waits for
	// the next day. It is a day, and what two coordinators' clocks may differ by.
	night = 27 * time.Hour
)

// newDrivers come to a town after its order, in no order of their own.
func newDrivers() []string { return []string{"580.173.02", "590.10", "595.45"} }

// drawOrder gives the town a standing order, of at most so many cells on all stacks
// together.
func (t *town) drawOrder(d *dice, w workload, points map[point]deviation, most int) {
	r := d.of("order")
	drivers := newDrivers()
	r.Shuffle(len(drivers), func(i, j int) { drivers[i], drivers[j] = drivers[j], drivers[i] })
	drivers = drivers[:one(r, 1, 1, 2, 3)]
	lengths := min(1+r.IntN(3), most/(len(t.stacks)+len(drivers)))
	if lengths < 1 {
		return
	}
	o := &order{source: drawMatrix(r, lengths), wants: make(map[string][]proto.CellID)}
	cells := o.expand(t.stacks, &o.policy)
	at := 10 * time.Second
	for _, driver := range drivers {
		at += time.Duration(r.IntN(60)) * time.Second
		stack := proto.Stack{GPU: gpuName, Driver: driver, CUDA: cudaName, Torch: torchVer}
		o.arrivals = append(o.arrivals, arrival{stack: stack, at: at, swept: true})
		for _, c := range o.expand([]proto.Stack{stack}, nil) {
			cells = append(cells, c)
			o.wants[driver] = append(o.wants[driver], c.ID())
		}
		slices.Sort(o.wants[driver])
	}
	if r.IntN(2) == 0 {
		stack := proto.Stack{GPU: foreignGPU, Driver: drivers[0], CUDA: cudaName, Torch: torchVer}
		o.arrivals = append(o.arrivals, arrival{stack: stack, at: time.Duration(10+r.IntN(60)) * time.Second},
			arrival{stack: proto.Stack{GPU: gpuName, Driver: "599.1", CUDA: cudaName, Torch: torchVer}, at: time.Duration(10+r.IntN(60)) * time.Second})
	}
	t.order = o
	t.learn(d, w, points, cells)
}

// drawMatrix is the order's file.
func drawMatrix(r *rand.Rand, lengths int) string {
	all := []int{64, 96, 128, 160, 192, 256, 320}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	env := one(r, "{}", "{}", "{PYTORCH_CUDA_ALLOC_CONF: 'expandable_segments:True'}")
	return fmt.Sprintf(`apiVersion: oomfleet/v1
name: nightly
workload: {name: "sim:town"}
target: {gpu: %s}
axes: {seq_len: %s, driver: installed, env: [%s]}
quota: {kind: %s, step: %s}
search: {%s}
rollout: {on: new-stack, max_per_day: %d, repeat: %d}
`, gpuName, strings.ReplaceAll(fmt.Sprint(all[:lengths]), " ", ", "), env, one(r, proto.QuotaKinds()...), one(r, "2MiB", "16MiB"),
		one(r, "certify: edges", "certify: edges", "certify: all", "certify: none", "strategy: bisect"), 1+r.IntN(2), one(r, 0, 2))
}

// expand is the product's own expansion of the order's file for some stacks.
func (o *order) expand(installed []proto.Stack, policy *proto.RolloutPolicy) []proto.Cell {
	e, err := matrix.Expand([]byte(o.source), matrix.Options{Installed: installed})
	if err != nil {
		panic(fmt.Sprintf("fleetsim: an invented matrix can be expanded: %v\n%s", err, o.source))
	}
	if policy != nil {
		*policy = *e.Rollout
	}
	return e.Cells
}

// learn draws the truth of an order's cells: a driver moves what lies beside the
// allocator, and nothing else.
func (t *town) learn(d *dice, w workload, points map[point]deviation, cells []proto.Cell) {
	r := d.of("drivers")
	moved := make(map[string]proto.Bytes)
	for _, driver := range newDrivers() {
		moved[driver] = proto.Bytes(one(r, 0, 0, 2, 40, 64, -24)) * proto.MiB
	}
	for p, how := range drawPoints(d.of("order points"), cells) {
		if _, known := points[p]; !known {
			points[p] = how
		}
	}
	for _, c := range cells {
		key := registry.Key{Origin: proto.OriginSimulated, Cell: c.ID()}
		if t.truths[key] != nil {
			continue
		}
		// The same draws on each driver: its cells behave alike.
		same := newDice(d.seed).of(fmt.Sprintf("order L%d", c.SeqLen))
		how := points[point{c.SeqLen, c.Batch}]
		if how == deviateNone && same.IntN(4) == 0 {
			how = one(same, deviateAdaptive, deviateExtra)
		}
		t.truths[key] = newTruth(same, w, c, how)
		t.truths[key].beside += moved[c.Driver]
		t.keys = append(t.keys, key)
	}
	slices.SortFunc(t.keys, registry.Key.Compare)
}

// stands is the committed order; nil before.
func (s *sim) stands(v registry.View) *registry.Sweep {
	for _, sweep := range v.Sweeps {
		if sweep.Rollout != nil && sweep.Rollout.Policy != nil {
			return sweep
		}
	}
	return nil
}

// submitOrder is a person who submits the order once its stacks are announced,
// until it is answered.
func (s *sim) submitOrder() {
	again := func() { s.after(time.Second, s.submitOrder) }
	n := s.cluster.leader
	for _, stack := range s.town.stacks {
		if !slices.ContainsFunc(s.agents, func(a *agent) bool { return a.stack == stack && a.announcedUntil() > s.now+announced/2 }) {
			n = nil
		}
	}
	if n == nil {
		again()
		return
	}
	var err error
	s.start(s.root, func() {
		_, err = n.service.Submit(s.root, coordinator.SubmitRequest{Source: s.town.order.source, Origin: proto.OriginSimulated, Request: orderKey})
	}, func() {
		var refused *coordinator.RefusedError
		if errors.As(err, &refused) {
			s.check.fail("rollout", "the order was refused: "+err.Error())
		} else if err != nil {
			again()
		}
	})
}

// arrive is when a stack comes: agents that have it start, once the order stands.
func (s *sim) arrive(c arrival) {
	if s.stands(s.view()) == nil {
		s.after(time.Second, func() { s.arrive(c) })
		return
	}
	s.note("driver %s on %s comes", c.stack.Driver, c.stack.GPU)
	for range s.perStack() {
		a := newAgent(s, len(s.agents), c.stack)
		if !c.swept && c.stack.GPU == gpuName {
			a.lost = 1 << 62
		}
		s.agents = append(s.agents, a)
		a.begin()
	}
}

// perStack is how many agents each stack of the town has.
func (s *sim) perStack() (n int) {
	for _, a := range s.agents {
		n += pick(a.home == s.town.stacks[0], 1)
	}
	return n
}

// strays is an agent that comes back with another driver of the town for a while,
// also one that is not rolled out yet.
func (s *sim) strays(a *agent) {
	if s.town.order == nil || s.stands(s.view()) == nil || a.stack != a.home || a.home.GPU != gpuName || a.lost > s.now+night {
		return
	}
	other := slices.Clone(s.town.stacks)
	for _, c := range s.town.order.arrivals {
		if c.swept {
			other = append(other, c.stack)
		}
	}
	a.moves(one(s.dice.of("stray"), other...))
	s.after(s.dice.between("stray", 20*time.Second, 2*time.Minute), func() { a.moves(a.home) })
}

// waitsForDay reports whether nothing goes on but for stacks that the order's bound
// holds back.
func (s *sim) waitsForDay() bool {
	o, v := s.town.order, s.view()
	if o == nil || s.cluster.leader == nil || s.check.rollouts.covered() == len(o.wants) {
		return false
	}
	for _, rec := range v.Records {
		if rec.Settled == nil {
			return false
		}
	}
	today := 0
	for _, at := range s.check.rollouts.started {
		if s.cluster.leader.clock().Sub(at) < 24*time.Hour {
			today++
		}
	}
	return today >= o.policy.MaxPerDay
}

// missing says what the order is still to come to; empty for nothing.
func (s *sim) missing(v registry.View) string {
	if s.town.order == nil {
		return ""
	}
	swept := 0
	for id, sweep := range v.Sweeps {
		switch r := sweep.Rollout; {
		case s.check.rollouts.owed[id] && v.Sweeps[id+"-repeat"] == nil:
			return fmt.Sprintf("undecided cells of %s are not recorded again", id)
		case r == nil || r.Trigger == nil:
			continue
		case r.Verdict == nil:
			return fmt.Sprintf("%s has no verdict", id)
		case r.Trigger.Kind == proto.TriggerNewStack:
			swept++
		}
	}
	if want := len(s.town.order.wants); swept != want {
		return fmt.Sprintf("%d of %d new drivers were swept", swept, want)
	}
	return ""
}
