package coordinator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/matrix"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// ErrUnknownSweep is returned for an id that names no sweep.
var ErrUnknownSweep = errors.New("there is no such sweep")

// RefusedError is returned when the registry refuses a command that a person
// asked for. Nothing was changed, and the same again is refused again.
type RefusedError struct {
	// Why is a sentence for people.
	Why string
}

// Error is the registry's sentence.
func (e *RefusedError) Error() string { return "the registry refuses: " + e.Why }

// SubmitRequest is a matrix as a person submits it.
type SubmitRequest struct {
	// Source is the matrix file, Set its overrides (matrix.Options.Set).
	Source string
	Set    []string
	// Origin is measured or simulated: which agents are to run it.
	Origin proto.Origin
	// Again makes a sweep of its own even if the same matrix was submitted
	// before: cells that failed are tried again, all others keep what they have.
	Again bool
	// Request is a key that the client makes up for this one request; empty for
	// none. The same again counts once, also with Again; see registry.Submission.
	// Without one, each request with Again is a sweep of its own.
	Request string
}

// SubmitReply says what a submission came to.
type SubmitReply struct {
	Matrix proto.MatrixRef `json:"matrix"`
	// New cells were not known before, Known ones are in work, Settled ones
	// have their result already; together they are the matrix.
	New     int `json:"new"`
	Known   int `json:"known"`
	Settled int `json:"settled"`
	// Notices are remarks on the file; they stop nothing.
	Notices matrix.Problems `json:"notices,omitempty"`
	// Index is the raft index at which all this holds.
	Index uint64 `json:"index"`
}

// Submit expands a matrix and commits it as a sweep. Submitting the same matrix
// twice gives the same sweep and changes nothing, unless it was cancelled in
// between; the same request is one sweep whatever happens. It fails with matrix.Problems when the file is wrong, with a
// RefusedError, and as Registry.Propose does; only the leader can do it.
func (c *Coordinator) Submit(ctx context.Context, r SubmitRequest) (SubmitReply, error) {
	if r.Origin != proto.OriginMeasured && r.Origin != proto.OriginSimulated {
		return SubmitReply{}, &RefusedError{Why: fmt.Sprintf("a sweep is measured or simulated, not %q", r.Origin)}
	}
	if made := c.registry.View().Requested(r.Request); made != nil {
		if made.Origin != r.Origin || made.Source != r.Source || !slices.Equal(made.Set, r.Set) {
			return SubmitReply{}, otherRequest(made)
		}
		return c.made(made)
	}
	options := matrix.Options{Set: r.Set}
	spec, err := matrix.Parse([]byte(r.Source), options)
	if err != nil {
		return SubmitReply{}, err
	}
	agents, err := c.queue.Agents(ctx)
	if err != nil && spec.NeedsInstalled() {
		return SubmitReply{}, fmt.Errorf("list the agents that the matrix asks for: %w", err)
	}
	for _, a := range agents {
		if a.Origin == r.Origin {
			options.Installed = append(options.Installed, a.Stack)
		}
	}
	expansion, err := matrix.Expand([]byte(r.Source), options)
	if err != nil {
		return SubmitReply{}, err
	}
	sweep := registry.AddSweep{
		ID: matrixID(r.Origin, expansion), Name: expansion.Name, Origin: r.Origin, Request: r.Request,
		Search: expansion.Search, Source: r.Source, Set: slices.Clone(r.Set), Cells: expansion.Cells,
	}
	if expansion.Rollout != nil {
		sweep.Rollout = &proto.Rollout{Policy: expansion.Rollout}
	}
	reply, err := c.add(ctx, sweep, r.Again)
	if err != nil {
		return SubmitReply{}, fmt.Errorf("submit matrix %s: %w", sweep.Name, err)
	}
	reply.Notices = expansion.Notices
	c.log.Info("matrix submitted", "sweep", reply.Matrix.ID, "origin", sweep.Origin, "new", reply.New, "known", reply.Known, "settled", reply.Settled)
	return reply, nil
}

// matrixID names a submission by what it asks for, so that the same again is
// the same sweep: the matrix's name and a hash of origin, search and cells, and
// of the standing order where the file has one.
func matrixID(origin proto.Origin, e *matrix.Expansion) proto.MatrixID {
	ids := make([]proto.CellID, 0, len(e.Cells))
	for _, cell := range e.Cells {
		ids = append(ids, cell.ID())
	}
	slices.Sort(ids)
	text, err := json.Marshal(struct {
		Origin proto.Origin
		Search proto.Search
		Cells  []proto.CellID
		Policy *proto.RolloutPolicy `json:",omitempty"`
	}{origin, e.Search, ids, e.Rollout})
	if err != nil {
		panic(fmt.Sprintf("coordinator: a search is plain data and always marshals: %v", err))
	}
	sum := sha256.Sum256(text)
	return proto.MatrixID(slug(e.Name) + "-" + hex.EncodeToString(sum[:4]))
}

// freeID is id, or the first of id-2, id-3, ... that is not used up: a
// cancelled sweep stays cancelled, an order that has ended stays ended, and with
// again every sweep stays as it is.
func freeID(v registry.View, id proto.MatrixID, again bool) proto.MatrixID {
	for n, try := 2, id; ; n++ {
		sweep := v.Sweeps[try]
		if sweep == nil || !sweep.Cancelled && !again && (sweep.Rollout == nil || !sweep.Rollout.Ended) {
			return try
		}
		try = proto.MatrixID(fmt.Sprintf("%s-%d", id, n))
	}
}

// slug keeps of a name what an id may hold.
func slug(name string) string {
	kept := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name)
	if kept = strings.Trim(kept, "-"); kept == "" {
		return "matrix"
	}
	return kept
}

// Cancel stops a sweep and takes the tasks of cells that nobody else wants out
// of the queue; it says how many those are. Agents are told to end their runs of
// them; a result that comes all the same is kept as late. Cancelling twice is
// harmless. It fails with ErrUnknownSweep and as Registry.Propose does.
func (c *Coordinator) Cancel(ctx context.Context, id proto.MatrixID) (closed int, err error) {
	if c.registry.View().Sweeps[id] == nil {
		return 0, fmt.Errorf("cancel %q: %w", id, ErrUnknownSweep)
	}
	reply, err := c.propose(ctx, registry.Command{CancelSweep: &registry.CancelSweep{ID: id}})
	if err != nil {
		return 0, fmt.Errorf("cancel sweep %s: %w", id, err)
	}
	if reply.Refused != "" {
		return 0, &RefusedError{Why: reply.Refused}
	}
	pools := make(map[proto.Pool][]proto.TaskID)
	for _, t := range reply.Closed {
		pools[t.Pool()] = append(pools[t.Pool()], t.ID)
	}
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		if err := c.queue.Remove(ctx, pool, pools[pool]); err != nil {
			c.log.Warn("tasks of a cancelled sweep are still in the queue, the audit will remove them", "sweep", id, "error", err)
		}
		// After they are out of the queue, or an agent would get the next one.
		c.stop(ctx, pool, pools[pool], reply.Index)
	}
	c.log.Info("sweep cancelled", "sweep", id, "closed", len(reply.Closed))
	return len(reply.Closed), nil
}
