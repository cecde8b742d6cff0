package matrix

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong in a matrix file, or a notice about it.
type Problem struct {
	// Line and Column count from 1, the column in characters. Line 0 marks a
	// problem with the submission as a whole or with an override.
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	// Excerpt is the source line with a caret below it, two lines of text in
	// which control characters are replaced; for an override it is the
	// override. Empty where there is nothing to show.
	Excerpt string `json:"excerpt,omitempty"`
}

// String is the place and the message in one line, without the excerpt.
func (p Problem) String() string {
	if p.Line == 0 {
		return p.Message
	}
	return fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Message)
}

// Problems is the error that Parse and Expand return for a bad file: all that
// was found, in the order of the file. It marshals to JSON as a plain list.
type Problems []Problem

// Error is one line for each problem, without excerpts.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// String is what a person reads: every problem with its excerpt.
func (ps Problems) String() string {
	var b strings.Builder
	for _, p := range ps {
		b.WriteString(p.String() + "\n")
		if p.Excerpt != "" {
			b.WriteString(p.Excerpt + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// maxProblems bounds a report: a file of garbage is one mistake, not a million.
const maxProblems = 100

// maxMessage bounds one message, in bytes; messages quote what they complain of.
const maxMessage = 2000

// finish puts problems into the order of the file, cuts a report that nobody
// would read to the end, and only then makes the excerpts: a line can be as long
// as the file, and a file can repeat its mistake on it a hundred thousand times.
func (r *reader) finish(ps Problems) Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
	if extra := len(ps) - maxProblems; extra > 0 {
		ps = append(ps[:maxProblems:maxProblems], Problem{Message: fmt.Sprintf("and %d more like these", extra)})
	}
	for i, p := range ps {
		if p.Line >= 1 && p.Line <= len(r.lines) {
			ps[i].Excerpt = excerpt(r.lines[p.Line-1], p.Line, p.Column)
		}
		if len(p.Message) > maxMessage {
			ps[i].Message = strings.ToValidUTF8(p.Message[:maxMessage], "") + "..."
		}
	}
	return ps
}

// excerptWidth is how much of a long line an excerpt shows.
const excerptWidth = 100

// excerpt shows a line of the source with a caret under the column.
func excerpt(line string, number, column int) string {
	text := []rune(strings.TrimRight(line, "\r\n"))
	for i, r := range text {
		switch {
		case r == '\t':
			text[i] = ' '
		case r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0):
			text[i] = '\uFFFD'
		}
	}
	at := min(max(column-1, 0), len(text))
	from := 0
	if at > excerptWidth-20 {
		from = at - excerptWidth/2
	}
	shown := text[from:min(len(text), from+excerptWidth)]
	margin := fmt.Sprintf("%5d | ", number)
	caret := strings.Repeat(" ", len(margin)-2) + "| " + strings.Repeat(" ", at-from) + "^"
	return margin + strings.TrimRight(string(shown), " ") + "\n" + caret
}
