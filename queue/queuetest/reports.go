package queuetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
)

func (b *bench) pending(want int) {
	b.Helper()
	n, err := b.q.ReportsPending(b.ctx)
	if err != nil || n != want {
		b.Fatalf("ReportsPending: %d, %v, want %d", n, err, want)
	}
}

func (b *bench) noReport() {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, never)
	defer cancel()
	rep, err := b.q.NextReport(ctx)
	if rep != nil || !errors.Is(err, context.DeadlineExceeded) {
		b.Fatalf("NextReport: %v, %v, want nothing", rep, err)
	}
}

func reportThenNext(b *bench) {
	b.noReport()
	for i := range 20 {
		b.report(NewResult(NewTask(fmt.Sprint(i%3), i, 7), "agent-1"))
	}
	b.pending(20)
	for i := range 20 {
		rep, r := b.nextReport(b.q)
		if want := NewTask(fmt.Sprint(i%3), i, 7).ID; r.Task != want {
			b.Fatalf("report %d is of task %s, want %s", i, r.Task, want)
		}
		b.ok("Ack", rep.Ack(b.ctx))
	}
	b.pending(0)
	b.noReport()
}

func reportedTwice(b *bench) {
	r := NewResult(NewTask("1", 1, 7), "agent-1")
	b.report(r)
	b.report(r)
	b.pending(1)
	rep, _ := b.nextReport(b.q)
	b.ok("Ack", rep.Ack(b.ctx))
	b.report(r) // the agent did not hear of the first time
	b.pending(0)

	other := r
	other.Agent = "agent-2"
	later := r
	later.Fence++
	again := r // the first was kept out, the task came again and was run again
	again.Outcome = proto.OutcomeCrash
	b.report(other)
	b.report(later)
	b.report(again)
	b.pending(3)
}

func reportTooLarge(b *bench) {
	r := NewResult(NewTask("1", 1, 7), "agent-1")
	r.Evidence.StderrTail = strings.Repeat("x", b.MaxMessage)
	err := b.q.Report(b.ctx, r)
	if !errors.Is(err, queue.ErrTooLarge) || !strings.Contains(err.Error(), fmt.Sprint(b.MaxMessage)) ||
		!strings.Contains(err.Error(), string(r.Task)) {
		b.Fatalf("Report: %v, want ErrTooLarge with task and limit", err)
	}
	b.pending(0)
}

func fullOfReports(b *bench) {
	for i := range 3 {
		b.report(NewResult(NewTask("1", i, 7), "agent-1"))
	}
	last := NewResult(NewTask("1", 3, 7), "agent-1")
	if err := b.q.Report(b.ctx, last); !errors.Is(err, queue.ErrFull) {
		b.Fatalf("Report into a full queue: %v, want ErrFull", err)
	}
	rep, _ := b.nextReport(b.q)
	b.ok("Ack", rep.Ack(b.ctx))
	b.report(last)
	b.pending(3)
}

// reportUnacked is a leader that dies with reports in its hands.
func reportUnacked(b *bench) {
	for i := range 3 {
		b.report(NewResult(NewTask("1", i, 7), "agent-1"))
	}
	old := b.open()
	rep, _ := b.nextReport(old)
	b.ok("Ack", rep.Ack(b.ctx))
	b.nextReport(old)
	b.ok("Close", old.Close())
	seen := map[proto.TaskID]bool{}
	for range 2 {
		rep, r := b.nextReport(b.q)
		seen[r.Task] = true
		b.ok("Ack", rep.Ack(b.ctx))
	}
	if !seen[NewTask("1", 1, 7).ID] || !seen[NewTask("1", 2, 7).ID] {
		b.Fatalf("the new leader saw %v", seen)
	}
	b.pending(0)
}

func reportsInHand(b *bench) {
	for i := range 30 {
		b.report(NewResult(NewTask("1", i, 7), "agent-1"))
	}
	var inHand []queue.Report
	for i := range 30 {
		rep, r := b.nextReport(b.q)
		if r.Task != NewTask("1", i, 7).ID {
			b.Fatalf("report %d is of task %s", i, r.Task)
		}
		inHand = append(inHand, rep)
	}
	for _, rep := range inHand {
		b.ok("Ack", rep.Ack(b.ctx))
	}
	b.pending(0)
}

