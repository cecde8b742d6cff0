package sim

import (
	"fmt"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

// printed is a size as torch prints it in an out-of-memory text: the unit
// changes only above 1024 of the smaller one.
func printed(n proto.Bytes) string {
	switch {
	case n <= proto.KiB:
		return fmt.Sprintf("%d bytes", int64(n))
	case n <= proto.MiB:
		return fmt.Sprintf("%.2f KiB", float64(n)/float64(proto.KiB))
	case n <= proto.GiB:
		return fmt.Sprintf("%.2f MiB", float64(n)/float64(proto.MiB))
	default:
		return fmt.Sprintf("%.2f GiB", float64(n)/float64(proto.GiB))
	}
}

// refusal are the numbers of an out-of-memory.
type refusal struct {
	tried, total, free, process proto.Bytes
	// other is what another process holds (ballast, MPS server), 0 for none;
	// otherPID names it.
	other    proto.Bytes
	otherPID int
	allowed  proto.Bytes // 0 without a cap
	// allocated and reserved are the allocator's, at the refusal.
	allocated, reserved proto.Bytes
}

// text is the sentence of torch 2.11.
func (r refusal) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "CUDA out of memory. Tried to allocate %s. GPU 0 has a total capacity of %s of which %s is free. ",
		printed(r.tried), printed(r.total), printed(r.free))
	if r.other > 0 {
		fmt.Fprintf(&b, "Process %d has %s memory in use. ", r.otherPID, printed(r.other))
	}
	fmt.Fprintf(&b, "Including non-PyTorch memory, this process has %s memory in use. ", printed(r.process))
	if r.allowed > 0 {
		fmt.Fprintf(&b, "%s allowed; ", printed(r.allowed))
	}
	fmt.Fprintf(&b, "Of the allocated memory %s is allocated by PyTorch, and %s is reserved by PyTorch but unallocated. ",
		printed(r.allocated), printed(r.reserved-r.allocated))
	b.WriteString("If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  " +
		"See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)")
	return b.String()
}
