package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/oomfleet/oomfleet/agent/runner"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

// eventsFD is where a run writes its events.
const eventsFD = 3

// Run is the whole of a run's process, the hidden subcommand that Server.Run
// names: it reads its job from stdin, writes events to descriptor 3 and returns
// the exit status, 0 for a run that ended well.
func Run(args []string, stdin io.Reader) int {
	if len(args) == 1 && args[0] == grandchildArg {
		grandchild()
	}
	out := os.NewFile(eventsFD, "events")
	var j job
	if err := json.NewDecoder(stdin).Decode(&j); err != nil {
		fmt.Fprintf(os.Stderr, "simulated run: read job: %v\n", err)
		return 2
	}
	r := run{job: j, id: runner.RunID{ID: j.Request.ID}, out: out}
	ok, err := r.answer()
	if err != nil {
		fmt.Fprintf(os.Stderr, "simulated run: %v\n", err)
		return 2
	}
	if !ok {
		return 1
	}
	return 0
}

func (j job) fault() Fault {
	if name, ok := strings.CutPrefix(j.Request.Workload.Name, workloadPrefix); ok && j.Config.TestWorkloads {
		return Fault(name)
	}
	return j.Config.Fault
}

// run is one simulated run.
type run struct {
	job
	id  runner.RunID
	out *os.File
}

// world is everything that decides how a run goes.
type world struct {
	recording
	environment
	deviation Deviation
	// adapts: the run catches a refusal.
	adapts bool
	limit  allocator.Limit
	// context and outsideNow are the bytes outside the allocator: at the start
	// and at the peak, with the driver's and the environment's part.
	context, outsideNow proto.Bytes
}

// answer runs the job; ok is whether the workload came to its end.
func (r *run) answer() (ok bool, err error) {
	if err := runner.WriteEvent(r.out, &runner.Started{RunID: r.id, PID: os.Getpid()}); err != nil {
		return false, err
	}
	memory, err := hold()
	if err != nil {
		return false, err
	}
	defer runtime.KeepAlive(memory)
	if fault := r.fault(); fault != "" {
		if err := fault.validate(); err != nil {
			return false, r.reject(unsupported("%v", err))
		}
		if err := fault.misbehave(r.out, r.Self); err != nil {
			return false, fmt.Errorf("fault %s: %w", fault, err)
		}
		if rejected := fault.broken(); rejected != nil {
			return false, r.reject(rejected)
		}
		if strings.HasPrefix(r.Request.Workload.Name, workloadPrefix) {
			r.Request.Workload.Name = "esmfold"
		}
	}
	if r.Request.Workload.Name == runner.WorkloadCheck {
		finite := true
		return true, runner.WriteEvent(r.out, &runner.Done{RunID: r.id, OutputFinite: &finite})
	}
	w, rejected, err := r.prepare()
	if err != nil {
		return false, err
	}
	if rejected != nil {
		return false, r.reject(rejected)
	}
	return r.play(w)
}

// prepare finds recording, settings and limit of the request, and what this run
// does of its own.
func (r *run) prepare() (w world, rejected *rejection, err error) {
	if w, rejected, err = worldOf(r.Config, r.Request); rejected != nil || err != nil {
		return w, rejected, err
	}
	w.deviate(r.Config.Deviations, r.Request, r.Config.Deviations.variantOf(r.Request, r.name()))
	w.limit, rejected = w.limitOf(r.Request, proto.Bytes(r.Request.QuotaBytes))
	return w, rejected, nil
}

// worldOf is all that the runs of a request's cell have in common.
func worldOf(cfg Config, req runner.Request) (w world, rejected *rejection, err error) {
	if rejected := supported(req); rejected != nil {
		return w, rejected, nil
	}
	if w.environment, rejected = understand(req); rejected != nil {
		return w, rejected, nil
	}
	var found bool
	w.recording, found, err = runOf(req.SeqLen, req.Batch, req.ChunkSize)
	if err != nil {
		return w, nil, err
	}
	if !found {
		return w, unsupported("no recording of L%d B%d chunk %d: simulated agents answer for %s, and for %s; other cells need a real GPU",
			req.SeqLen, req.Batch, req.ChunkSize, strings.Join(Programs(), "; "), strings.Join(Recorded(), ", ")), nil
	}
	w.context = w.meta.Context + cfg.ContextOffset + w.effect.context
	w.outsideNow = w.outside + cfg.ContextOffset + w.effect.outside
	w.deviation = cfg.Deviations.of(req)
	return w, nil, nil
}

// deviate changes the events as the cell's deviation says, for one variant of a
// run under the request's quota.
func (w *world) deviate(d Deviations, req runner.Request, variant int) {
	switch {
	case w.deviation.Kind == DeviateAdaptive:
		w.adapts = req.QuotaBytes > 0
	case w.deviation.Kind == DeviateOrder:
		w.events = reordered(w.events, d.random(req, fmt.Sprintf("variant %d", variant)))
	case w.deviation.Kind == DeviateExtra && req.QuotaBytes > 0:
		w.events = withExtra(w.events, w.deviation.Bytes)
	}
}

// name is what tells this run from others of its cell: the task and its
// attempt. An agent's own counter behind it is left out, so that a task which
// is delivered twice goes the same way twice.
func (r *run) name() string {
	if i := strings.LastIndexByte(r.Request.ID, '.'); i >= 0 {
		return r.Request.ID[:i]
	}
	return r.Request.ID
}

// supported refuses programs that were not recorded.
func supported(req runner.Request) *rejection {
	if req.Workload.Name != "esmfold" {
		return unsupported("workload %s was not recorded: simulated agents know esmfold only", req.Workload.Name)
	}
	known := map[string]string{"model": "esmfold_v1", "weights": "random", "stem": "bfloat16", "trunk": "float32", "recycles": "1"}
	for name, value := range req.Workload.Params {
		if known[name] != value {
			return unsupported("esmfold with %s=%s was not recorded: simulated agents know model=esmfold_v1 weights=random stem=bfloat16 trunk=float32 recycles=1", name, value)
		}
	}
	return nil
}

// limitOf is the limit on the allocator's reserved bytes under a quota.
func (w *world) limitOf(req runner.Request, quota proto.Bytes) (allocator.Limit, *rejection) {
	limit := allocator.Limit{Device: int64(Total - w.outsideNow)}
	kind, err := proto.ParseQuotaKind(req.QuotaKind)
	if err != nil && quota > 0 {
		return limit, unsupported("%v", err)
	}
	if f := w.settings.Fraction; f > 0 && f < 1 {
		limit.Cap = int64(f * float64(Total))
	}
	switch {
	case quota == 0:
	case kind == proto.QuotaAllocator:
		if limit.Cap != 0 && limit.Cap != int64(quota) || w.settings.ZeroFraction {
			return limit, &rejection{exception: "ValueError", bad: true,
				message: "per_process_memory_fraction sets a cap of its own beside the quota: drop it from the environment"}
		}
		limit.Cap = int64(quota)
	case quota < w.context:
		return limit, &rejection{exception: "AcceleratorError", message: "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect."}
	default:
		// No less than one byte: nothing would mean no limit.
		limit.Device = max(1, int64(min(quota, Total)-w.outsideNow))
	}
	return limit, nil
}

func (r *run) reject(why *rejection) error {
	return runner.WriteEvent(r.out, &runner.Failed{RunID: r.id, Phase: "start", Exception: why.exception, Message: why.message,
		Traceback: why.exception + ": " + why.message, BadCell: why.bad})
}
