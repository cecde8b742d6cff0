package outcome

import (
	"regexp"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

// Other allocators, in compact text.
var (
	aAllocated = regexp.MustCompile(`currentlyallocated:` + sizeText)
	aRequested = regexp.MustCompile(`requested:` + sizeText)
	aLimit     = regexp.MustCompile(`devicelimit:` + sizeText)
	aFree      = regexp.MustCompile(`free\(accordingtocuda\):` + sizeText)
	aAllowed   = regexp.MustCompile(`pytorchlimit(?:\([^)]{0,80}\))?:` + sizeText)

	rRequested = regexp.MustCompile(`requestedsize:` + sizeText)

	nTried   = regexp.MustCompile(`failedtocuda[a-z]{1,24}?([0-9]+)(bytes)`)
	nFailure = regexp.MustCompile(`cudafailure[0-9]{0,4}'?outofmemory`)

	// Raw bytes in parentheses win over a rounded size before them.
	rawBytes = regexp.MustCompile(`^\(?(?:roundedto)?([0-9]+)(bytes|b|\))`)
	xTried   = regexp.MustCompile(`(?:outofmemory(?:whiletryingtoallocate|allocating|tryingtoallocate)|failedtoallocate(?:requestfor)?|attemptingto(?:allocate|reserve)|ranoutofmemorytryingtoallocate)` + looseSize)
	xFree    = regexp.MustCompile(`thatwasnotpossible\.thereare` + looseSize + `free`)
	tTried   = regexp.MustCompile(`(?:ranoutofmemorytryingtoallocate|failedtoalloc(?:ate)?|allocatememoryforrequestedbufferofsize)` + looseSize + `?`)

	oTried     = regexp.MustCompile(`(?:outofmemoryallocating|cannotallocate)([0-9,]+(?:\.[0-9]+)?)(bytes|[kmgt]i?b)`)
	oAllocated = regexp.MustCompile(`(?:allocatedsofar:([0-9,]+)(bytes)|` + sizeText + `memoryhasbeenallocated)`)
	oAllowed   = regexp.MustCompile(`limitsetto:([0-9,]+)(bytes)`)
	oFree      = regexp.MustCompile(`availablememoryisonly` + sizeText)
)

// readAsync reads the table of backend cudaMallocAsync. It keeps no account of
// what the driver's pool reserves.
func readAsync(f folded) (Reading, bool) {
	if !f.has("wouldexceedallowedmemory") {
		return Reading{}, false
	}
	r := Reading{Kind: KindAsyncBackend}
	r.Allocated, _ = find(aAllocated, f.compact)
	r.Tried, _ = find(aRequested, f.compact)
	r.Total, _ = find(aLimit, f.compact)
	r.Free, _ = find(aFree, f.compact)
	r.Allowed, _ = find(aAllowed, f.compact)
	return r, true
}

func readNCCL(f folded) (Reading, bool) {
	calloc := f.has("ncclwarnfailedtocuda") && !f.has("cudafailure")
	if !calloc && (!f.has("cudafailure") || !nFailure.MatchString(f.compact)) {
		return Reading{}, false
	}
	r := Reading{Kind: KindNCCL}
	r.Tried, _ = find(nTried, f.compact)
	return r, true
}

func readXLA(f folded) (Reading, bool) {
	exhausted := f.has("resource_exhausted", "resourceexhausted:", "xlaruntimeerror", "jaxruntimeerror")
	if !exhausted || f.has("oomwhenallocatingtensor") {
		return Reading{}, false
	}
	m := xTried.FindStringSubmatchIndex(f.compact)
	switch {
	case m != nil:
	case f.has("outofmemoryallocating", "outofmemorywhiletrying", "ranoutofmemoryinmemoryspace",
		"resource_exhausted:outofmemory", "resourceexhausted:outofmemory", "resource_exhausted:failedtoallocate"):
		return Reading{Kind: KindXLA}, true
	default:
		return Reading{}, false
	}
	r := Reading{Kind: KindXLA, Tried: sizeOrRaw(f.compact, m)}
	r.Free, _ = find(xFree, f.compact)
	return r, true
}

func readTF(f folded) (Reading, bool) {
	bfc := f.has("_bfc)ranoutofmemory", "ranoutofmemorytryingtoallocate", "bfcarena", "bfc_arena")
	device := f.has("fromdevice:cuda_error_out_of_memory", "fromdevice:cudaerror")
	if !bfc && !device && !f.has("oomwhenallocatingtensor", "resourceexhaustederror:failedtoallocatememory", "failedtoallocatememory[op:") {
		return Reading{}, false
	}
	r := Reading{Kind: KindTF}
	if m := tTried.FindStringSubmatchIndex(f.compact); m != nil && m[2] >= 0 {
		r.Tried = sizeOrRaw(f.compact, m)
	}
	return r, true
}

// sizeOrRaw is the size that groups one and two of a match hold, or the raw
// bytes that follow it.
func sizeOrRaw(text string, m []int) *proto.Bytes {
	if raw, _ := find(rawBytes, text[m[1]:]); raw != nil && text[m[1]] == '(' {
		return raw
	}
	unit := "bytes"
	if m[4] >= 0 {
		unit = text[m[4]:m[5]]
	}
	size, _ := parseSize(text[m[2]:m[3]], unit)
	return size
}

// readRejected reads the words of PyTorch 2.12 for a request that it refuses
// without trying, because of a cap in the allocator's own settings.
func readRejected(f folded) (Reading, bool) {
	if !f.has("preemptivelyrejected") || !f.has("outofmemory") {
		return Reading{}, false
	}
	r := Reading{Kind: KindAtCap}
	r.Tried, _ = find(rRequested, f.compact)
	return r, true
}

// readOther reads the sentences of CuPy and PaddlePaddle.
func readOther(f folded) (Reading, bool) {
	if !f.has("outofmemoryallocating") && !f.has("outofmemoryerrorongpu") {
		return Reading{}, false
	}
	text := strings.ReplaceAll(f.compact, ",", "")
	r := Reading{Kind: KindOOM}
	if r.Tried, _ = find(oTried, text); r.Tried == nil {
		return Reading{}, false
	}
	r.Allocated, _ = find(oAllocated, text)
	r.Free, _ = find(oFree, text)
	if r.Allowed, _ = find(oAllowed, text); r.Allowed != nil {
		r.Kind = KindAtCap
	}
	return r, true
}

// readHostAllocation reads refusals of the host's memory that name a size.
func readHostAllocation(f folded) (Reading, bool) {
	host := f.has("defaultcpuallocator", "notenoughmemory:youtried", "can'tallocatememory:youtried", "can’tallocatememory:youtried",
		"onhost:cuda_error_out_of_memory") || f.has("unabletoallocate") && f.has("foranarray", "arraymemoryerror")
	if !host {
		return Reading{}, false
	}
	r := Reading{Kind: KindHostOOM}
	var huge bool
	if r.Tried, huge = find(hostTried, f.compact); huge {
		r.Kind = KindBogus
	}
	return r, true
}

// window is how much text before "out of memory" is looked at for its owner.
const window, farWindow = 48, 160

// deviceOOM reports whether the text says that a device ran out of memory. A
// mention in advice, a question or a handler's code is not an event.
func deviceOOM(f folded) bool {
	if f.has(noSizeWords...) {
		return true
	}
	const words = "outofmemory"
	at := 0
	for range maxMentions {
		i := strings.Index(f.compact[at:], words)
		if i < 0 {
			return false
		}
		start, end := at+i, at+i+len(words)
		at = end
		before, after := f.compact[:start], f.compact[end:]
		near, far := before[max(0, start-window):], before[max(0, start-farWindow):]
		if questioned(after) || hedge.MatchString(near) {
			continue
		}
		if strings.HasPrefix(after, "error") && !strings.HasSuffix(near, "java.lang.") || deviceWord.MatchString(near) || deviceError.MatchString(far) {
			return true
		}
	}
	return false
}

func questioned(after string) bool {
	after = strings.TrimPrefix(strings.TrimPrefix(after, "error"), "s")
	return strings.HasPrefix(after, "?") || strings.HasPrefix(after, ":kill")
}
