package outcome

import "github.com/oomfleet/oomfleet/proto"

// The kinds of a text, from what it says alone.
const (
	// KindOOM: the device was exhausted, and numbers are present.
	KindOOM = "oom"
	// KindAtCap: refused by a cap on this process, not by the card.
	KindAtCap = "oom_at_cap"
	// KindOtherTenant: without another process the request would have fitted.
	KindOtherTenant = "oom_other_tenant"
	// KindFreeExceedsTried: more was free than was asked for, and no cap was
	// there: the numbers do not explain it (fragmentation, the platform).
	KindFreeExceedsTried = "oom_free_exceeds_tried"
	// KindUnaccounted: what is allocated and free is far below the total, and
	// nobody is named who holds the rest.
	KindUnaccounted = "oom_unaccounted"
	// KindHostSpill: more was allocated than the card has (WSL, Windows).
	KindHostSpill = "oom_host_spill"
	// KindTruncated: the sentence was cut; only what was asked for is known.
	KindTruncated = "oom_truncated"
	// KindNoSize: a real out-of-memory text without sizes.
	KindNoSize = "oom_no_size"
	// KindAsyncBackend: the table that backend cudaMallocAsync prints.
	KindAsyncBackend = "oom_async_backend"
	// KindNCCL, KindXLA and KindTF: the words of other libraries.
	KindNCCL = "oom_nccl"
	KindXLA  = "oom_xla"
	KindTF   = "oom_tf"
	// KindMaybe: an error of a library that may hide an out-of-memory.
	KindMaybe = "maybe_oom"
	// KindHostOOM: the host's memory was refused; KindHostOOMKill: the host's
	// kernel or its workload manager ended the process.
	KindHostOOM     = "host_oom"
	KindHostOOMKill = "host_oom_kill"
	// KindBogus: the size asked for is no size (underflow, corruption).
	KindBogus = "bogus_request"
	// KindEnvFault: the machine, its driver or a setting is broken.
	KindEnvFault = "env_fault"
	// KindNotOOM: anything else.
	KindNotOOM = "not_oom"
)

// Reading is what a text says. A number that it does not hold is nil. Numbers
// are rounded to the nearest byte, ties up, from two printed decimals: good to
// half a hundredth of the unit.
type Reading struct {
	Kind string
	// Tried is the size of the request as the allocator rounded it.
	Tried *proto.Bytes
	// Total and Free are the card's.
	Total *proto.Bytes
	Free  *proto.Bytes
	// Allocated is what tensors hold, Reserved all that the caching allocator
	// holds, whatever part of it the text prints.
	Allocated *proto.Bytes
	Reserved  *proto.Bytes
	// Allowed is the cap on this process's reserved memory.
	Allowed *proto.Bytes
	// Own is what the driver counts for this process: the allocator, the
	// context and whatever else it holds. Most texts do not print it.
	Own *proto.Bytes `json:"-"`
	// Where is what the program was doing, where a text without doubt says so.
	Where Where `json:"-"`
}

// Where is a place in a program that explains a refusal.
type Where string

const (
	// AtLoading: the traceback goes through the loading of the weights.
	AtLoading Where = "loading"
	// AtFirstUse: a library was being started, which happens at its first call.
	AtFirstUse Where = "first use"
	// InOldBuild: the library was built before this card's generation.
	InOldBuild Where = "old build"
)
