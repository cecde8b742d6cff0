package child

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/agent/runner"
	"github.com/oomfleet/oomfleet/proto"
)

// Check runs the runner's built-in workload, without a quota, and returns nil
// when it came to its end with the right numbers: the card makes contexts, holds
// memory and computes. It ends as every run does, after Timing.Check at the
// latest; under a cancelled context it returns the cause.
func (p *Prober) Check(ctx context.Context) error {
	seen, err := p.Run(ctx, proto.Task{ID: "check", Kind: proto.TaskProbe, TimeoutSeconds: int((p.cfg.Timing.Check + time.Second - 1) / time.Second),
		Cell: proto.Cell{Workload: proto.Workload{Name: runner.WorkloadCheck}, SeqLen: 1, Batch: 1, QuotaKind: proto.QuotaAllocator}})
	if err != nil {
		return err
	}
	if why := failing(seen.Evidence); why != "" {
		return fmt.Errorf("%s; look at nvidia-smi -q and dmesg, and reset the card or take it out", why)
	}
	return nil
}

// failing is why a check was not passed, empty when it was. As with any run,
// what went wrong behind the end says nothing.
func failing(e proto.Evidence) string {
	const most = 240
	phase := e.Phase
	if phase == "" {
		phase = "start"
	}
	switch {
	case e.TimedOut:
		return "it comes to no end, in phase " + phase
	case e.Exception != "" || e.Message != "":
		text, _, _ := strings.Cut(strings.TrimPrefix(e.Exception+": "+e.Message, ": "), "\n")
		if text = printable([]byte(text)); len(text) > most {
			text = strings.ToValidUTF8(text[:most], "") + "..."
		}
		return text
	case e.OutputFinite != nil && *e.OutputFinite:
		return ""
	case e.OutputFinite != nil:
		return "its numbers are not finite"
	case e.Signal != "":
		return fmt.Sprintf("it ends by signal %s, in phase %s", e.Signal, phase)
	}
	return "it ends without a word, in phase " + phase
}
