package registry

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// HistoryLimit is how many earlier coefficient sets are kept for each key, and
// how many earlier settlements for each cell.
const HistoryLimit = 16

// Machine is the replicated state. Apply is called by one goroutine, in log
// order; View by any number of goroutines at any time. The same commands with
// the same indices and times give the same state on every node.
type Machine struct {
	mu           sync.Mutex // guards all below
	appliedIndex uint64
	appliedTime  time.Time
	late         int
	restored     uint64
	sweeps       cow[proto.MatrixID, *Sweep]
	records      cow[Key, *Record]
	coefficients cow[GroupKey, *CoefficientSet]
	history      cow[GroupKey, []*CoefficientSet]
	settlements  cow[Key, []*Settlement]
	programs     cow[FamilyKey, *Program]
	members      cow[string, Member]
}

// New returns an empty machine at index 0.
func New() *Machine {
	return &Machine{}
}

// Apply applies one entry of the log and says what came of it. at is the
// entry's time as the leader wrote it; a time before the last one is taken as
// the last one, so that log time never runs backward when the leader changes.
// What a command may not do is refused in the reply, on every node alike.
// The machine keeps what cmd reaches; the caller must not change it any more.
//
// Apply panics when local state can no longer be trusted: on a command version
// that this build does not know (another node may have applied it) and on an
// index that is not above the last one.
func (m *Machine) Apply(index uint64, at time.Time, cmd Command) Reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	if index <= m.appliedIndex {
		panic(fmt.Sprintf("registry: entry %d comes after entry %d", index, m.appliedIndex))
	}
	if cmd.Version < 1 || cmd.Version > CommandVersion {
		panic(fmt.Sprintf("registry: entry %d has command version %d and this build applies 1 to %d: "+
			"upgrade this node and start it again, nothing is lost", index, cmd.Version, CommandVersion))
	}
	m.appliedIndex = index
	if at = at.UTC().Round(0); at.After(m.appliedTime) {
		m.appliedTime = at
	}
	reply := m.dispatchLocked(cmd)
	reply.Index = index
	return reply
}

func (m *Machine) dispatchLocked(cmd Command) Reply {
	if err := cmd.Validate(); err != nil {
		return Reply{Refused: err.Error()}
	}
	switch {
	case cmd.AddSweep != nil:
		return m.addSweepLocked(cmd.AddSweep)
	case cmd.CancelSweep != nil:
		return m.cancelSweepLocked(cmd.CancelSweep)
	case cmd.Issue != nil:
		return m.issueLocked(cmd.Issue)
	case cmd.TakeResult != nil:
		return m.takeResultLocked(cmd.TakeResult)
	case cmd.SetPrediction != nil:
		return m.setPredictionLocked(cmd.SetPrediction)
	case cmd.SetProgram != nil:
		return m.setProgramLocked(cmd.SetProgram)
	case cmd.Settle != nil:
		return m.settleLocked(cmd.Settle)
	case cmd.SetCoefficients != nil:
		return m.setCoefficientsLocked(cmd.SetCoefficients)
	case cmd.SetMember != nil:
		return m.setMemberLocked(cmd.SetMember)
	case cmd.SetVerdict != nil:
		return m.setVerdictLocked(cmd.SetVerdict)
	}
	panic("registry: Validate let a command pass that has no case in dispatchLocked")
}

// View is the state after the last applied entry. It costs nothing until the
// next Apply, which copies the maps it writes to; records, sweeps and sets are
// never changed in place.
func (m *Machine) View() View {
	m.mu.Lock()
	defer m.mu.Unlock()
	return View{
		AppliedIndex: m.appliedIndex,
		AppliedTime:  m.appliedTime,
		Sweeps:       m.sweeps.share(),
		Records:      m.records.share(),
		Coefficients: m.coefficients.share(),
		History:      m.history.share(),
		Settlements:  m.settlements.share(),
		Programs:     m.programs.share(),
		Members:      m.members.share(),
		Late:         m.late,
		Restored:     m.restored,
	}
}

// Hash is a hash of the whole state: nodes at the same applied index have the
// same hash, or one of them must not be trusted. It costs as much as writing a
// snapshot.
func (m *Machine) Hash() string { return m.View().Hash() }

// cow is a map that is copied before the first write after it was shared.
type cow[K comparable, V any] struct {
	m      map[K]V
	shared bool
}

func (c *cow[K, V]) share() map[K]V {
	if c.m == nil {
		c.m = map[K]V{}
	}
	c.shared = true
	return c.m
}

func (c *cow[K, V]) put(key K, value V) {
	c.own()
	c.m[key] = value
}

func (c *cow[K, V]) remove(key K) {
	c.own()
	delete(c.m, key)
}

// own makes the map one that no view shares.
func (c *cow[K, V]) own() {
	switch {
	case c.m == nil:
		c.m = map[K]V{}
	case c.shared:
		c.m = maps.Clone(c.m)
	}
	c.shared = false
}
