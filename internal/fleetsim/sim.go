package fleetsim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// sim is one fleet and its history.
type sim struct {
	*kernel
	cfg     Config
	dice    *dice
	town    *town
	trouble *trouble
	cluster *cluster
	queue   *stream
	store   *store
	agents  []*agent
	check   *checker
	story   *story
	// waylaid are the sweeps that wait for a settlement of theirs; see sweep.ambush.
	waylaid []sweep
}

// size is how large a fleet is.
type size struct {
	nodes  int
	agents int // for each stack
}

func newSim(ctx context.Context, cfg Config, t *town, z size) (*sim, error) {
	s := &sim{kernel: newKernel(ctx), cfg: cfg, dice: newDice(cfg.Seed), town: t, store: newStore(), story: &story{on: cfg.Story}}
	s.check = newChecker(s)
	s.trouble = drawTrouble(s.dice, cfg.Faults)
	if len(cfg.Faults) == 0 {
		s.trouble.until = 0
	}
	s.queue = newStream(s)
	for _, stack := range t.stacks {
		for range z.agents {
			s.agents = append(s.agents, newAgent(s, len(s.agents), stack))
		}
	}
	var err error
	if s.cluster, err = newCluster(s, z.nodes); err != nil {
		return nil, err
	}
	return s, nil
}

// latency is how long a call takes, unless something is slow.
func (s *sim) latency(of string, lo, hi time.Duration) time.Duration {
	d := s.dice.between("latency "+of, lo, hi)
	if (of == "log" || of == "store") && s.trouble.hits(s.now, FaultSlow, 10) {
		d *= 100
	}
	return d
}

// begin lays out what will happen to the fleet.
func (s *sim) begin() {
	s.cluster.elect(s.cluster.nodes[0])
	for _, a := range s.agents {
		a.later(s.dice.between("start", 0, time.Second), a.begin)
	}
	for _, sw := range s.town.sweeps {
		if sw.ambush {
			s.waylaid = append(s.waylaid, sw)
			s.after(sw.at, func() { s.ambush(func(other sweep) bool { return other.ID == sw.ID }) })
			continue
		}
		s.after(sw.at, func() { s.submit(registry.Command{AddSweep: &sw.AddSweep}) })
		if sw.cancelled > 0 {
			s.after(sw.cancelled, func() { s.cancel(sw.ID) })
		}
	}
	if o := s.town.order; o != nil {
		s.after(2*time.Second, s.submitOrder)
		for _, c := range o.arrivals {
			s.after(c.at, func() { s.arrive(c) })
		}
	}
	s.plague()
}

// ambush submits the waylaid sweeps that fit.
func (s *sim) ambush(fits func(sweep) bool) {
	var rest []sweep
	for _, sw := range s.waylaid {
		if !fits(sw) {
			rest = append(rest, sw)
			continue
		}
		s.after(0, func() { s.submit(registry.Command{AddSweep: &sw.AddSweep}) })
	}
	s.waylaid = rest
}

// submit proposes a person's command until it is committed.
func (s *sim) submit(cmd registry.Command) {
	cmd.Version = registry.CommandVersion
	again := func() { s.after(time.Second, func() { s.submit(cmd) }) }
	if s.cluster.leader == nil {
		again()
		return
	}
	p := &proposal{from: s.cluster.leader, cmd: cmd}
	s.cluster.send(p, func() {
		if p.err != nil {
			again()
		}
	})
}

// cancel asks the coordinators to cancel a sweep, until one does.
func (s *sim) cancel(id proto.MatrixID) {
	again := func() { s.after(time.Second, func() { s.cancel(id) }) }
	n := s.cluster.leader
	if n == nil {
		again()
		return
	}
	var err error
	s.start(s.root, func() { _, err = n.service.Cancel(s.root, id) }, func() {
		var refused *coordinator.RefusedError // all of it has settled before
		if err != nil && !errors.As(err, &refused) {
			again()
			return
		}
		s.check.cancelled[id] = true
	})
}

// plague lays out the faults of machines and services.
func (s *sim) plague() {
	at := func(f Fault, mean time.Duration, do func()) {
		for _, when := range s.trouble.plan(f, mean) {
			s.after(when, do)
		}
	}
	anyone := func() *agent { return one(s.dice.of("anyone"), s.agents...) }
	at(FaultCrash, 40*time.Second, func() { anyone().crash() })
	at(FaultGPU, 60*time.Second, func() { a := anyone(); a.lost = max(a.lost, s.now+s.dice.between("lost", 10*time.Second, time.Minute)) })
	at(FaultStack, 90*time.Second, func() {
		if a := anyone(); s.dice.chance("strays", 50) {
			s.strays(a)
		} else {
			a.wrong = s.now + s.dice.between("wrong", 5*time.Second, 20*time.Second)
		}
	})
	at(FaultDrain, 60*time.Second, func() { s.drain(anyone()) })
	at(FaultQueue, 60*time.Second, func() {
		s.queue.down = true
		s.after(s.dice.between("queue down", time.Second, 40*time.Second), func() { s.queue.down = false; s.queue.wakeIntake() })
	})
	at(FaultStream, 60*time.Second, func() {
		s.queue.lose(s.dice.chance("lose", 70), s.dice.chance("lose", 50))
	})
	at(FaultStore, 60*time.Second, func() {
		s.store.down = true
		s.after(s.dice.between("store down", time.Second, 60*time.Second), func() { s.store.down = false })
	})
	at(FaultForeign, 30*time.Second, func() { s.queue.report(s.lie()) })
	if len(s.cluster.nodes) < 3 {
		return
	}
	at(FaultLeader, 20*time.Second, func() {
		if next := one(s.dice.of("leader"), s.cluster.alive()...); s.cluster.leader != nil && next != s.cluster.leader {
			s.cluster.elect(next)
		}
	})
	at(FaultNode, 50*time.Second, func() {
		if up := s.cluster.alive(); len(up) == len(s.cluster.nodes) { // a majority always lives
			one(s.dice.of("node"), up...).crash(s.dice.between("down", time.Second, 40*time.Second))
		}
	})
	at(FaultRestore, 150*time.Second, func() {
		b, wait := s.cluster.keep(), s.dice.between("restore", 5*time.Second, 90*time.Second)
		if b != nil && s.now+wait < s.trouble.until {
			at := s.wall // a backup of another day may refer to what was removed
			s.after(wait, func() {
				if s.wall == at {
					s.cluster.restore(b)
				}
			})
		}
	})
	at(FaultKeep, 60*time.Second, s.collect)
	at(FaultClock, 60*time.Second, func() {
		one(s.dice.of("clock"), s.cluster.nodes...).skew = s.dice.between("skew", -time.Hour, time.Hour)
	})
	at(FaultSnapshot, 40*time.Second, func() {
		if n := one(s.dice.of("snapshot"), s.cluster.nodes...); n.up {
			n.snapshot()
		}
	})
}

