package fleetsim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// cluster is raft as its users see it: one log of committed entries, in which
// only the leader's proposals come; replicas that have applied a prefix of it;
// and leaders that do not know yet that they are none any more.
type cluster struct {
	*sim
	log    []entry
	nodes  []*node
	leader *node // nil while nobody leads
	// flying are proposals under way to the log.
	flying []*proposal
	// hashes are of the state after each entry that any replica stopped to look at.
	hashes map[uint64]string
	// window is how many tasks of a pool may lie in the queue; 0 is the default,
	// which these towns never reach.
	window int
}

// entry is committed. It went through the log's codec once; replicas share what
// came out, since a machine never changes what it is given.
type entry struct {
	cmd registry.Command
	at  time.Time
	// snapshot takes the place of the whole state; cmd is then nothing. An entry
	// that has neither is a position which nobody wrote to.
	snapshot []byte
}

// proposal is a command on its way into the log.
type proposal struct {
	from *node
	cmd  registry.Command
	// seen is what its node knew when it was made.
	seen  registry.View
	reply registry.Reply
	err   error
	// landed: it is in the log, or will never be. believed: its answer comes
	// through whoever leads (a planted bug).
	landed, believed bool
}

// node is one coordinator's machine.
type node struct {
	*cluster
	id      int
	machine *registry.Machine
	// applied is the log position that it has come to, last the last entry there.
	applied, last uint64
	up            bool
	skew          time.Duration
	// service is the real coordinator, term its present term; nil without one.
	service *coordinator.Coordinator
	term    *term
	// stored is the snapshot that outlives the process.
	stored []byte
}

