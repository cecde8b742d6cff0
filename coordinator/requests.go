package coordinator

import (
	"context"
	"fmt"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// add commits a sweep that somebody asked for, under its id or the first free one
// behind it. Two requests that come at once and take the same id for free make two
// sweeps all the same, where each is to have its own. It fails with a RefusedError
// and as Registry.Propose does.
func (c *Coordinator) add(ctx context.Context, sweep registry.AddSweep, own bool) (SubmitReply, error) {
	for base := sweep.ID; ; {
		try := sweep
		try.ID = freeID(c.registry.View(), base, own)
		reply, err := c.propose(ctx, registry.Command{AddSweep: &try})
		if err != nil {
			return SubmitReply{}, err
		}
		made := c.registry.View().Sweeps[try.ID]
		if own && !reply.Accepted && made != nil && (sweep.Request == "" || made.Request != sweep.Request) {
			continue // another request came in between: those without a key are others too
		}
		if reply.Refused != "" {
			return SubmitReply{}, &RefusedError{Why: reply.Refused}
		}
		return SubmitReply{Matrix: proto.MatrixRef{Name: sweep.Name, ID: reply.Sweep},
			New: reply.New, Known: reply.Known, Settled: reply.Settled, Index: reply.Index}, nil
	}
}

// made answers a request that has made its sweep already.
func (c *Coordinator) made(s *registry.Sweep) (SubmitReply, error) {
	v := c.registry.View()
	c.log.Info("request came again", "sweep", s.ID)
	reply := SubmitReply{Matrix: proto.MatrixRef{Name: s.Name, ID: s.ID}, Index: v.AppliedIndex}
	for _, id := range s.Cells {
		if v.Records[registry.Key{Origin: s.Origin, Cell: id}].Settled != nil {
			reply.Settled++
		} else {
			reply.Known++
		}
	}
	return reply, nil
}

func otherRequest(made *registry.Sweep) error {
	return &RefusedError{Why: fmt.Sprintf("request %s has made sweep %s, of something else: use a key for one request only", made.Request, made.ID)}
}
