package outcome

import (
	"regexp"
	"strings"
	"unicode"
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
	// linePrefix is one thing that loggers and people put before a line:
	// comment and quote marks, [brackets], (worker pid=1), times, levels, ranks.
	linePrefix = regexp.MustCompile(`^(?:` + strings.Join([]string{
		`#+`, `//+`, `>+`, `\*+`, `[|│%;]`,
		`\[[^\[\]]{0,80}\]:?`,
		`\([^()]{0,60}(?:pid|rank|ip)=[^()]{0,60}\)`,
		`[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?`,
		`[0-9]{2}[-/][0-9]{2}(?:[-/][0-9]{2})? [0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?`,
		`[A-Z][a-z]{2} {1,2}[0-9]{1,2} [0-9]{2}:[0-9]{2}:[0-9]{2} [^ ]{1,60} [^ ]{1,60}:`,
		`[EWIF][0-9]{4} [0-9:.]+ +[0-9]+ [^ \]]{1,80}\]`,
		`(?:TRACE|DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b:?`,
		`(?:rank|Rank)? ?[0-9]{1,5}:[ \t]`,
		`[A-Za-z0-9_.-]{1,40} +[|│] `, `-+[ \t]`, `[A-Za-z0-9_.]{1,40} - `,
	}, `|`) + `)`)
)

// maxPrefixes bounds how many prefixes one line can have.
const maxPrefixes = 8

func fold(text string) folded {
	if len(text) > maxText {
		text = text[:maxText/2] + "\n" + text[len(text)-maxText/2:]
	}
	// Bytes of zero first: they are a lost device index, or every second byte
	// of a log in UTF-16.
	text = strings.ReplaceAll(text, "\x00", "")
	text = escapes.Replace(ansiEscape.ReplaceAllString(text, ""))
	var f folded
	var compact strings.Builder
	compact.Grow(len(text))
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = trimPrefixes(line)
		f.lines = append(f.lines, line)
		for _, r := range line {
			if printed(r) {
				compact.WriteRune(unicode.ToLower(r))
			}
		}
	}
	f.compact = compact.String()
	return f
}

func trimPrefixes(line string) string {
	line = strings.TrimSpace(line)
	for range maxPrefixes {
		end := linePrefix.FindStringIndex(line)
		if end == nil {
			break
		}
		rest := strings.TrimSpace(line[end[1]:])
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
