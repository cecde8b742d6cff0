package outcome

import (
	"regexp"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

// sentence is what PyTorch's caching allocator says when it gives up, in any of
// its generations: the numbers moved, what each is called did not.
type sentence struct {
	Reading
	// processes is what each process that is named by its id holds (this one
	// may be among them).
	processes []proto.Bytes
	// bogus says that the size asked for is no size.
	bogus bool
}

// maxMentions bounds how many times a text's words are looked at: a log that
// repeats them without end says nothing new.
const maxMentions = 1024

// maxSentence is how much compact text after its beginning belongs to a
// sentence; lists of processes make it long.
const maxSentence = 16 << 10

// Compact text: no white space, lower case.
var (
	sTried     = regexp.MustCompile(`^triedtoallocate` + sizeText)
	sTotal     = regexp.MustCompile(`(?:totalcapaci?tyof` + sizeText + `|` + sizeText + `totalcapaci?ty)`)
	sFree      = regexp.MustCompile(sizeText + `(?:is)?free`)
	sAllocated = regexp.MustCompile(`(?:oftheallocatedmemory` + sizeText + `|` + sizeText + `alreadyallocated|mpsallocated:` + sizeText + `)`)
	sReserved  = regexp.MustCompile(sizeText + `reserved`)
	sUnused    = regexp.MustCompile(sizeText + `(?:isreserved|cached)`)
	sAllowed   = regexp.MustCompile(`(?:` + sizeText + `allowed|maxallowed:` + sizeText + `)`)
	sOwn       = regexp.MustCompile(`thisprocesshas` + sizeText + `memoryinuse`)
	sProcess   = regexp.MustCompile(`process[0-9]+has` + sizeText + `memoryinuse`)
	sMPS       = regexp.MustCompile(`mpsbackendoutofmemory\([^)]{0,200}\)\.?$`)
)

// findSentence returns the text's sentence: the first that names the card's
// total, as later ones are often the aftermath, else the first.
func findSentence(f folded) (sentence, bool) {
	var first *sentence
	sought, from := mentions{text: f.compact}, 0
	for range maxMentions {
		start, end := sought.next(from)
		if start < 0 {
			break
		}
		s, ok := parseSentence(f.compact[:start], f.compact[start:end])
		if ok && s.Total != nil {
			return s, true
		}
		if ok && first == nil {
			first = &s
		}
		from = end
	}
	if first != nil {
		return *first, true
	}
	return sentence{}, false
}

// reading is what the sentence says, judged.
func (s sentence) reading() Reading {
	s.Kind = s.kind()
	return s.Reading
}

// mentions finds the beginnings of a text's sentences one after the other. It
// keeps where the next of each word is, so that a text is gone through once,
// however many there are: a log of cut sentences names one word on every line
// and the other nowhere.
type mentions struct {
	text         string
	tried, total mention
}

// mention is where a word is next, -1 for nowhere; known once it was sought.
// looked is how many bytes were gone through for it.
type mention struct {
	found  int
	known  bool
	looked int
}

// after is where a word is first at or behind a place, -1 for nowhere. Places
// only grow.
func (m *mention) after(text, word string, at int) int {
	if !m.known || m.found >= 0 && m.found < at {
		m.known, m.found = true, strings.Index(text[at:], word)
		if m.found < 0 {
			m.looked += len(text) - at
			return -1
		}
		m.looked += m.found + len(word)
		m.found += at
	}
	return m.found
}

// next finds the first beginning of a sentence at or behind a place, -1 for
// none, and where it ends at the latest. A text may have lost its beginning ("GPU 0
// has a total capacity of"). Places only grow.
func (m *mentions) next(from int) (start, end int) {
	const tried, total = "triedtoallocate", "totalcapac"
	start = m.tried.after(m.text, tried, from)
	headless := m.total.after(m.text, total, from)
	switch {
	case start < 0 && headless < 0:
		return -1, -1
	case start < 0 || headless >= 0 && headless < start:
		start = max(from, headless-32) // the older form has the number before the words
		end = headless + len(total)
	default:
		end = start + len(tried)
	}
	if next := m.tried.after(m.text, tried, end); next >= 0 {
		end = next
	} else {
		end = len(m.text)
	}
	return start, min(end, start+maxSentence)
}

// parseSentence reads one sentence; before is the text that leads to it. It is
// not ok where nothing says that the device's memory was refused.
func parseSentence(before, text string) (s sentence, ok bool) {
	s.Where = whereSentence(before)
	before = before[max(0, len(before)-240):]
	if strings.HasSuffix(before, "you") { // "you tried to allocate": the host's allocator
		return s, false
	}
	if mps := sMPS.FindString(before); mps != "" {
		text += mps
	} else if !strings.HasSuffix(before, "outofmemory.") && !strings.Contains(text, "totalcapac") {
		return s, false
	}
	var huge bool
	s.Tried, huge = find(sTried, text)
	s.bogus = huge || strings.HasPrefix(text, "triedtoallocatemorethan")
	s.Total, _ = find(sTotal, text)
	s.Free, _ = find(sFree, text)
	s.Allocated, _ = find(sAllocated, text)
	s.Allowed, _ = find(sAllowed, text)
	s.Own, _ = find(sOwn, text)
	if s.Reserved, _ = find(sReserved, text); s.Reserved == nil {
		unused, _ := find(sUnused, text)
		s.Reserved = sum(s.Allocated, unused)
	}
	for _, m := range sProcess.FindAllStringSubmatch(text, 1024) {
		if held, _ := parseSize(m[1], m[2]); held != nil {
			s.processes = append(s.processes, *held)
		}
	}
	return s, true
}

// find parses the first size that the expression matches; its groups come in
// pairs of digits and unit, of which one pair matches.
func find(re *regexp.Regexp, text string) (size *proto.Bytes, huge bool) {
	m := re.FindStringSubmatch(text)
	for i := 1; i+1 < len(m); i += 2 {
		if m[i] != "" {
			return parseSize(m[i], m[i+1])
		}
	}
	return nil, false
}