func newCluster(s *sim, nodes int) (*cluster, error) {
	c := &cluster{sim: s, hashes: make(map[uint64]string), window: one(s.dice.of("window"), 0, 0, 1, 2, 5)}
	for i := range nodes {
		n := &node{cluster: c, id: i, machine: registry.New(), up: true}
		c.nodes = append(c.nodes, n)
		if err := n.boot(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// boot starts the node's process: what only its memory held is gone.
func (n *node) boot() error {
	service, err := coordinator.New(coordinator.Config{Pause: 1, ReplayWorkers: 2, TasksPerPool: n.window},
		coordinator.Deps{Registry: n, Queue: queueClient{n}, Traces: storeClient{n.sim}, Garbage: storeClient{n.sim}, Now: n.today})
	n.service = service
	return err
}

// Propose implements coordinator.Registry, for the processes of this node.
func (n *node) Propose(ctx context.Context, cmd registry.Command) (registry.Reply, error) {
	p := &proposal{from: n, cmd: cmd, seen: n.View()}
	err := n.await(func(done func()) { n.send(p, done) })
	if err != nil {
		return registry.Reply{}, err
	}
	return p.reply, p.err
}

// epoch is when each history begins.
func epoch() time.Time { return time.Unix(1_700_000_000, 0) }

// clock is what the machine believes the time to be.
func (n *node) clock() time.Time {
	return epoch().Add(n.now + n.wall + n.skew)
}

// send takes a proposal to the log and its answer back.
func (c *cluster) send(p *proposal, done func()) {
	c.flying = append(c.flying, p)
	if p.cmd.Settle != nil {
		c.ambush(func(sw sweep) bool {
			return slices.ContainsFunc(sw.Cells, func(cell proto.Cell) bool { return cell.ID() == p.cmd.Settle.Key.Cell })
		})
	}
	c.after(c.latency("log", 2*time.Millisecond, 20*time.Millisecond), func() {
		if !p.landed {
			c.land(p)
		}
		c.after(c.latency("log", time.Millisecond, 10*time.Millisecond), func() {
			if p.err == nil && !p.believed && (c.leader != p.from || c.trouble.hits(c.now, FaultUncertain, 20)) {
				p.err = fmt.Errorf("%w: the answer was lost", registry.ErrUncertain)
			}
			done()
		})
	})
}

// land decides what becomes of a proposal that reached the log.
func (c *cluster) land(p *proposal) {
	p.landed = true
	c.flying = slices.DeleteFunc(c.flying, func(o *proposal) bool { return o == p })
	switch {
	case c.cfg.mutation == splitBrain && p.from.up && p.from.term != nil && c.leader != nil && c.leader != p.from:
		c.splitBrain(p)
	case !p.from.up || c.leader != p.from:
		p.err = &registry.NotLeaderError{}
		c.note("node %d: %s is not committed, it does not lead any more", p.from.id, nameOfCommand(p.cmd))
	default:
		c.commit(p)
	}
}

// commit appends a proposal to the log and applies it on the leader.
func (c *cluster) commit(p *proposal) {
	text, err := registry.EncodeCommand(p.cmd)
	if err != nil {
		p.err = err
		return
	}
	cmd, err := registry.DecodeCommand(text)
	if err != nil {
		c.check.fail("log", fmt.Sprintf("%s cannot be read back: %v", nameOfCommand(p.cmd), err))
		return
	}
	leader := c.leader
	c.log = append(c.log, entry{cmd: cmd, at: leader.clock()})
	index := uint64(len(c.log))
	before := leader.machine.View()
	p.reply = leader.apply(index)
	c.note("entry %d by node %d: %s%s", index, leader.id, nameOfCommand(p.cmd), outcomeOfReply(p.reply))
	c.check.committed(before, leader.machine.View(), p)
	if c.cfg.mutation == twice && leader.id != 0 {
		c.triggerAgain(p)
	}
	leader.wake()
	for _, other := range c.nodes {
		if other != leader {
			c.after(c.latency("log", time.Millisecond, 40*time.Millisecond), func() {
				if other.up && !c.trouble.hits(c.now, FaultSlow, 300) {
					other.catchUp(index)
				}
			})
		}
	}
}

// catchUp applies the log up to an index.
func (n *node) catchUp(index uint64) {
	for n.applied < index {
		n.apply(n.applied + 1)
	}
}

// every is after how many entries the replicas' states are compared.
const every = 24

func (n *node) apply(index uint64) registry.Reply {
	e := n.log[index-1]
	n.applied = index
	switch {
	case e.snapshot != nil:
		if err := n.machine.Restore(bytes.NewReader(e.snapshot)); err != nil {
			n.check.fail("snapshot", fmt.Sprintf("node %d does not take the restored state: %v", n.id, err))
		}
		if at := n.machine.View().AppliedIndex; at != index {
			n.check.fail("snapshot", fmt.Sprintf("what is restored at position %d says that it is of %d", index, at))
		}
		n.last = index
		n.compare()
		return registry.Reply{}
	case e.cmd.Version == 0:
		return registry.Reply{}
	}
	n.last = index
	reply := n.machine.Apply(index, e.at, n.mutate(e.cmd))
	if index%every == 0 {
		n.compare()
	}
	return reply
}

// compare holds the node's state against that of whoever was here before.
func (n *node) compare() {
	hash := n.machine.Hash()
	if known, ok := n.hashes[n.applied]; ok && known != hash {
		n.check.fail("replica", fmt.Sprintf("node %d has another state than others after entry %d", n.id, n.applied))
	}
	n.hashes[n.applied] = hash
}

// elect makes another node the leader. What the old one has in flight is in the
// log already, ahead of everything the new one does, or never will be.
func (c *cluster) elect(next *node) {
	old := c.leader
	for _, p := range slices.Clone(c.flying) {
		if p.from == old && old != nil && c.dice.chance("in flight", 50) {
			c.land(p)
			p.err = fmt.Errorf("%w: leadership was lost", registry.ErrUncertain)
		}
	}
	c.leader = next
	if next == nil {
		return
	}
	next.catchUp(uint64(len(c.log)))
	c.note("node %d leads", next.id)
	c.after(c.dice.between("election", 5*time.Millisecond, 50*time.Millisecond), next.lead)
	if old != nil && old != next && old.up {
		// It finds out at its own time, and works on until then.
		c.after(c.dice.between("election", 0, 4*time.Second), func() {
			if c.leader != old {
				old.depose()
			}
		})
	}
}

// crash ends the node's process; it comes back from its snapshot and the log.
func (n *node) crash(down time.Duration) {
	n.note("node %d dies", n.id)
	n.up = false
	if n.term != nil {
		n.term.kill()
		n.term = nil
	}
	if n.leader == n {
		n.elect(nil)
		n.after(n.dice.between("election", 300*time.Millisecond, 2*time.Second), func() {
			if n.leader == nil {
				n.elect(one(n.dice.of("election"), n.alive()...))
			}
		})
	}
	n.after(down, n.restart)
}

func (c *cluster) alive() []*node {
	var up []*node
	for _, other := range c.nodes {
		if other.up {
			up = append(up, other)
		}
	}
	return up
}

func (n *node) restart() {
	n.note("node %d starts again", n.id)
	n.up, n.machine, n.applied = true, registry.New(), 0
	if n.stored != nil {
		if err := n.machine.Restore(bytes.NewReader(n.stored)); err != nil {
			n.check.fail("snapshot", fmt.Sprintf("node %d does not take its own snapshot: %v", n.id, err))
		}
		n.applied = n.machine.View().AppliedIndex
		n.last = n.applied
	}
	if err := n.boot(); err != nil {
		n.check.fail("boot", err.Error())
	}
	n.catchUp(uint64(len(n.log)))
	n.compare()
}

// snapshot stores the state, and puts it in place of itself.
func (n *node) snapshot() {
	var text bytes.Buffer
	before := n.machine.Hash()
	if err := n.machine.Snapshot(&text); err != nil {
		n.check.fail("snapshot", err.Error())
		return
	}
	n.stored = text.Bytes()
	if n.leader == n {
		return // a leader's view is in use
	}
	n.machine = registry.New()
	err := n.machine.Restore(bytes.NewReader(n.stored))
	if after := n.machine.Hash(); err != nil || after != before {
		n.check.fail("snapshot", fmt.Sprintf("node %d is another after a snapshot at entry %d: %v", n.id, n.applied, err))
	}
}

// View, Changed and Leadership implement coordinator.Registry. Changed is for
// Coordinator.Run, whose place the simulator takes.
func (n *node) View() registry.View { return n.machine.View() }

// Changed is never asked by a coordinator.Term.
func (n *node) Changed(uint64) <-chan struct{} { panic("fleetsim: Changed is the simulator's own") }

// Leadership is what the node believes; nobody waits for it to change.
func (n *node) Leadership() (bool, <-chan struct{}) { return n.term != nil, nil }

func stepsDown(err error) bool {
	return errors.Is(err, registry.ErrNotLeader) || errors.Is(err, registry.ErrClosed)
}
