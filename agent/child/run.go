package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/agent/runner"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// maxTraceRows bounds the trace of one run: ESMFold makes at most a few hundred
// thousand, and a runner that never stops must not fill the agent's memory. What
// is more than a trace file may hold could not be kept anyway.
const maxTraceRows = trace.MaxEvents

// Run runs one task and returns what was seen of it. Under a cancelled context
// it kills the run with everything that it started and returns the cause.
func (p *Prober) Run(ctx context.Context, task proto.Task) (probe.Observation, error) {
	if why := refuseEnv(task.Cell.Env); why != "" {
		return probe.Observation{BadCell: true, Evidence: proto.Evidence{Exception: "EnvironmentRefused", Message: why, Phase: "start"}}, nil
	}
	if err := p.acquire(ctx); err != nil {
		return probe.Observation{}, err
	}
	defer p.release()
	if err := p.ensure(ctx); err != nil {
		return probe.Observation{}, err
	}
	p.runs++
	r := &run{task: task, tree: p.tree, timing: p.cfg.Timing, id: fmt.Sprintf("%s.%d.%d", task.ID, task.Attempt, p.runs)}
	r.tree.stdout.begin()
	r.tree.stderr.begin()
	killsBefore, killsErr := oomKills()
	if p.cfg.Meter != nil {
		r.sampler = newSampler(p.cfg.Meter, p.tree.cmd.Process.Pid, p.cfg.Timing)
	}

	err := r.drive(ctx)
	r.sampler.finish(&r.seen.Evidence)
	if kills, err := oomKills(); err == nil && killsErr == nil {
		r.seen.Evidence.HostOOMKills = kills - killsBefore
	} else {
		r.missing("host_oom_kills", errors.Join(killsErr, err))
	}
	if err == nil && r.dirty {
		err = p.tidy(r)
	} else if err != nil {
		err = p.bury(r, err)
	}
	if err != nil {
		return probe.Observation{}, err
	}
	r.seen.Evidence.StderrTail = printable(r.tree.stderr.bytes())
	return r.seen, nil
}

// tidy kills what the run left behind in processes of their own: the next run
// must find the card as this one did.
func (p *Prober) tidy(r *run) error {
	if endStragglers(p.tree, r.began, p.cfg.Timing.Kill) == nil {
		return nil
	}
	return p.kill()
}

// bury ends the runner after a run that did not end as the protocol wants, and
// decides whether that is evidence (nil) or leaves us knowing nothing.
func (p *Prober) bury(r *run, cause error) error {
	if stuck := p.kill(); stuck != nil {
		return stuck
	}
	evidence := &r.seen.Evidence
	switch {
	case errors.Is(cause, errOverdue):
		evidence.Signal = signalName("SIGKILL")
		return nil
	case errors.Is(cause, io.EOF) && evidence.HostOOMKills > 0:
		// The kernel chose the runner itself: that is host memory, not us.
		evidence.Signal = signalName("SIGKILL")
		return nil
	case errors.Is(cause, io.EOF):
		return fmt.Errorf("runner %s ended in the middle of a run: %s", p.commandLine(), r.tree.obituary())
	default:
		return cause
	}
}

// errOverdue is returned when a run was killed for its time and did not end.
var errOverdue = errors.New("run does not end after kill")

// run is the state of one run.
type run struct {
	task    proto.Task
	id      string
	tree    *tree
	timing  Timing
	sampler *sampler
	seen    probe.Observation
	// began is the start time of the run's process in clock ticks since boot,
	// 0 when it could not be read; since is when we heard of it.
	began uint64
	since time.Time
	fault string
	// ended says that done or failed came, dirty that a process was started.
	ended bool
	dirty bool
}

func (r *run) request() runner.Request {
	c := r.task.Cell
	return runner.Request{
		Op: runner.OpRun, ID: r.id, Workload: runner.Workload{Name: c.Workload.Name, Params: c.Workload.Params},
		SeqLen: c.SeqLen, Batch: c.Batch, ChunkSize: c.ChunkSize, Env: c.Env,
		QuotaKind: string(c.QuotaKind), QuotaBytes: int64(r.task.Quota), Record: r.task.Watched(),
	}
}

// ask hands the request over, which may be more than a pipe holds. A runner that
// takes nothing hangs.
func (r *run) ask() error {
	r.tree.requests.SetWriteDeadline(time.Now().Add(r.timing.Start)) //nolint:errcheck // pipes have deadlines
	err := runner.WriteRequest(r.tree.requests, r.request())
	r.tree.requests.SetWriteDeadline(time.Time{}) //nolint:errcheck // as above
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the runner took no request within %v: it may hang in the driver; look at dmesg and nvidia-smi", r.timing.Start)
	case err != nil:
		return io.EOF // nobody reads: the runner is gone
	}
	return nil
}

