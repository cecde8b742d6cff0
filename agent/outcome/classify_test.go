package outcome

import (
	"slices"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// Texts of torch 2.11.0+cu130 on one H200, as the card gave them.
const (
	atCap = "CUDA out of memory. Tried to allocate 864.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 128.68 GiB is free. " +
		"Including non-PyTorch memory, this process has 11.12 GiB memory in use. 10.75 GiB allowed; Of the allocated memory 9.43 GiB is " +
		"allocated by PyTorch, and 1.03 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting " +
		"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
	byBallast = "CUDA out of memory. Tried to allocate 864.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 213.56 MiB is free. " +
		"Process 557 has 128.46 GiB memory in use. Including non-PyTorch memory, this process has 11.12 GiB memory in use. Of the allocated " +
		"memory 9.43 GiB is allocated by PyTorch, and 1.03 GiB is reserved by PyTorch but unallocated."
	// capFree is a cap that the card ran out before.
	capFree = "CUDA out of memory. Tried to allocate 864.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 213.56 MiB is free. " +
		"50.00 GiB allowed; Of the allocated memory 9.43 GiB is allocated by PyTorch, and 1.03 GiB is reserved by PyTorch but unallocated."
	// alone is a card that the run itself filled.
	alone = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 1.00 GiB is free. Including non-PyTorch " +
		"memory, this process has 138.79 GiB memory in use. Of the allocated memory 137.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."
	// roomy is a refusal without a cap in the text (torch 2.3 prints none).
	roomy = "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 128.68 GiB is free. Of the allocated memory 9.43 GiB " +
		"is allocated by PyTorch, and 1.03 GiB is reserved by PyTorch but unallocated."
)

const quota = 11008 * proto.MiB // 10.75 GiB

// probe is a run of a cell of this quota kind under the quota.
func probe(kind proto.QuotaKind, edit ...func(*Run)) Run {
	cell := proto.Cell{Workload: proto.Workload{Name: "esmfold"}, GPU: "NVIDIA H200", Driver: "580.159.04", SeqLen: 384, Batch: 1,
		Env: map[string]string{}, QuotaKind: kind, Step: proto.DefaultStep}
	run := Run{Task: proto.Task{Kind: proto.TaskProbe, Quota: quota, Cell: cell, TimeoutSeconds: 600},
		Stack: proto.Stack{GPU: cell.GPU, Driver: cell.Driver}}
	for _, e := range edit {
		e(&run)
	}
	return run
}

func recording(r *Run) { r.Task.Kind, r.Task.Quota = proto.TaskRecord, 0 }

func oom(text string) func(*Run) { return failed("OutOfMemoryError", text) }

func failed(exception, message string) func(*Run) {
	return func(r *Run) {
		one := 1
		r.Evidence.Exception, r.Evidence.Message, r.Evidence.Phase, r.Evidence.ExitCode = exception, message, "forward", &one
	}
}

func ended(finite bool, retries int64) func(*Run) {
	return func(r *Run) {
		zero := 0
		r.Evidence.Phase, r.Evidence.OutputFinite, r.Evidence.ExitCode = "done", &finite, &zero
		r.Evidence.Meters.NumAllocRetries = &retries
	}
}

func seen(edit func(*proto.Evidence)) func(*Run) { return func(r *Run) { edit(&r.Evidence) } }

func moved(r *Run)  { r.Evidence.NeighbourMoved = 16*proto.MiB + 1 }
func shared(r *Run) { r.Evidence.Neighbours = 1 }

func env(key, value string) func(*Run) { return func(r *Run) { r.Task.Cell.Env[key] = value } }

func settings(pairs ...string) func(*Run) {
	return func(r *Run) {
		r.Evidence.Settings = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": "False", "max_split_size": "-1", "garbage_collection_threshold": "0.0"}
		for i := 0; i < len(pairs); i += 2 {
			r.Evidence.Settings[pairs[i]] = pairs[i+1]
		}
	}
}

const conf = "PYTORCH_CUDA_ALLOC_CONF"

var classifyCases = []struct {
	name string
	run  Run
	want proto.Outcome
	why  string // part of the reason
}{
	// Runs that ended.
	{"pass", probe("allocator", ended(true, 0)), proto.OutcomePass, "finite"},
	{"pass after retries", probe("allocator", ended(true, 3)), proto.OutcomePassRetried, "3 times"},
	{"output not judged", probe("allocator", seen(func(e *proto.Evidence) { e.Phase = "done" })), proto.OutcomePass, "nobody judged"},
	{"not finite", probe("allocator", ended(false, 0)), proto.OutcomeWrongOutput, "not finite"},
	{"neighbour beside an allocator's pass", probe("allocator", ended(true, 0), moved), proto.OutcomePass, ""},
	{"neighbour beside a device's pass", probe("device", ended(true, 0), moved), proto.OutcomeCrowded, "16.00 MiB"},
	{"a neighbour that breathes", probe("device", ended(true, 0), seen(func(e *proto.Evidence) { e.NeighbourMoved = 16 * proto.MiB })), proto.OutcomePass, ""},
	{"neighbour beside a recording for a process quota", probe("process", recording, ended(true, 0), moved), proto.OutcomeCrowded, ""},
	{"a helper was killed, the run was not", probe("allocator", ended(true, 0), seen(func(e *proto.Evidence) { e.HostOOMKills = 1 })), proto.OutcomePass, ""},
	{"warnings in stderr", probe("allocator", ended(true, 0), seen(func(e *proto.Evidence) { e.StderrTail = "CUDA error: out of memory" })), proto.OutcomePass, ""},

	// Allocator quota.
	{"refused by the cap", probe("allocator", oom(atCap)), proto.OutcomeOOMQuota, "10.75 GiB"},
	{"refused by the cap on a shared card", probe("allocator", oom(atCap), shared), proto.OutcomeOOMQuota, ""},
	{"refused while a neighbour moved", probe("allocator", oom(atCap), moved), proto.OutcomeCrowded, ""},
	{"cap not printed", probe("allocator", oom(roomy)), proto.OutcomeOOMQuota, ""},
	{"another's cap", probe("allocator", oom(strings.ReplaceAll(atCap, "10.75 GiB allowed", "2.00 GiB allowed"))), proto.OutcomeAgentFault, "2.00 GiB"},
	{"the cell's own cap", probe("allocator", env(conf, "per_process_memory_fraction:0.1"), oom(strings.ReplaceAll(atCap, "10.75 GiB allowed", "2.00 GiB allowed"))), proto.OutcomeBadCell, "cap of its own"},
	{"cut sentence", probe("allocator", oom("CUDA out of memory. Tried to allocate 2.00 GiB. GPU")), proto.OutcomeOOMQuota, ""},
	{"card full of others, cap printed", probe("allocator", func(r *Run) { r.Task.Quota = 50 * proto.GiB }, oom(capFree)), proto.OutcomeCrowded, ""},
	{"card full of a named other", probe("allocator", func(r *Run) { r.Task.Quota = 50 * proto.GiB }, oom(byBallast)), proto.OutcomeCrowded, ""},
	{"card full of the run itself", probe("allocator", func(r *Run) { r.Task.Quota = 141 * proto.GiB }, oom(alone)), proto.OutcomeOOMDevice, ""},
	{"card full of the run and a neighbour", probe("allocator", func(r *Run) { r.Task.Quota = 141 * proto.GiB }, oom(alone), shared), proto.OutcomeOOMDevice, ""},
	{"card full of the run, but for a neighbour", probe("allocator", func(r *Run) { r.Task.Quota = 141 * proto.GiB }, oom(strings.ReplaceAll(alone, "2.00 GiB", "1.50 GiB")), shared), proto.OutcomeCrowded, ""},
	{"recording larger than the card beside a neighbour", probe("allocator", recording, oom(alone), shared), proto.OutcomeOOMDevice, ""},
	{"room on the card and under the cap", probe("allocator", func(r *Run) { r.Task.Quota = 50 * proto.GiB }, oom(roomy)), proto.OutcomeOOMOutside, "do not explain"},
	{"2.12 rejection", probe("allocator", oom("CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit. Requested size: 1.50 GiB")), proto.OutcomeOOMQuota, ""},
	{"async backend", probe("allocator", oom("Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 10.00 GiB\nRequested               : 1.00 GiB\nDevice limit            : 139.80 GiB\nFree (according to CUDA): 128.00 GiB\nPyTorch limit (set by user-supplied memory fraction)\n                        : 10.75 GiB")), proto.OutcomeOOMQuota, ""},

	// Device and process quotas, and none.
	{"refused beside the ballast", probe("device", oom(byBallast)), proto.OutcomeOOMDevice, "device quota 10.75 GiB"},
	{"refused beside the ballast and a neighbour", probe("device", oom(byBallast), moved), proto.OutcomeCrowded, ""},
	{"room beside the ballast", probe("device", oom(roomy)), proto.OutcomeOOMOutside, ""},
	{"a cap under a device quota", probe("device", oom(atCap)), proto.OutcomeAgentFault, "set none"},
	{"refused at the process's limit", probe("process", oom(roomy)), proto.OutcomeOOMDevice, "process quota"},
	{"refused before the process's limit", probe("process", func(r *Run) { r.Task.Quota = 50 * proto.GiB }, oom(byBallast)), proto.OutcomeCrowded, ""},
	{"recording too large for the card", probe("allocator", recording, oom(alone)), proto.OutcomeOOMDevice, "whole card"},
	{"recording on a shared card", probe("allocator", recording, oom(byBallast)), proto.OutcomeCrowded, ""},
	{"recording under a cap", probe("allocator", recording, oom(atCap)), proto.OutcomeAgentFault, ""},
	{"memory moved to the host", probe("device", oom("CUDA out of memory. Tried to allocate 30.00 GiB. GPU 0 has a total capacty of 15.99 GiB of which 0 bytes is free. Of the allocated memory 30.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.")), proto.OutcomeUnsupported, ""},

	// Outside the caching allocator.
	{"no sizes", probe("device", failed("AcceleratorError", "CUDA error: out of memory")), proto.OutcomeOOMOutside, "confirmed"},
	{"cublas", probe("device", failed("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")), proto.OutcomeOOMOutside, "may hide"},
	{"cublas beside a neighbour", probe("device", failed("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), moved), proto.OutcomeCrowded, ""},
	{"an error that a refusal led to", probe("allocator", failed("RuntimeError", "fold failed"), seen(func(e *proto.Evidence) {
		e.Traceback = "torch.OutOfMemoryError: " + atCap + "\n\nRuntimeError: fold failed"
	})), proto.OutcomeOOMQuota, ""},
	{"abort with a word in stderr", probe("allocator", seen(func(e *proto.Evidence) {
		e.Signal, e.StderrTail = "aborted", "terminate called\n  what():  CUDA error: out of memory"
	})), proto.OutcomeOOMOutside, "what()"},

	// The host.
	{"killed and counted", probe("allocator", seen(func(e *proto.Evidence) { e.Signal, e.HostOOMKills = "killed", 1 })), proto.OutcomeHostMemory, ""},
	{"killed, not counted", probe("allocator", seen(func(e *proto.Evidence) { e.Signal, e.Phase = "killed", "load" })), proto.OutcomeCrash, "load"},
	{"host allocation", probe("allocator", failed("RuntimeError", "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 2359296 bytes. Error code 12 (Cannot allocate memory)")), proto.OutcomeHostMemory, ""},
	{"python's own", probe("allocator", failed("MemoryError", "")), proto.OutcomeHostMemory, ""},

	// Errors and crashes.
	{"half", probe("allocator", failed("RuntimeError", `"LayerNormKernelImpl" not implemented for 'Half'`)), proto.OutcomeCrash, "LayerNorm"},
	{"size below zero", probe("allocator", oom("CUDA out of memory. Tried to allocate more than 1EB memory")), proto.OutcomeCrash, "no size"},
	{"illegal access", probe("allocator", failed("RuntimeError", "CUDA error: an illegal memory access was encountered"), moved), proto.OutcomeCrash, ""},
	{"segmentation fault", probe("allocator", seen(func(e *proto.Evidence) { e.Signal = "segmentation fault" })), proto.OutcomeCrash, "segmentation"},
	{"exit code alone", probe("allocator", seen(func(e *proto.Evidence) { three := 3; e.ExitCode = &three })), proto.OutcomeCrash, "code 3"},
	{"nothing at all", probe("allocator"), proto.OutcomeCrash, ""},
	{"hang", probe("allocator", seen(func(e *proto.Evidence) { e.TimedOut, e.Signal, e.Phase = true, "killed", "forward" })), proto.OutcomeHang, "600 s"},

	// The cell, the stack, the agent.
	{"rejected by the runner", probe("allocator", failed("ValueError", "Unrecognized key 'bogus' in CUDA allocator config."), func(r *Run) { r.BadCell = true }), proto.OutcomeBadCell, "bogus"},
	{"rejected by the library", probe("allocator", env(conf, "bogus:1"), failed("ValueError", "Unrecognized key 'bogus' in CUDA allocator config.")), proto.OutcomeBadCell, "bogus:1"},
	{"the agent's own setting rejected", probe("allocator", failed("RuntimeError", "Unrecognized CachingAllocator option: expandable_segments")), proto.OutcomeAgentFault, ""},
	{"not simulated", probe("allocator", failed("Unsupported", "no trace covers batch 3")), proto.OutcomeUnsupported, "no trace covers"},
	{"other card", probe("allocator", ended(true, 0), func(r *Run) { r.Stack.GPU = "NVIDIA L4" }), proto.OutcomeWrongStack, "NVIDIA L4"},
	{"driver upgraded", probe("allocator", ended(true, 0), func(r *Run) { r.Stack.Driver = "580.160" }), proto.OutcomeWrongStack, "580.160"},
	{"agent's trouble", probe("allocator", oom(atCap), seen(func(e *proto.Evidence) { e.Fault = "nvidia-smi hangs: reboot the machine" })), proto.OutcomeAgentFault, "reboot"},
	{"ecc", probe("allocator", failed("RuntimeError", "CUDA error: uncorrectable ECC error encountered")), proto.OutcomeAgentFault, "ECC"},
	{"no device", probe("allocator", failed("RuntimeError", "CUDA error: no CUDA-capable device is detected")), proto.OutcomeAgentFault, ""},
	{"xid in stderr", probe("allocator", seen(func(e *proto.Evidence) {
		e.Signal, e.StderrTail = "killed", "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus."
	})), proto.OutcomeAgentFault, ""},
	{"meter says lost", probe("allocator", oom(atCap), seen(func(e *proto.Evidence) {
		e.Meters.Missing = map[string]string{"process_peak_bytes": "[GPU is lost]"}
	})), proto.OutcomeAgentFault, "process_peak_bytes"},
	{"meter not offered", probe("allocator", oom(atCap), seen(func(e *proto.Evidence) {
		e.Meters.Missing = map[string]string{"process_peak_bytes": "[N/A]"}
	})), proto.OutcomeOOMQuota, ""},

	// Settings.
	{"setting took", probe("allocator", env(conf, "expandable_segments:True,max_split_size_mb:128"), settings("expandable_segments", "True", "max_split_size", "134217728"), ended(true, 0)), proto.OutcomePass, ""},
	{"setting ignored", probe("allocator", env("PYTORCH_ALLOC_CONF", "expandable_segments:True"), settings(), ended(true, 0)), proto.OutcomeUnsupported, "setting had no effect"},
	{"setting ignored, then refused", probe("allocator", env(conf, "expandable_segments:True"), settings(), oom(atCap)), proto.OutcomeUnsupported, "setting had no effect"},
	{"split size ignored", probe("allocator", env(conf, "max_split_size_mb:128"), settings(), ended(true, 0)), proto.OutcomeUnsupported, "max_split_size"},
	{"threshold took", probe("allocator", env(conf, "garbage_collection_threshold:0.8"), settings("garbage_collection_threshold", "0.800000000000000044"), ended(true, 0)), proto.OutcomePass, ""},
	{"threshold ignored", probe("allocator", env(conf, "garbage_collection_threshold:0.8"), settings(), ended(true, 0)), proto.OutcomeUnsupported, ""},
	{"backend took", probe("allocator", env(conf, "backend:cudaMallocAsync"), ended(true, 0), seen(func(e *proto.Evidence) { e.Settings = map[string]string{"backend": "cudaMallocAsync"} })), proto.OutcomePass, ""},
	{"backend ignored", probe("allocator", env(conf, "backend:cudaMallocAsync"), settings(), ended(true, 0)), proto.OutcomeUnsupported, "native"},
	{"settings not seen", probe("allocator", env(conf, "expandable_segments:True"), ended(true, 0)), proto.OutcomePass, ""},
	{"warned of", probe("allocator", env(conf, "expandable_segments:True"), settings("expandable_segments", "True"), ended(true, 0),
		seen(func(e *proto.Evidence) {
			e.StderrTail = "UserWarning: expandable_segments not supported on this platform"
		})), proto.OutcomeUnsupported, "not supported"},
	{"platform without the calls", probe("allocator", env(conf, "expandable_segments:True"), failed("RuntimeError", "CUDA driver error: unknown error")), proto.OutcomeUnsupported, "expandable_segments"},
	{"the same without the option", probe("allocator", failed("RuntimeError", "CUDA driver error: unknown error")), proto.OutcomeAgentFault, ""},
	{"a list inside a setting", probe("allocator", env(conf, "roundup_power2_divisions:[256:1,512:2,>:4],expandable_segments:True"), settings(), ended(true, 0)), proto.OutcomeUnsupported, "expandable_segments"},
}

func TestClassify(t *testing.T) {
	reached := map[proto.Outcome]bool{}
	for _, c := range classifyCases {
		t.Run(c.name, func(t *testing.T) {
			got, why := Classify(c.run)
			reached[got] = true
			if got != c.want || !strings.Contains(why, c.why) {
				t.Errorf("got %s (%s)\nwant %s (... %s ...)", got, why, c.want, c.why)
			}
			if why == "" || strings.ContainsAny(why, "\n\x00") {
				t.Errorf("the reason is no line: %q", why)
			}
		})
	}
	for _, o := range proto.Outcomes() {
		if reached[o] == (o == proto.OutcomeLost) {
			t.Errorf("outcome %s: reached %v", o, reached[o])
		}
	}
}

// TestClassifySamples holds that every public text, under every quota kind, has
// an outcome of the closed set, and that only refusals can move a boundary.
func TestClassifySamples(t *testing.T) {
	harmless := []string{KindHostOOM, KindHostOOMKill, KindBogus, KindEnvFault, KindNotOOM, KindHostSpill}
	for _, s := range samples(t) {
		for _, kind := range proto.QuotaKinds() {
			for _, setup := range []func(*Run){func(*Run) {}, recording, moved, shared} {
				got, why := Classify(probe(kind, setup, failed("RuntimeError", s.Text)))
				verdict := got.Verdict() // panics outside the set
				if verdict == proto.VerdictPass || why == "" {
					t.Errorf("%s under %s: %s (%s)", s.ID, kind, got, why)
				}
				if slices.Contains(harmless, s.Kind) && (verdict == proto.VerdictFail || verdict == proto.VerdictConfirm) {
					t.Errorf("%s under %s moves a boundary: %s (%s)", s.ID, kind, got, why)
				}
			}
		}
	}
}
