package fleetsim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// Config says which history is played. Equal ones give equal histories.
type Config struct {
	Seed uint64
	// Cells is the most cells that a town has; 0 is 12.
	Cells int
	// Agents is how many agents each stack has; 0 is drawn.
	Agents int
	// Faults are those that may come; each is drawn to come never, seldom or often.
	Faults []Fault
	// Story asks for an account of what happened.
	Story bool

	// mutation is a planted bug; tests only.
	mutation mutation
}

// History is what came of a Config.
type History struct {
	Config Config
	// Violation is the first promise that was broken; nil for none.
	Violation *Violation
	Counts
	// Done counts the faults, States how the cells ended.
	Done   map[Fault]int
	States map[proto.CellState]int
	// Story is what happened, in order, if it was asked for.
	Story []string
}

// Happened is what came in between, and what came of it.
type Happened struct {
	// LostReports is what the queue lost, StalePublishes how often a node
	// published that did not lead any more.
	LostReports, StalePublishes int
	// Triggered are sweeps that a standing order started, Verdicts comparisons
	// that were kept.
	Triggered, Verdicts int
	// Drained are tasks that agents handed back as they ended, Restores backups
	// that took the registry's place, Removed objects that were garbage.
	Drained, Restores, Removed int
}

// Counts are what a history had in it.
type Counts struct {
	Cells, Entries, Results, Late, Events int
	// Disturbed are runs that something came in between, GivenUp cells that
	// failed for it and were submitted again.
	Disturbed, GivenUp int
	Happened
	// Lasted is in simulated time.
	Lasted time.Duration
}

func (s *sim) counts() Counts {
	c := Counts{Cells: len(s.town.keys), Entries: len(s.cluster.log), Results: s.check.accepted, Late: s.check.offered - s.check.accepted,
		Events: s.fired, Disturbed: len(s.check.disturbed), Happened: s.check.books.Happened, Lasted: s.now}
	for id, sweep := range s.view().Sweeps {
		if strings.HasPrefix(string(id), "again-") {
			c.GivenUp += len(sweep.Cells)
		}
	}
	return c
}

// Run plays one town twice: alone, with one coordinator, one agent for each stack
// and no fault, and disturbed; and compares the two. An error is the simulator's
// own. ctx ends nothing early: it is the root of the contexts that the fleet's
// code is given.
func Run(ctx context.Context, cfg Config) (History, error) {
	if cfg.Cells == 0 {
		cfg.Cells = 12
	}
	t := drawTown(newDice(cfg.Seed), cfg.Cells)
	h := History{Config: cfg}
	quiet := cfg
	quiet.Faults, quiet.mutation = nil, ""
	alone, err := newSim(ctx, quiet, t, size{nodes: 1, agents: 1})
	if err != nil {
		return h, fmt.Errorf("simulate seed %d: %w", cfg.Seed, err)
	}
	alone.play()
	h.Violation = alone.check.first
	if h.Violation == nil {
		h.Violation = t.checkAlone(alone.ending(), alone.check.offered-alone.check.accepted)
	}
	if h.Violation != nil {
		h.Violation.What = "undisturbed: " + h.Violation.What
		h.Story = alone.story.lines
		return h, nil
	}
	agents := cfg.Agents
	if drawn := 1 + newDice(cfg.Seed).of("agents").IntN(5); agents == 0 {
		agents = drawn
	}
	s, err := newSim(ctx, cfg, t, size{nodes: 3, agents: agents})
	if err != nil {
		return h, fmt.Errorf("simulate seed %d: %w", cfg.Seed, err)
	}
	s.play()
	h.Violation = s.check.first
	if h.Violation == nil {
		h.Violation = t.checkSame(alone.ending(), s.ending())
	}
	if h.Violation == nil {
		h.Violation = t.unfitted(alone.view(), s.view())
	}
	h.Counts, h.Done, h.States = s.counts(), s.trouble.count, make(map[proto.CellState]int)
	for _, key := range t.keys {
		if rec := s.ending()[key]; rec != nil {
			h.States[rec.State()]++
		}
	}
	h.Story = s.story.lines
	return h, nil
}

// Shrink looks for a smaller Config that breaks the same promise: fewer faults,
// cells and agents. It plays some tens of histories.
func Shrink(ctx context.Context, cfg Config, kind string) (Config, error) {
	broken := func(c Config) (bool, error) {
		h, err := Run(ctx, c)
		return err == nil && h.Violation != nil && h.Violation.Kind == kind, err
	}
	cfg.Story = false
	for _, f := range slices.Clone(cfg.Faults) {
		smaller := cfg
		smaller.Faults = slices.DeleteFunc(slices.Clone(cfg.Faults), func(o Fault) bool { return o == f })
		if ok, err := broken(smaller); err != nil {
			return cfg, err
		} else if ok {
			cfg = smaller
		}
	}
	for _, agents := range []int{1, 2, 3} {
		smaller := cfg
		smaller.Agents = agents
		if ok, err := broken(smaller); err != nil {
			return cfg, err
		} else if ok {
			cfg = smaller
			break
		}
	}
	for cells := 1; cells < max(cfg.Cells, 12); cells++ {
		smaller := cfg
		smaller.Cells = cells
		if ok, err := broken(smaller); err != nil {
			return cfg, err
		} else if ok {
			return smaller, nil
		}
	}
	return cfg, nil
}

// Command is the command that plays the history of a Config again.
func (c Config) Command() string {
	text := fmt.Sprintf("make sim SEED=%d N=1", c.Seed)
	if len(c.Faults) < len(Faults()) {
		text += " FAULTS=" + formatFaults(c.Faults)
	}
	if c.Cells != 0 && c.Cells != 12 {
		text += fmt.Sprintf(" CELLS=%d", c.Cells)
	}
	if c.Agents != 0 {
		text += fmt.Sprintf(" AGENTS=%d", c.Agents)
	}
	return text
}