func presence(b *bench) {
	agents, err := b.q.Agents(b.ctx)
	if err != nil || len(agents) != 0 {
		b.Fatalf("Agents: %v, %v", agents, err)
	}
	for _, id := range []proto.AgentID{"gpu-b", "gpu-a", "gpu-c"} {
		b.ok("Announce", b.q.Announce(b.ctx, proto.AgentInfo{ID: id, State: proto.AgentIdle}, time.Minute))
	}
	b.ok("Announce", b.q.Announce(b.ctx, proto.AgentInfo{ID: "gpu-a", State: proto.AgentBusy}, time.Minute))
	b.ok("Retire", b.q.Retire(b.ctx, "gpu-c"))
	b.ok("Retire of an unknown agent", b.q.Retire(b.ctx, "gpu-z"))
	agents, err = b.open().Agents(b.ctx)
	if err != nil || len(agents) != 2 || agents[0].ID != "gpu-a" || agents[1].ID != "gpu-b" || agents[0].State != proto.AgentBusy {
		b.Fatalf("Agents: %+v, %v, want a busy gpu-a and gpu-b", agents, err)
	}
	if err := b.q.Announce(b.ctx, proto.AgentInfo{ID: "gpu.*"}, time.Minute); err == nil {
		b.Fatal("Announce of an id that is no token: no error")
	}
}

func presenceRunsOut(b *bench) {
	b.ok("Announce", b.q.Announce(b.ctx, proto.AgentInfo{ID: "stays"}, time.Minute))
	began, ttl := time.Now(), 2*time.Second
	b.ok("Announce", b.q.Announce(b.ctx, proto.AgentInfo{ID: "goes"}, ttl))
	agents, err := b.q.Agents(b.ctx)
	if err != nil || len(agents) != 2 && time.Since(began) < ttl {
		b.Fatalf("Agents: %v, %v, want two", agents, err)
	}
	for end := time.Now().Add(soon); len(agents) != 1 && time.Now().Before(end); {
		b.nothing(NewTask("1", 1, 7).Pool()) // a wait that needs no clock of its own
		agents, err = b.q.Agents(b.ctx)
		b.ok("Agents", err)
	}
	if len(agents) != 1 || agents[0].ID != "stays" {
		b.Fatalf("Agents: %+v, want the one that stays", agents)
	}
}

func closeEnds(b *bench) {
	q := b.open()
	pool := NewTask("1", 1, 7).Pool()
	done := make(chan error, 2)
	go func() { _, err := q.Next(b.ctx, pool); done <- err }()
	go func() { _, err := q.NextReport(b.ctx); done <- err }()
	b.nothing(pool) // gives both waits time to begin
	b.ok("Close", q.Close())
	for range 2 {
		if err := <-done; !errors.Is(err, queue.ErrClosed) {
			b.Fatalf("a wait ended with %v, want ErrClosed", err)
		}
	}
	calls := map[string]error{"Close": nil}
	_, calls["Publish"] = q.Publish(b.ctx, Tasks("1", 1))
	_, calls["Waiting"] = q.Waiting(b.ctx)
	_, calls["Next"] = q.Next(b.ctx, pool)
	_, calls["ReportsPending"] = q.ReportsPending(b.ctx)
	_, calls["Agents"] = q.Agents(b.ctx)
	calls["Remove"] = q.Remove(b.ctx, pool, []proto.TaskID{"a"})
	calls["Report"] = q.Report(b.ctx, NewResult(NewTask("1", 1, 7), "agent-1"))
	calls["Announce"] = q.Announce(b.ctx, proto.AgentInfo{ID: "a"}, time.Minute)
	for name, err := range calls {
		if name != "Close" && !errors.Is(err, queue.ErrClosed) {
			b.Errorf("%s after Close: %v, want ErrClosed", name, err)
		}
	}
	b.ok("Close again", q.Close())
}
