package outcome

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// TestReadMangled holds that what logs, terminals and people do to a text
// changes nothing that is read from it.
func TestReadMangled(t *testing.T) {
	eachLine := func(prefix string) func(string) string {
		return func(text string) string { return prefix + strings.ReplaceAll(text, "\n", "\n"+prefix) }
	}
	for _, m := range []struct {
		name   string
		mangle func(string) string
	}{
		{"comment", eachLine("# ")},
		{"quote", eachLine("> ")},
		{"rank", eachLine("[rank1]: ")},
		{"worker", eachLine("(VllmWorker rank=3 pid=1090) ERROR 06-05 06:18:13 [multiproc_executor.py:470] ")},
		{"logging", eachLine("2025-11-12 11:25:13,496 - ERROR ")},
		{"logger", eachLine("2025-11-12 11:25:13,496 - vllm.engine - ERROR - ")},
		{"ci", eachLine("2025-11-12T11:25:13.4961658Z ")},
		{"compose", eachLine("worker-1  | ")},
		{"journal", eachLine("Nov 29 17:45:01 node01 python3[771]: ")},
		{"srun", eachLine("3: ")},
		{"windows", func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") + "\r\n" }},
		{"color", func(s string) string { return "\x1b[1;31m" + s + "\x1b[0m" }},
		{"zero byte for the index", func(s string) string { return strings.ReplaceAll(s, "GPU 0 has", "GPU \x00 has") }},
		{"one byte for the index", func(s string) string { return strings.ReplaceAll(s, "GPU 0 has", "GPU \x01 has") }},
		{"tenth index", func(s string) string { return strings.ReplaceAll(s, "GPU 0 has", "GPU \n has") }},
		{"index lost", func(s string) string { return strings.ReplaceAll(s, "GPU 0 has", "GPU has") }},
		{"utf-16", func(s string) string { return strings.Join(strings.Split(s, ""), "\x00") }},
		{"inside json", func(s string) string { q := strconv.Quote(s); return q[1 : len(q)-1] }},
		{"capacty", func(s string) string { return strings.ReplaceAll(s, "capacity", "capacty") }},
		{"hip", func(s string) string {
			return strings.NewReplacer("CUDA out of memory", "HIP out of memory", "CUDA_ALLOC_CONF", "HIP_ALLOC_CONF").Replace(s)
		}},
		{"traceback", func(s string) string {
			return "Traceback (most recent call last):\n  File \"/opt/fold.py\", line 12, in <module>\n    out = model(x)\n" + s + "\n"
		}},
	} {
		t.Run(m.name, func(t *testing.T) {
			for _, s := range samples(t) {
				text := m.mangle(s.Text)
				if got, want := show(Read(text)), show(s.reading()); got != want {
					t.Errorf("%s: %q\n got %s\nwant %s", s.ID, text, got, want)
				}
			}
		})
	}
}

// TestReadWrapped wraps every text at every third place, and comments the second
// half of some, as an editor would.
func TestReadWrapped(t *testing.T) {
	for i, s := range samples(t) {
		if s.Kind == KindHostOOMKill {
			continue // one word on a line of its own is no longer that
		}
		for at := 1 + i%3; at < len(s.Text); at += 3 {
			// A rest that looks like a line prefix of its own is ambiguous.
			if rest := s.Text[at:]; trimPrefixes(rest) != strings.TrimSpace(rest) {
				continue
			}
			text := s.Text[:at] + []string{"\n", "\n# "}[at%2] + s.Text[at:]
			if got, want := show(Read(text)), show(s.reading()); got != want {
				t.Fatalf("%s: %q\n got %s\nwant %s", s.ID, text, got, want)
			}
		}
	}
}

// TestReadCut cuts every sentence with sizes at every place: it stays an
// out-of-memory, and a number that is read is a number that was whole.
func TestReadCut(t *testing.T) {
	for _, s := range samples(t) {
		words := strings.Index(s.Text, "Tried to allocate")
		if words < 0 || s.Kind == KindBogus {
			continue
		}
		whole := s.reading()
		for at := words + len("Tried to allocate"); at < len(s.Text); at++ {
			got := Read(s.Text[:at])
			if !strings.HasPrefix(got.Kind, "oom") || got.Kind == KindNoSize {
				t.Fatalf("%s cut at %d: kind %s", s.ID, at, got.Kind)
			}
			for _, pair := range [][2]*proto.Bytes{{got.Tried, whole.Tried}, {got.Total, whole.Total},
				{got.Free, whole.Free}, {got.Allocated, whole.Allocated}, {got.Reserved, whole.Reserved}, {got.Allowed, whole.Allowed}} {
				if pair[0] != nil && (pair[1] == nil || *pair[0] != *pair[1]) {
					t.Fatalf("%s cut at %d: %s", s.ID, at, show(got))
				}
			}
		}
	}
}

func TestReadHuge(t *testing.T) {
	noise := strings.Repeat("step 12 loss 0.34 and nothing else to say\n", 100_000)
	for _, s := range samples(t)[:3] {
		for _, text := range []string{noise + s.Text, s.Text + "\n" + noise} {
			if got, want := show(Read(text)), show(s.reading()); got != want {
				t.Errorf("%s in %d bytes\n got %s\nwant %s", s.ID, len(text), got, want)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range samples(f) {
		f.Add(s.Text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := Read(text)
		for _, b := range []*proto.Bytes{r.Tried, r.Total, r.Free, r.Allocated, r.Allowed} {
			if b != nil && (*b < 0 || *b >= noSize) {
				t.Errorf("%q: %s", text, show(r))
			}
		}
		if r.Reserved != nil && (*r.Reserved < 0 || *r.Reserved >= 2*noSize) { // a sum of two
			t.Errorf("%q: %s", text, show(r))
		}
		if advice := Advise(r); !slices.Contains(kinds, r.Kind) || advice == "" || len(advice) > 8000+4*len(text) {
			t.Errorf("%q: kind %q", text, r.Kind)
		}
	})
}

func TestParseSize(t *testing.T) {
	for _, c := range []struct {
		digits, unit string
		want         proto.Bytes // -1: no size
	}{
		{"0", "bytes", 0}, {"512", "bytes", 512}, {"576.00", "kib", 589824}, {"1024.00", "mib", 1 << 30},
		{"12.22", "gib", 13121125089}, {"3725.29", "gib", 3999999679529}, {"0.5", "bytes", 1}, {"1.00", "tib", 1 << 40},
		{"17.79", "g", 19101867049}, {"2", "b", 2}, {"1073741823.99", "gib", 1152921504596109558}, {"1073741824.00", "gib", -1},
		{"17179869184.00", "gib", -1}, {strings.Repeat("9", 40), "bytes", -1},
	} {
		got, huge := parseSize(c.digits, c.unit)
		if huge != (c.want < 0) || (got == nil) != huge || got != nil && *got != c.want {
			t.Errorf("%s %s: %v, huge %v; want %d", c.digits, c.unit, got, huge, c.want)
		}
	}
}
