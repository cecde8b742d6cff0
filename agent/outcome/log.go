package outcome

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// Log is what ReadLog found.
type Log struct {
	// Reading is the refusal that counts, Line where it begins (from 1; 0 where
	// no allocation failed).
	Reading Reading
	Line    int
	// Refusals counts the sentences of PyTorch's allocator; what one traceback
	// chains, and what is said twice in a row, counts once. First is the
	// earliest of them, FirstLine its line.
	Refusals  int
	First     Reading
	FirstLine int
	// Size is how many bytes were read, Odd how many of them no log has.
	Size, Odd int64
}

// Binary reports whether this was hardly a text at all.
func (l Log) Binary() bool { return l.Odd*10 > l.Size*3 }

const (
	// logWindow is how much compact text is looked at together, logOverlap how
	// much of it is looked at again with what follows: more than a sentence
	// and its traceback take.
	logWindow  = 512 << 10
	logOverlap = maxSentence + 2*maxTraceback
	// logPiece is how much of one line is taken at a time.
	logPiece = 64 << 10
)

// ReadLog reads a log of any length in bounded memory. A text with one refusal
// reads as Read reads it. Of several sentences the last counts: a program may
// live through the earlier ones, and the last is what ended it. Sentences that
// one traceback chains are one refusal, of which the first counts, as the others
// are its aftermath. Whatever the length, sentences count before everything
// else, in the order that Read describes.
//
// An error is the reader's.
func ReadLog(r io.Reader) (Log, error) {
	s := logScan{log: Log{Reading: Reading{Kind: KindNotOOM}}, line: 1}
	in := bufio.NewReaderSize(r, logPiece)
	for continued := false; ; {
		piece, err := in.ReadSlice('\n')
		s.add(string(piece), continued)
		switch continued = errors.Is(err, bufio.ErrBufferFull); {
		case err == nil || continued:
		case errors.Is(err, io.EOF):
			s.look(true)
			if s.rank > 0 && s.rank < rankSentence {
				s.log.Line = s.lineOfWords()
			}
			return s.log, nil
		default:
			return s.log, fmt.Errorf("read the log: %w", err)
		}
	}
}

// logScan is a log on its way through ReadLog.
type logScan struct {
	log  Log
	rank int
	text folding
	// starts are the offsets in text.compact at which lines begin.
	starts []lineStart
	line   int // the next line's number
	// done is up to where sentences were sought, counted up to where tracebacks
	// and their links were counted since the last sentence.
	done, counted     int
	tracebacks, links int
	// window is the text in which words counted that are no sentence; where
	// they stand is sought once, at the end.
	window       string
	windowStarts []lineStart
}

type lineStart struct{ at, line int }

func (s *logScan) add(piece string, continued bool) {
	s.log.Size += int64(len(piece))
	s.log.Odd += odd(piece)
	if !continued {
		s.starts = append(s.starts, lineStart{len(s.text.compact), s.line})
	}
	s.line += strings.Count(piece, "\n")
	s.text.add(piece, continued)
	if len(s.text.compact) >= logWindow {
		s.look(false)
	}
}

// look reads the window, and lets go of all but its end unless it is the last.
func (s *logScan) look(last bool) {
	f := s.text.folded()
	end := len(f.compact)
	if !last {
		end -= maxSentence
	}
	found := s.sentences(f.compact, end)
	if !found && s.rank < rankSentence {
		if r, rank := readOthers(f); rank > 0 && rank >= s.rank {
			s.log.Reading, s.rank = r, rank
			s.window, s.windowStarts = f.compact, slices.Clone(s.starts)
		}
	}
	if !last {
		s.slide(len(f.compact) - logOverlap)
	}
}

// sentences reads those that begin before end.
func (s *logScan) sentences(text string, end int) (found bool) {
	sought := mentions{text: text}
	for s.done < end {
		start, stop := sought.next(s.done)
		if start < 0 || start >= end {
			s.done = end
			break
		}
		s.done = stop
		if one, ok := parseSentence(text[:start], text[start:stop]); ok {
			s.count(text, start)
			s.take(one.reading(), s.lineAt(start), s.links > 0 && s.links == s.tracebacks)
			s.links, s.tracebacks = 0, 0
			found = true
		}
	}
	s.count(text, end)
	return found
}

