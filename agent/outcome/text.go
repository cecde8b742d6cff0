package outcome

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText is how much of a text is read, half from each end: an engineer may
// feed a whole log, and the error is where the run began to fail or ended.
const maxText = 1 << 20

// folded is a text made comparable.
type folded struct {
	// compact is the text in lower case without white space, control bytes and
	// line prefixes, so that a line wrap inside a word or a number is no wrap.
	compact string
	// lines are the lines without their prefixes, in their own case.
	lines []string
}

var (
	ansiEscape = regexp.MustCompile(`\x1b\[[0-9;?]*[ -/]*[@-~]`)
	// escapes are the line breaks of a text that lies inside a JSON string.
	escapes = strings.NewReplacer(`\r\n`, "\n", `\n`, "\n", `\r`, "\n", `\t`, "\t", `\"`, `"`)
)

// The prefixes are what loggers and people put before a line, by the character
// that they begin with: one expression for all of them is ten times slower.
var (
	namePrefix  = `[A-Za-z0-9_.-]{1,40} +[|│] `
	markPrefix  = prefixes(`#+`, `//+`, `>+`, `\*+`, `[|│%;]`) // comments, quotes
	boxPrefix   = prefixes(`\[[^\[\]]{0,80}\]:?`)
	roundPrefix = prefixes(`\([^()]{0,60}(?:pid|rank|ip)=[^()]{0,60}\)`) // (worker pid=1)
	dashPrefix  = prefixes(namePrefix, `-+[ \t]`)
	digitPrefix = prefixes( // times, ranks, names
		`[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?`,
		`[0-9]{2}[-/][0-9]{2}(?:[-/][0-9]{2})? [0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?`,
		`[0-9]{1,5}:[ \t]`, namePrefix, `[A-Za-z0-9_.]{1,40} - `)
	wordPrefix = prefixes( // the system's journal, glog, levels, ranks, names
		`[A-Z][a-z]{2} {1,2}[0-9]{1,2} [0-9]{2}:[0-9]{2}:[0-9]{2} [^ ]{1,60} [^ ]{1,60}:`,
		`[EWIF][0-9]{4} [0-9:.]+ +[0-9]+ [^ \]]{1,80}\]`,
		`(?:TRACE|DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b:?`,
		`[Rr]ank ?[0-9]{1,5}:[ \t]`, namePrefix, `[A-Za-z0-9_.]{1,40} - `)
	// wordStart is what wordPrefix needs near the beginning of a line.
	wordStart = regexp.MustCompile(`^(?:[A-Z]{4,8}\b|[A-Z][a-z]{2} {1,2}[0-9]|[EWIF][0-9]{4} |[Rr]ank)`)
)

func prefixes(alternatives ...string) *regexp.Regexp {
	return regexp.MustCompile(`^(?:` + strings.Join(alternatives, `|`) + `)`)
}

// prefix is where the line's first prefix ends, 0 for none.
func prefix(line string) int {
	var re *regexp.Regexp
	switch c := line[0]; {
	case c == '[':
		re = boxPrefix
	case c == '(':
		re = roundPrefix
	case c == '-':
		re = dashPrefix
	case c >= '0' && c <= '9':
		re = digitPrefix
	case c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_' || c == '.':
		head := line[:min(len(line), 64)]
		if !strings.Contains(head, " - ") && !strings.ContainsAny(head, "|│") && !wordStart.MatchString(head) {
			return 0
		}
		re = wordPrefix
	case strings.IndexByte("#/>*|%;", c) >= 0 || c >= 0x80:
		re = markPrefix
	default:
		return 0
	}
	if end := re.FindStringIndex(line); end != nil {
		return end[1]
	}
	return 0
}

// maxPrefixes bounds how many prefixes one line can have.
const maxPrefixes = 8

func fold(text string) folded {
	if len(text) > maxText {
		text = text[:maxText/2] + "\n" + text[len(text)-maxText/2:]
	}
	var f folding
	f.add(text, false)
	return f.folded()
}

// folding is a text on its way to being comparable.
type folding struct {
	compact []byte
	lines   []string
}

func (f *folding) folded() folded { return folded{string(f.compact), f.lines} }

// add folds more text. A continued text begins in the middle of a line, where
// nothing is a prefix.
func (f *folding) add(text string, continued bool) {
	// Bytes of zero first: they are a lost device index, or every second byte
	// of a log in UTF-16.
	text = strings.ReplaceAll(text, "\x00", "")
	text = escapes.Replace(ansiEscape.ReplaceAllString(text, ""))
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if !continued {
			line = trimPrefixes(line)
			f.lines = append(f.lines, line)
		}
		continued = false
		for _, r := range line {
			if printed(r) {
				f.compact = utf8.AppendRune(f.compact, unicode.ToLower(r))
			}
		}
	}
}

func trimPrefixes(line string) string {
	line = strings.TrimSpace(line)
	for range maxPrefixes {
		if line == "" {
			break
		}
		end := prefix(line)
		if end == 0 {
			break
		}
		rest := strings.TrimSpace(line[end:])
		if rest == "" && line[0] == '[' {
			break // "[GPU is lost]" is all that the line says
		}
		line = rest
	}
	return line
}

// printed reports whether r leaves a mark on paper.
func printed(r rune) bool {
	return r != unicode.ReplacementChar && unicode.IsGraphic(r) && !unicode.IsSpace(r)
}

// has reports whether the text holds any of these, each in lower case and
// without white space.
func (f folded) has(words ...string) bool {
	for _, w := range words {
		if strings.Contains(f.compact, w) {
			return true
		}
	}
	return false
}
