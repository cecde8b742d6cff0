package outcome

import "github.com/oomfleet/oomfleet/proto"

const (
	// slack is what separates "the sum reaches the limit" from "well under
	// it". Sums of printed numbers are off by several roundings (5.4 MB each
	// for GiB), and the allocator asks for whole segments of 2 or 20 MiB.
	slack = 64 * proto.MiB
	// margin is how much free memory the driver may keep to itself: a request
	// that misses by less was refused for want of memory.
	margin = 16 * proto.MiB
	// maxContext is more than any context with its libraries was seen to take
	// (1.7 GiB): memory beyond it that nobody is named for is someone else's.
	maxContext = 2 * proto.GiB
)

// kind judges a sentence by its numbers.
func (s sentence) kind() string {
	switch {
	case s.bogus:
		return KindBogus
	case s.Allowed != nil:
		return s.cappedKind()
	case s.Allocated != nil && s.Total != nil && (*s.Allocated > *s.Total || orZero(s.Reserved) > *s.Total+slack):
		return KindHostSpill
	case s.Allocated == nil:
		return KindTruncated
	case s.Free != nil && s.Tried != nil && *s.Free >= *s.Tried+margin:
		return KindFreeExceedsTried
	case s.fitsWithoutOthers():
		return KindOtherTenant
	case s.unaccounted():
		return KindUnaccounted
	}
	return KindOOM
}

// cappedKind judges a sentence that names a cap. The cap binds when the card
// had room, and when the sum reaches it; only a sum well under it, on a card
// without room, is the fault of others.
func (s sentence) cappedKind() string {
	if s.Free == nil || s.Tried != nil && *s.Free >= *s.Tried {
		return KindAtCap
	}
	held := orZero(known(s.Reserved, s.Allocated))
	if held+orZero(s.Tried)+slack >= *s.Allowed {
		return KindAtCap
	}
	if s.fitsWithoutOthers() || s.unaccounted() {
		return KindOtherTenant
	}
	return KindOOM
}

// others is what the named processes hold, this one left out. In a container
// this process may be named by an id that it does not know itself: then it is
// the one that holds what the allocator reserved and a context.
func (s sentence) others() proto.Bytes {
	var total proto.Bytes
	self, reserved := -1, orZero(s.Reserved)
	for i, held := range s.processes {
		total += held
		if s.Own == nil && reserved > 0 && held >= reserved && held <= reserved+maxContext &&
			(self < 0 || held < s.processes[self]) {
			self = i
		}
	}
	if self >= 0 {
		total -= s.processes[self]
	}
	return total
}

func (s sentence) fitsWithoutOthers() bool {
	others := s.others()
	return others > 0 && s.Free != nil && s.Tried != nil && *s.Free+others >= *s.Tried
}

// unaccounted reports whether more than half of the card, and more than any
// context, is held by nobody that the sentence names.
func (s sentence) unaccounted() bool {
	if s.Total == nil || s.Free == nil || s.Allocated == nil {
		return false
	}
	held := max(orZero(s.Own), orZero(s.Reserved), *s.Allocated) + *s.Free
	for _, p := range s.processes {
		held += p
	}
	missing := *s.Total - held
	return missing > *s.Total/2 && missing > maxContext
}
