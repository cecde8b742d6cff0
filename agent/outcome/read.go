package outcome

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
		s.Kind = s.kind()
		return s.Reading
	}
	for _, reader := range []func(folded) (Reading, bool){
		readRejected, readAsync, readNCCL, readXLA, readTF, readOther, readHostAllocation,
	} {
		if r, ok := reader(f); ok {
			return r
		}
	}
	return Reading{Kind: wordsKind(f)}
}

// wordsKind is the kind of a text in which no number counts.
func wordsKind(f folded) string {
	switch {
	case f.has(killWords...):
		return KindHostOOMKill
	case deviceOOM(f):
		return KindNoSize
	case f.has(badOptions...):
		return KindEnvFault
	case f.has(maybeWords...) && !hardFault(f), maybeAssert.MatchString(f.compact):
		return KindMaybe
	case hardFault(f):
		return KindEnvFault
	case f.has(hostWords...) || memoryError.MatchString(f.compact):
		return KindHostOOM
	case killed(f):
		return KindHostOOMKill
	case f.has(softFaults...):
		return KindEnvFault
	}
	return KindNotOOM
}

// killed reports whether a line says so in the shell's words, or a code does.
func killed(f folded) bool {
	for _, line := range f.lines {
		if killLine.MatchString(line) {
			return true
		}
	}
	return killCode.MatchString(f.compact) || f.has("sigkill")
}