// drive asks for the run and takes its events until its process has ended.
func (r *run) drive(ctx context.Context) error {
	if err := r.ask(); err != nil {
		return err
	}
	limit := r.timing.Start
	timeout, stop := after(limit)
	defer func() { stop() }()
	for {
		event, err := r.tree.next(ctx, timeout)
		switch {
		case errors.Is(err, errTimeout) && r.seen.Evidence.TimedOut:
			return errOverdue
		case errors.Is(err, errTimeout) && !r.dirty:
			return fmt.Errorf("the runner started no process within %v: it may hang in the driver; look at dmesg and nvidia-smi", limit)
		case errors.Is(err, errTimeout):
			r.seen.Evidence.TimedOut = true
			runner.WriteRequest(r.tree.requests, runner.Request{Op: runner.OpKill, ID: r.id}) //nolint:errcheck // the next timeout tells
			stop()
			timeout, stop = after(r.timing.Kill)
			continue
		case err != nil:
			return err
		}
		if event.Run() != r.id && event.Run() != "" {
			return &violation{fmt.Errorf("event for run %q during run %q", event.Run(), r.id)}
		}
		over, err := r.take(event)
		if over || err != nil {
			return err
		}
		if _, ok := event.(*runner.Started); ok {
			stop()
			timeout, stop = after(time.Duration(r.task.TimeoutSeconds) * time.Second)
		}
	}
}

// take takes one event; over when it is the run's last.
func (r *run) take(event runner.Event) (over bool, err error) {
	evidence := &r.seen.Evidence
	switch e := event.(type) {
	case *runner.Started:
		r.dirty, r.since = true, time.Now()
		if p, err := readProcess(e.PID); err == nil {
			r.began = p.started
		}
		r.sampler.start(e.PID)
	case *runner.Phase:
		evidence.Phase = e.Phase
		mergeMeters(&evidence.Meters, e.Meters)
	case *runner.Trace:
		return false, r.takeTrace(e)
	case *runner.Done:
		r.ended, evidence.Phase = true, "done"
		evidence.OutputFinite, evidence.Settings, evidence.Dtypes = e.OutputFinite, e.Settings, e.Dtypes
		evidence.Seconds, evidence.TraceTruncated = e.Seconds, e.TraceTruncated
		mergeMeters(&evidence.Meters, e.Meters)
		r.sampler.stop()
	case *runner.Failed:
		r.ended, r.seen.BadCell = true, e.BadCell
		evidence.Exception, evidence.Message, evidence.Traceback = e.Exception, e.Message, e.Traceback
		evidence.Settings, evidence.Seconds = e.Settings, e.Seconds
		if e.Phase != "" {
			evidence.Phase = e.Phase
		}
		mergeMeters(&evidence.Meters, e.Meters)
		r.sampler.stop()
	case *runner.Fault:
		r.fault = e.Message
		if e.ID == "" {
			return true, errors.New(e.Message)
		}
	case *runner.Exited:
		return true, r.exit(e)
	case *runner.Hello:
		return true, &violation{errors.New("a second hello")}
	}
	return false, nil
}

func (r *run) exit(e *runner.Exited) error {
	r.sampler.stop()
	if r.fault != "" {
		return errors.New(r.fault)
	}
	evidence := &r.seen.Evidence
	evidence.ExitCode = e.Code
	evidence.Signal = signalName(e.Signal)
	if !r.ended && r.dirty && !r.tree.hello.Simulated {
		evidence.Seconds = time.Since(r.since).Seconds() // a crash occupies the card too
	}
	return nil
}

// traceAction is the action that a letter of the protocol stands for.
func traceAction(letter byte) (allocator.Action, bool) {
	switch letter {
	case runner.ActionAlloc:
		return allocator.Alloc, true
	case runner.ActionFreeRequested:
		return allocator.FreeRequested, true
	case runner.ActionFreeCompleted:
		return allocator.FreeCompleted, true
	case runner.ActionSegmentAlloc:
		return allocator.SegmentAlloc, true
	case runner.ActionSegmentFree:
		return allocator.SegmentFree, true
	case runner.ActionSegmentMap:
		return allocator.SegmentMap, true
	case runner.ActionSegmentUnmap:
		return allocator.SegmentUnmap, true
	case runner.ActionOOM:
		return allocator.OOM, true
	case runner.ActionSnapshot:
		return allocator.Snapshot, true
	}
	return 0, false
}

func (r *run) takeTrace(e *runner.Trace) error {
	if len(r.seen.Events)+len(e.Actions) > maxTraceRows {
		return &violation{fmt.Errorf("a trace of more than %d events", maxTraceRows)}
	}
	for i := range len(e.Actions) {
		action, ok := traceAction(e.Actions[i])
		if !ok {
			return &violation{fmt.Errorf("unknown action %q", e.Actions[i])}
		}
		r.seen.Events = append(r.seen.Events, allocator.Event{
			Action: action, Addr: e.Addr[i], Size: e.Size[i], Stream: e.Stream[i], TimeUS: e.TimeUS[i]})
	}
	return nil
}

func (r *run) missing(meter string, err error) {
	m := &r.seen.Evidence.Meters
	if m.Missing == nil {
		m.Missing = map[string]string{}
	}
	m.Missing[meter] = err.Error()
}

// after is a timer's channel and what stops it.
func after(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}