const (
	// patience is within which time all must have settled, after the last fault.
	patience = time.Hour
	// stragglers is how long late results are waited for at the end.
	stragglers = 5 * time.Minute
	// aftermath is for what the leader still does once all is settled: fits.
	aftermath = 30 * time.Second
	// most bounds the events of a history: beyond, it turns in circles.
	most = 400_000
)

// play runs the history to its end.
func (s *sim) play() {
	s.begin()
	tries := make(map[proto.CellID]int)
	for s.check.first == nil && s.step() {
		if s.fired > most || s.now > s.trouble.until+patience {
			s.check.fail("lost", s.unsettled())
			break
		}
		if s.now >= s.trouble.until && s.waitsForDay() {
			s.pass()
		}
		if s.now < s.trouble.until || !s.allSettled() {
			continue
		}
		// Cells that were given up for the disturbances are submitted again.
		again := s.givenUp()
		if len(again) == 0 {
			break
		}
		for _, c := range again {
			if tries[c.ID()]++; tries[c.ID()] > 1 { // nothing comes in between any more
				s.check.fail("unjustified", fmt.Sprintf("cell %s was submitted again and given up again", c))
			}
		}
		s.submitAgain(proto.MatrixID(fmt.Sprintf("again-%d", len(s.view().Sweeps))), again)
	}
	if s.check.first == nil {
		s.checkEnd()
	}
	s.kernel.end()
}

// submitAgain submits cells as before and waits until that is committed.
func (s *sim) submitAgain(id proto.MatrixID, cells []proto.Cell) {
	s.trouble.until = s.now // patience counts from here
	first := s.view().Records[registry.Key{Origin: proto.OriginSimulated, Cell: cells[0].ID()}]
	s.submit(registry.Command{AddSweep: &registry.AddSweep{ID: id, Name: "again", Origin: proto.OriginSimulated, Search: first.Search, Cells: cells}})
	for s.view().Sweeps[id] == nil && s.now < s.trouble.until+patience && s.step() {
		continue
	}
}

// view is what is committed, as the node knows it that has applied the most.
func (s *sim) view() registry.View {
	var newest *node
	for _, n := range s.cluster.nodes {
		if n.up && (newest == nil || n.applied > newest.applied) {
			newest = n
		}
	}
	return newest.machine.View()
}

func (s *sim) allSettled() bool {
	v := s.view()
	for _, sw := range s.town.sweeps {
		if sweep := v.Sweeps[sw.ID]; sweep == nil || sw.cancelled > 0 && !s.check.cancelled[sw.ID] {
			return false
		}
	}
	for _, key := range s.town.keys {
		if rec := v.Records[key]; rec == nil || rec.Settled == nil {
			return false
		}
	}
	return s.missing(v) == ""
}

// pass lets a night go by in which nothing happens.
func (s *sim) pass() {
	s.note("a night passes")
	s.wall += night
}

// drain asks an agent to end: through a coordinator, or as its machine does.
func (s *sim) drain(a *agent) {
	within := s.dice.between("drain", time.Second, 20*time.Second)
	n := s.cluster.leader
	if n == nil || s.dice.chance("drain", 30) {
		a.drainWithin(within)
		return
	}
	s.start(s.root, func() { _, _ = n.service.Drain(s.root, a.id, within) }, func() {}) // whoever is not told goes on
}

// givenUp are the cells that failed for what came in between.
func (s *sim) givenUp() []proto.Cell {
	v := s.view()
	var cells []proto.Cell
	for _, key := range s.town.keys {
		if rec := v.Records[key]; gaveUp(rec) && s.town.steady(key) && (len(cells) == 0 || rec.Search == v.Records[registry.Key{Origin: key.Origin, Cell: cells[0].ID()}].Search) {
			cells = append(cells, rec.Cell)
		}
	}
	return cells
}

// unsettled names the cells that are still in work.
func (s *sim) unsettled() string {
	v := s.view()
	var names []string
	for _, key := range s.town.keys {
		if rec := v.Records[key]; rec == nil || rec.Settled == nil {
			name := s.town.truths[key].cell.String()
			if rec != nil {
				name += fmt.Sprintf(" (%d runs, %d open)", len(rec.Runs), len(rec.Open))
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if what := s.missing(v); what != "" {
		names = append(names, what)
	}
	return fmt.Sprintf("%d cells have not settled %s after the last fault: %v", len(names), (s.now - s.trouble.until).Round(time.Second), names)
}
