package outcome

import "strings"

// Read says what kind of text this is, and the numbers in it. It accepts any
// bytes: log prefixes, line wraps inside words, comment marks, control bytes,
// sentences cut short. Of a text longer than 1 MiB it reads the two ends.
//
// Where a text holds several kinds, the one with the most evidence wins: a
// refused allocation with sizes, other allocators, an out-of-memory without
// sizes, a broken machine, an error that may hide one, the host.
func Read(text string) Reading {
	f := fold(text)
	if s, ok := findSentence(f); ok {
		return s.reading()
	}
	r, _ := readOthers(f)
	return r
}

// Ranks order what may be read in parts of one text that is too long to be
// looked at as a whole: the higher is the better evidence, 0 is none.
const (
	rankSentence   = 100
	rankAllocators = 50
)

// readOthers reads a text without a sentence of PyTorch's allocator.
func readOthers(f folded) (r Reading, rank int) {
	for i, reader := range []func(folded) (Reading, bool){
		readRejected, readAsync, readNCCL, readXLA, readTF, readOther, readHostAllocation,
	} {
		if r, ok := reader(f); ok {
			return r, rankAllocators - i
		}
	}
	kind, rank := wordsKind(f)
	return Reading{Kind: kind, Where: whereKind(kind, f)}, rank
}

// wordsKind is the kind of a text in which no number counts, and its rank.
func wordsKind(f folded) (kind string, rank int) {
	switch {
	case f.has(killWords...):
		return KindHostOOMKill, 8
	case deviceOOM(f):
		return KindNoSize, 7
	case f.has(badOptions...):
		return KindEnvFault, 6
	case f.has(maybeWords...) && !hardFault(f), f.has("internalassertfailedat") && maybeAssert.MatchString(f.compact):
		return KindMaybe, 5
	case hardFault(f):
		return KindEnvFault, 4
	case f.has(hostWords...) || f.has("memoryerror") && memoryError.MatchString(f.compact):
		return KindHostOOM, 3
	case killed(f):
		return KindHostOOMKill, 2
	case f.has(softFaults...):
		return KindEnvFault, 1
	}
	return KindNotOOM, 0
}

// killed reports whether a line says so in the shell's words, or a code does.
func killed(f folded) bool {
	for _, line := range f.lines {
		if strings.Contains(line, "Killed") && killLine.MatchString(line) {
			return true
		}
	}
	return f.has("137", "247", "-9") && killCode.MatchString(f.compact) || f.has("sigkill")
}
