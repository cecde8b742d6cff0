package fleetsim

import (
	"fmt"
	"slices"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// books are what the log issued and what the runs that counted have shown.
type books struct {
	issued map[run]proto.Task
	// offered are the runs of which a result came to the log, counted or late.
	offered map[run]bool
	// revisions is how often each cell has settled.
	revisions map[registry.Key]int
	// passed and failed are the aims that a counted run has decided.
	passed, failed map[aim]bool
	// apart is how often an aim was refused outside the allocator: that is believed
	// when a second run says the same.
	apart map[aim]int
	Happened
	// ended are runs that were ended with their agents.
	ended map[ended]bool
	// submitted are the sweeps that people know to be in the registry.
	submitted map[proto.MatrixID]bool
	// restored is the position at which a backup took the registry's place last.
	restored uint64
}

func newBooks() books {
	return books{issued: make(map[run]proto.Task), offered: make(map[run]bool), revisions: make(map[registry.Key]int), passed: make(map[aim]bool), failed: make(map[aim]bool), apart: make(map[aim]int),
		ended: make(map[ended]bool), submitted: make(map[proto.MatrixID]bool)}
}

func aimOf(t proto.Task) aim { return aim{t.CellID, t.Kind, t.Quota} }

// issues checks a task that the log issues: its cell is in work, nobody is asked
// for the same already, and no counted run has refused it.
func (c *checker) issues(t proto.Task, before registry.View) {
	rec := before.Records[registry.Key{Origin: t.Origin, Cell: t.CellID}]
	if _, known := c.books.issued[run{t.ID, t.Fence}]; known {
		c.fail("reused", fmt.Sprintf("task %s is issued under fence %d a second time", t.ID, t.Fence))
	}
	switch {
	case rec == nil || rec.Settled != nil && !repeated(before, rec, t):
		c.fail("vain", fmt.Sprintf("task %s is issued for a cell that is not in work", t.ID))
	case c.asked(aimOf(t)):
		c.fail("vain", fmt.Sprintf("task %s asks for what another one asks for: %s at %s", t.ID, t.Kind, t.Quota))
	case t.Kind == proto.TaskProbe && c.books.failed[aimOf(t)]:
		c.fail("vain", fmt.Sprintf("task %s asks for a probe at %s, which has failed already", t.ID, t.Quota))
	}
	c.open[run{t.ID, t.Fence}] = t
	c.books.issued[run{t.ID, t.Fence}] = t
}

// repeated reports whether a task is a recording that a sweep wants to have repeated.
func repeated(v registry.View, rec *registry.Record, t proto.Task) bool {
	return t.Kind == proto.TaskRecord && slices.ContainsFunc(rec.Sweeps, func(id proto.MatrixID) bool { return v.Sweeps[id].Missing(rec) > 0 })
}

func (c *checker) asked(a aim) bool {
	for _, t := range c.open {
		if aimOf(t) == a {
			return true
		}
	}
	return false
}

// published checks a task that somebody hands to the queue, whoever it is: agents
// are asked for nothing but what is committed.
func (c *checker) published(t proto.Task) {
	known, ok := c.books.issued[run{t.ID, t.Fence}]
	if !ok || aimOf(known) != aimOf(t) || known.Expect != t.Expect || known.Cell.ID() != t.Cell.ID() {
		c.fail("unissued", fmt.Sprintf("task %s under fence %d, %s at %s, is published and was never issued so", t.ID, t.Fence, t.Kind, t.Quota))
	}
}

// acked checks a report that is taken out of the queue: it is in the log by then,
// unless it was kept out, as one of another stack is.
func (c *checker) acked(r proto.Result) {
	t := c.town.truths[registry.Key{Origin: r.Origin, Cell: r.CellID}]
	foreign := t != nil && r.Stack.Pool(r.Origin) != proto.PoolOf(r.Origin, t.cell.GPU, t.cell.Driver)
	if !c.books.offered[run{r.Task, r.Fence}] && !foreign {
		c.fail("lost", fmt.Sprintf("the report of %s is acked and never came to the log", r.Task))
	}
}

// widened checks that a cell is searched as far as each sweep that wants it asks.
func (c *checker) widened(v registry.View, rec *registry.Record) {
	if rec == nil {
		return
	}
	rank := map[proto.Certify]int{proto.CertifyNone: 0, proto.CertifySample: 1, proto.CertifyEdges: 2, proto.CertifyAll: 3}
	for _, id := range rec.Sweeps {
		have, want := rec.Search, v.Sweeps[id].Search
		narrow := have.Min > want.Min || have.Max != 0 && (want.Max == 0 || have.Max < want.Max)
		if narrow || rank[have.Certify] < rank[want.Certify] || want.Strategy == proto.StrategyPredict && have.Strategy != proto.StrategyPredict {
			c.fail("lost", fmt.Sprintf("sweep %s asks %+v of cell %s, which is searched %+v", id, want, rec.Cell, have))
		}
	}
}

// revises checks that a settlement follows those before it.
func (c *checker) revises(rec *registry.Record) {
	c.books.revisions[rec.Key]++
	if want := c.books.revisions[rec.Key]; rec.Settled.Revision != want {
		c.fail("lost", fmt.Sprintf("the settlement of cell %s is its number %d and says %d", rec.Cell, want, rec.Settled.Revision))
	}
}

// cancels checks that nobody else's cells end with a sweep.
func (c *checker) cancels(id proto.MatrixID, after registry.View) {
	for _, key := range c.town.keys {
		rec := after.Records[key]
		if rec == nil || rec.Settled == nil || rec.Settled.State != proto.CellCancelled {
			continue
		}
		if rec.Settled.Index == after.AppliedIndex {
			c.revises(rec)
		}
		for _, sweep := range rec.Sweeps {
			if !after.Sweeps[sweep].Cancelled {
				c.fail("lost", fmt.Sprintf("cell %s ended with sweep %s, and %s wants it", rec.Cell, id, sweep))
			}
		}
	}
}

// counts keeps what a run showed that counts as the answer to a task.
func (c *checker) counts(t proto.Task, outcome proto.Outcome) {
	if outcome == proto.OutcomeOOMOutside {
		c.books.apart[aimOf(t)]++
	}
	switch says := outcome.Verdict(); {
	case says == proto.VerdictPass:
		c.books.passed[aimOf(t)] = true
	case says == proto.VerdictFail || c.books.apart[aimOf(t)] > 1:
		c.books.failed[aimOf(t)] = true
	}
}

// unproven says what a settlement claims and no counted run has shown; empty when
// the runs bear it out. Of cells whose runs differ from each other the pass alone
// is looked at.
func (c *checker) unproven(rec *registry.Record, s *registry.Settlement) string {
	b, step := s.Boundary.Boundary, rec.Cell.Step
	passed := func(q proto.Bytes) bool { return c.books.passed[aim{rec.Key.Cell, proto.TaskProbe, q}] }
	failed := func(q proto.Bytes) bool { return c.books.failed[aim{rec.Key.Cell, proto.TaskProbe, q}] }
	lowest := max(rec.Search.Min.RoundUp(step), step)
	varies := c.town.truths[rec.Key].deviates == deviateOrder
	switch {
	case s.State == proto.CellPredicted && (rec.Search.Certify == proto.CertifyEdges || rec.Search.Certify == proto.CertifyAll):
		return "its search wants it certified"
	case s.State == proto.CellPredicted:
		return ""
	case !passed(b):
		return fmt.Sprintf("no run that counts has passed at %s", b)
	case varies || b <= lowest:
		return ""
	case !failed(b - step):
		return fmt.Sprintf("no run that counts has failed at %s", b-step)
	case s.State != proto.CellCertified || rec.Search.Certify != proto.CertifyAll:
		return ""
	}
	for _, band := range s.Boundary.FailBands {
		for _, edge := range []struct {
			quota proto.Bytes
			seen  func(proto.Bytes) bool
		}{{band.From - step, passed}, {band.From, failed}, {band.To, failed}, {band.To + step, passed}} {
			if edge.quota >= lowest && !edge.seen(edge.quota) {
				return fmt.Sprintf("the edge of a fail band at %s was not probed", edge.quota)
			}
		}
	}
	return ""
}
