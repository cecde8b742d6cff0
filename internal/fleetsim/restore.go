package fleetsim

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// backup is the registry as somebody has kept it, and what the checker's books
// were then.
type backup struct {
	text  []byte
	index uint64
	// content is the hash of what it holds.
	content string
	books   memory
}

// gap is by how many positions a restore goes on before the backup's content
// holds: raft leaves out those that were in use.
const gap = 3

// keep takes a backup from the leader; nil where nobody leads, or a town's order
// does not stand yet.
func (c *cluster) keep() *backup {
	if c.leader == nil || c.town.order != nil && c.stands(c.view()) == nil {
		return nil
	}
	var text bytes.Buffer
	v := c.leader.machine.View()
	if err := v.WriteBackup(&text); err != nil {
		c.check.fail("snapshot", err.Error())
		return nil
	}
	c.note("a backup is taken at entry %d", v.AppliedIndex)
	return &backup{text: text.Bytes(), index: v.AppliedIndex, content: v.Content(), books: c.check.remember()}
}

// restore puts a backup into the registry's place, as raftnode.Node.Restore does:
// at a position above all others, on every node. What is under way may end with it,
// or come after it.
func (c *cluster) restore(b *backup) {
	if c.leader == nil || !c.leader.up {
		return
	}
	old, err := registry.ReadBackup(bytes.NewReader(b.text))
	if err == nil {
		err = old.Whole()
	}
	if err != nil {
		c.check.fail("snapshot", fmt.Sprintf("the backup of entry %d is refused: %v", b.index, err))
		return
	}
	c.note("the backup of entry %d takes the registry's place", b.index)
	for _, p := range slices.Clone(c.flying) {
		if c.dice.chance("aborted", 50) {
			p.landed, p.err = true, fmt.Errorf("%w: aborted by a restore", registry.ErrUncertain)
			c.flying = slices.DeleteFunc(c.flying, func(o *proposal) bool { return o == p })
		}
	}
	now := c.leader.machine.View()
	if c.cfg.mutation == reused {
		c.rewind(b)
	} else {
		at := max(old.AppliedIndex, uint64(len(c.log))) + gap
		c.log = append(c.log, make([]entry, at-1-uint64(len(c.log)))...)
		var text bytes.Buffer
		if err := old.Replacing(now, at).WriteSnapshot(&text); err != nil {
			c.check.fail("snapshot", err.Error())
			return
		}
		c.log = append(c.log, entry{snapshot: text.Bytes()}, entry{}) // raft burns the position after it
	}
	c.check.books.Restores++
	c.check.recall(b.books, uint64(len(c.log)))
	for _, n := range c.nodes {
		if n.up && (n == c.leader || c.dice.chance("restored", 50)) {
			n.catchUp(uint64(len(c.log)))
		}
	}
	if c.view().Content() != b.content {
		c.check.fail("snapshot", fmt.Sprintf("what is restored is not what the backup of entry %d was taken of", b.index))
	}
	c.leader.wake()
	c.resubmit()
}

// rewind is a restore that goes on where the backup was taken: positions, and with
// them fences, come a second time.
func (c *cluster) rewind(b *backup) {
	c.log = c.log[:b.index]
	maps.DeleteFunc(c.hashes, func(index uint64, _ string) bool { return index > b.index })
	for _, n := range c.nodes {
		n.stored, n.applied, n.machine = nil, 0, registry.New()
		if n.up {
			n.catchUp(b.index)
		}
	}
}

// resubmit is people who miss what they had asked for since the backup.
func (s *sim) resubmit() {
	v := s.view()
	for _, sw := range s.town.sweeps {
		sweep := v.Sweeps[sw.ID]
		if s.check.books.submitted[sw.ID] && sweep == nil {
			s.after(s.dice.between("resubmit", 0, 20*time.Second), func() { s.submit(registry.Command{AddSweep: &sw.AddSweep}) })
		}
		if s.check.cancelled[sw.ID] && (sweep == nil || !sweep.Cancelled) {
			s.check.cancelled[sw.ID] = false
			s.after(s.dice.between("resubmit", 0, 20*time.Second), func() { s.cancel(sw.ID) })
		}
	}
}

// memory is what the checker's books hold of the registry: all that a restore
// takes back.
type memory struct {
	open              map[run]bool
	counted           map[run]int
	settled           map[registry.Key]uint64
	revisions         map[registry.Key]int
	passed, failed    map[aim]bool
	apart             map[aim]int
	offered, accepted int
	rollouts          rollouts
}

func (c *checker) remember() memory {
	m := memory{open: make(map[run]bool), counted: maps.Clone(c.counted), settled: maps.Clone(c.settled), revisions: maps.Clone(c.books.revisions),
		passed: maps.Clone(c.books.passed), failed: maps.Clone(c.books.failed), apart: maps.Clone(c.books.apart), offered: c.offered, accepted: c.accepted, rollouts: c.rollouts.clone()}
	for r := range c.open {
		m.open[r] = true
	}
	return m
}

// recall takes the books back to what they were. What was issued stays issued: no
// task and fence may come a second time.
func (c *checker) recall(m memory, at uint64) {
	c.open = make(map[run]proto.Task)
	for r := range m.open {
		c.open[r] = c.books.issued[r]
	}
	c.counted, c.settled, c.books.revisions = maps.Clone(m.counted), maps.Clone(m.settled), maps.Clone(m.revisions)
	c.books.passed, c.books.failed, c.books.apart = maps.Clone(m.passed), maps.Clone(m.failed), maps.Clone(m.apart)
	c.offered, c.accepted, c.rollouts = m.offered, m.accepted, m.rollouts.clone()
	c.books.restored = at
}

func (r rollouts) clone() rollouts {
	return rollouts{started: slices.Clone(r.started), swept: maps.Clone(r.swept), verdicts: maps.Clone(r.verdicts), repeats: maps.Clone(r.repeats), owed: maps.Clone(r.owed)}
}
