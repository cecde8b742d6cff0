package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
)

// troubles asks the leader what of the fleet it cannot use. queueRefuses is
// whether the queue is among that. An error means that no leader answered in half
// of patience, or that it is of a build that does not know.
func troubles(ctx context.Context, client *api.Client) (waits []wait, queueRefuses bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	at, err := client.LeaderStatus(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, t := range at.Troubles {
		waits = append(waits, troubleText(t))
		queueRefuses = queueRefuses || t.Part == coordinator.PartQueue
	}
	return waits, queueRefuses, nil
}

// troubleText is a trouble with what it costs and what to do. What the part said is
// not in the sentence, which stays the same as long as the trouble does.
func troubleText(t coordinator.Trouble) wait {
	what, advice := "the leader cannot use a part of the fleet ("+string(t.Part)+")", "the leader's log says more"
	switch t.Part {
	case coordinator.PartQueue:
		what = "the queue (NATS) takes nothing more, neither tasks nor results"
		advice = "look at the disk and the log of the NATS server; make room, and start it again, as it may go on refusing what agents report until then. Nothing is lost"
	case coordinator.PartTraces:
		what = "the leader cannot read the trace store, so nothing is predicted"
		advice = "look whether it runs, and at the coordinators' keys for it. Nothing is lost"
	case coordinator.PartPrograms:
		what = "the trace store takes no programs from the leader, so more cells are recorded than need be"
		advice = "look at its disk and its limits, and at the coordinators' keys for it. Nothing is lost"
	}
	return wait{reason: what, since: t.Since, advice: fmt.Sprintf(": %s; %s", t.Message, advice)}
}

// tellTroubles writes what the leader cannot use beside something else that was
// asked for, and nothing where nobody knows.
func tellTroubles(ctx context.Context, w io.Writer, client *api.Client) error {
	waits, _, _ := troubles(ctx, client)
	for _, wait := range waits {
		if err := writeNote(w, "", wait.atLength(time.Now())); err != nil {
			return err
		}
	}
	return nil
}