// count counts up to a place. Where every traceback since the last sentence is
// linked to the one before it, all are one chain.
func (s *logScan) count(text string, to int) {
	if to <= s.counted {
		return
	}
	between := text[s.counted:to]
	s.counted = to
	s.tracebacks += strings.Count(between, "traceback(mostrecentcalllast)")
	s.links += strings.Count(between, "duringhandlingoftheaboveexception") + strings.Count(between, "theaboveexceptionwasthedirectcause")
}

// take makes a sentence the one that counts, unless it is the same again or the
// aftermath of the one before.
func (s *logScan) take(r Reading, line int, chained bool) {
	first := s.log.Refusals == 0
	before := s.log.Reading
	switch {
	case !first && sameNumbers(before, r):
		return
	case !first && chained && (before.Total != nil || r.Total == nil):
		return
	case !first && before.Total != nil && r.Total == nil && !chained:
		s.log.Refusals++ // it says less than one that is complete
		return
	}
	if first {
		s.log.First, s.log.FirstLine = r, line
	}
	if !chained || first {
		s.log.Refusals++
	}
	s.log.Reading, s.log.Line, s.rank = r, line, rankSentence
}

// slide lets go of the text before a place, at the beginning of a line if one
// is near.
func (s *logScan) slide(at int) {
	i := max(0, s.startBefore(at))
	if i < len(s.starts) && s.starts[i].at < at && at-s.starts[i].at < logOverlap {
		at = s.starts[i].at
	}
	s.text.compact = append(s.text.compact[:0], s.text.compact[at:]...)
	s.text.lines = s.text.lines[:0]
	s.starts = append(s.starts[:0], s.starts[i:]...)
	for j := range s.starts {
		s.starts[j].at = max(0, s.starts[j].at-at)
	}
	s.done, s.counted = max(0, s.done-at), max(0, s.counted-at)
}

// startBefore is the index of the line that holds an offset.
func (s *logScan) startBefore(at int) int {
	return sort.Search(len(s.starts), func(i int) bool { return s.starts[i].at > at }) - 1
}

func (s *logScan) lineAt(at int) int {
	if i := s.startBefore(at); i >= 0 {
		return s.starts[i].line
	}
	return 1
}

// lineOfWords is near where words that are no sentence stand: the first line of
// their window that reads as the window does, or else its first line.
func (s *logScan) lineOfWords() int {
	for i, start := range s.windowStarts {
		end := len(s.window)
		if i+1 < len(s.windowStarts) {
			end = s.windowStarts[i+1].at
		}
		if r, rank := readOthers(folded{s.window[start.at:end], nil}); rank > 0 && r.Kind == s.log.Reading.Kind {
			return start.line
		}
	}
	return s.windowStarts[0].line
}

func sameNumbers(a, b Reading) bool {
	for _, pair := range [][2]*int64{
		{(*int64)(a.Tried), (*int64)(b.Tried)}, {(*int64)(a.Total), (*int64)(b.Total)}, {(*int64)(a.Free), (*int64)(b.Free)},
		{(*int64)(a.Allocated), (*int64)(b.Allocated)}, {(*int64)(a.Reserved), (*int64)(b.Reserved)}, {(*int64)(a.Allowed), (*int64)(b.Allowed)},
	} {
		if (pair[0] == nil) != (pair[1] == nil) || pair[0] != nil && *pair[0] != *pair[1] {
			return false
		}
	}
	return a.Kind == b.Kind
}

// odd counts the bytes that no log has. A zero byte is none: it is every second
// one in UTF-16.
func odd(text string) int64 {
	n := int64(0)
	for i, r := range text {
		switch {
		case r == utf8.RuneError:
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				n++
			}
		case r < ' ' && r != 0 && r != '\t' && r != '\n' && r != '\r' && r != 0x1b, r == 0x7f:
			n++
		}
	}
	return n
}
