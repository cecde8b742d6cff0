package outcome

import (
	"fmt"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

// Advise says in one to three sentences what a reading means and what to do
// next, with the numbers that the text held; one more where the text says in
// which part of the program it happened.
func Advise(r Reading) string {
	if r.Where == AtLoading {
		return join(advise(r), "It happened while the model was loading, where a second copy of weights or a cast may peak above all that follows: "+
			"size the quota by that peak, or load to the host (memory-mapped), cast there and move the result.")
	}
	return advise(r)
}

func advise(r Reading) string {
	switch r.Kind {
	case KindOOM, KindTruncated, KindAtCap, KindOtherTenant, KindFreeExceedsTried, KindUnaccounted, KindHostSpill, KindAsyncBackend:
		return adviseRefusal(r)
	case KindNoSize:
		return "The device ran out of memory outside PyTorch's caching allocator (context, kernels, a library's own buffers), so the text has no sizes. " +
			"Leave 1 to 2 GiB between the allocator's cap and the card, and run once more in a fresh process before believing it."
	case KindNCCL:
		return join("NCCL could not get device memory"+sized(r)+"; its buffers lie outside PyTorch's caching allocator.",
			"Lower the allocator's cap so that it leaves room for them, or use fewer channels (NCCL_MAX_NCHANNELS) and smaller buffers (NCCL_BUFFSIZE).")
	case KindXLA:
		return join("XLA could not get device memory"+sized(r)+".",
			"By default JAX takes three quarters of the card at start: check XLA_PYTHON_CLIENT_MEM_FRACTION and who else is on the card, then make the input smaller.")
	case KindTF:
		return join("TensorFlow's (or ONNX Runtime's) own allocator could not get memory"+sized(r)+".",
			"Check who else holds the card and whether memory growth is limited, then make the batch smaller.")
	case KindMaybe:
		if r.Where == AtFirstUse {
			return "A library could not start: at its first call it takes a context, kernels and a workspace outside PyTorch's cache, so this is most likely an out-of-memory, and a second try may pass. " +
				"Make one short warm-up run before the real ones, leave it 1 GiB beside the allocator's cap, and count it in the quota."
		}
		return "This error may hide an out-of-memory, and may also come from bad indices, a bad installation or unsupported hardware. " +
			"Run the same once in a fresh process with more free memory, or with a shorter input: if that passes, it was memory. " +
			"On MIG slices with the NVML assertion, try expandable_segments:False."
	case KindHostOOM:
		return join("The host's memory ran out, not the GPU's"+sized(r)+".",
			"Give the process or its cgroup more memory, or load fewer copies; it says nothing about the GPU's boundary.")
	case KindHostOOMKill:
		return "Something ended the process by SIGKILL, most likely the kernel or the workload manager because the host's memory ran out. " +
			"Look at the cgroup's oom_kill counter and at dmesg to be sure, as a time limit or an operator gives the same exit code; then ask for more host memory."
	case KindBogus:
		return "The size asked for is no real size: a length fell below zero or memory was corrupted. More memory will not help; look for the shape that the failing line computes."
	case KindEnvFault:
		if r.Where == InOldBuild {
			return "This build of the library has no code for this card, whose generation is newer; it is not memory. Install a build for it (an RTX 50 card needs PyTorch built for CUDA 12.8 or later). " +
				"Then measure anew: contexts, kernels and workspaces differ between cards and builds, so no quota carries over."
		}
		return "This is the machine, its driver or a setting, not memory. Take the card out of service until nvidia-smi and dmesg are clean, " +
			"check that driver and library versions fit, and that every allocator option is spelled as this version of PyTorch knows it."
	}
	return "No allocation failed in this text, whatever it says about memory in passing. Read the first error of the log."
}

// adviseRefusal is for the kinds that come from PyTorch's allocators.
func adviseRefusal(r Reading) string {
	switch r.Kind {
	case KindAtCap:
		cap := "a cap"
		if r.Allowed != nil {
			cap += " of " + pretty(*r.Allowed)
		}
		text := "Refused by " + cap + " on this process, not by the card"
		if r.Free != nil {
			text += ", which had " + pretty(*r.Free) + " free"
		}
		return join(text+"."+held(r), "Raise the cap (the memory fraction, or the quota of the slice) or make the run smaller"+reuse(r)+".")
	case KindOtherTenant:
		return join("Other processes hold the card: "+full(r)+".",
			"Move to a free card or wait; a boundary measured here would be theirs, not yours.",
			"Jobs that share a card each need their peak reserved memory and a context (about 0.5 to 1 GiB), not the size of their weights, under a quota that is enforced.")
	case KindFreeExceedsTried:
		return adviseUnexplained(r)
	case KindUnaccounted:
		return join("Most of the card is held by nobody that the text names: "+full(r)+"."+held(r),
			"Look with nvidia-smi for other processes (a container does not show those outside it) and for a dead one that still holds memory, then run again; jobs that share a card each need their peak reserved memory and a context.")
	case KindHostSpill:
		return "More was allocated than the card has, so this driver moves GPU memory to the host (Windows or WSL). " +
			"Turn that off (CUDA - Sysmem Fallback Policy) or measure on Linux: no limit seen here is the card's."
	case KindTruncated:
		return join("The sentence was cut short (PyTorch 2.3 prints a zero byte for GPU 0): "+full(r)+".",
			"It is an out-of-memory all the same: take the card's total and free memory from nvidia-smi at that time, and keep the raw log.")
	case KindAsyncBackend:
		return join("The driver's pool (backend:cudaMallocAsync) refused: "+full(r)+"."+held(r),
			"Check who else holds the card, set a limit with the memory fraction, or go back to the native backend, whose boundary can be predicted.")
	}
	return adviseFull(r)
}

// adviseUnexplained is for a refusal by a card that had room. Most often a quota
// that the text cannot know of stands below the card's size.
func adviseUnexplained(r Reading) string {
	numbers := full(r) + ", and the text names no cap"
	if both := sum(r.Reserved, r.Free); both != nil && r.Total != nil && *both > *r.Total+2*rounding {
		numbers += "; what PyTorch holds and what is free even add up to " + pretty(*both) + ", more than the card"
	}
	quota := "Most likely a quota below the card's size refused it"
	if wanted := sum(known(r.Reserved, r.Allocated), r.Tried); wanted != nil {
		quota += ", as this process held " + pretty(*known(r.Reserved, r.Allocated)) + " and would have come to " + pretty(*wanted)
	}
	return join("Refused although the card had room: "+numbers+", so the numbers do not explain it, and the card is not too small.",
		quota+": look at the scheduler's or container's limit, a vGPU, MIG or MPS share and a memory fraction (PyTorch 2.3 does not print it), and raise it to the run's peak reserved memory plus a context (about 0.5 to 1 GiB).",
		"If there is none, look for a neighbour that held memory for a moment, and for a platform (WSL, MIG, vGPU, Jetson) where expandable_segments does not work: run once more alone, without that setting.")
}

// rounding is the most by which a size printed as GiB is off.
const rounding = proto.GiB / 200

// adviseFull is for a card that this process alone has filled.
func adviseFull(r Reading) string {
	switch {
	case r.Tried != nil && r.Total != nil && *r.Tried > *r.Total:
		return join("This one request is larger than the card: "+full(r)+".",
			"No setting helps: look at what computes it, and use a smaller chunk or batch, a shorter input or a larger card.")
	case scattered(r):
		return join("The card is full: "+full(r)+", yet "+pretty(*unusedPart(r))+" of PyTorch's lie reserved but unused, in pieces that are too small.",
			"Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True alone (never together with max_split_size_mb).")
	}
	return join("The card is full: "+full(r)+"."+held(r),
		"Use a larger card, a smaller chunk or batch, or a shorter input.")
}

// scattered reports whether what PyTorch holds unused would be enough in one piece.
func scattered(r Reading) bool {
	unused := unusedPart(r)
	return unused != nil && r.Tried != nil && *unused >= *r.Tried
}

// reuse is advice to use what is held already, where that would do.
func reuse(r Reading) string {
	if !scattered(r) {
		return ""
	}
	return "; " + pretty(*unusedPart(r)) + " lie reserved but unused, which PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True alone may put to use"
}

func join(sentences ...string) string { return strings.Join(sentences, " ") }

// full says what was asked for and what was there.
func full(r Reading) string {
	parts := []string{"no sizes are known"}
	if r.Tried != nil {
		parts[0] = pretty(*r.Tried) + " was asked for"
	}
	switch {
	case r.Free != nil && r.Total != nil:
		parts = append(parts, pretty(*r.Free)+" of "+pretty(*r.Total)+" was free")
	case r.Free != nil:
		parts = append(parts, pretty(*r.Free)+" was free")
	}
	if r.Allowed != nil {
		parts = append(parts, pretty(*r.Allowed)+" was allowed")
	}
	if len(parts) > 1 && r.Tried == nil {
		parts = parts[1:]
	}
	return strings.Join(parts, ", ")
}

// sized is the size that was asked for, in brackets.
func sized(r Reading) string {
	if r.Tried == nil {
		return ""
	}
	return " (" + pretty(*r.Tried) + " was asked for)"
}

func held(r Reading) string {
	switch {
	case r.Reserved != nil && r.Allocated != nil:
		text := fmt.Sprintf(" PyTorch holds %s, of which tensors use %s", pretty(*r.Reserved), pretty(*r.Allocated))
		if r.Own != nil && *r.Own > *r.Reserved+maxContext {
			text += fmt.Sprintf("; %s more of this process lie outside PyTorch's cache (context, other libraries)", pretty(*r.Own-*r.Reserved))
		}
		return text + "."
	case r.Allocated != nil:
		return fmt.Sprintf(" Tensors use %s.", pretty(*r.Allocated))
	}
	return ""
}

// unusedPart is what the allocator reserved and no tensor uses.
func unusedPart(r Reading) *proto.Bytes {
	if r.Reserved == nil || r.Allocated == nil {
		return nil
	}
	unused := *r.Reserved - *r.Allocated
	return &unused
}

// pretty shows a size as the texts themselves do, in the unit that fits.
func pretty(b proto.Bytes) string {
	switch {
	case b >= proto.GiB:
		return fmt.Sprintf("%.2f GiB", float64(b)/float64(proto.GiB))
	case b >= proto.MiB:
		return fmt.Sprintf("%.2f MiB", float64(b)/float64(proto.MiB))
	case b >= proto.KiB:
		return fmt.Sprintf("%.2f KiB", float64(b)/float64(proto.KiB))
	}
	return fmt.Sprintf("%d bytes", int64(b))
}
