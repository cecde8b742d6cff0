package outcome

import (
	"regexp"
	"strings"
	"testing"
)

var kinds = []string{KindOOM, KindAtCap, KindOtherTenant, KindFreeExceedsTried, KindUnaccounted, KindHostSpill, KindTruncated, KindNoSize, KindAsyncBackend,
	KindNCCL, KindXLA, KindTF, KindMaybe, KindHostOOM, KindHostOOMKill, KindBogus, KindEnvFault, KindNotOOM}

// TestAdvise holds that advice is one to three sentences for every kind, with
// all numbers and with none.
func TestAdvise(t *testing.T) {
	sentenceEnd := regexp.MustCompile(`[.?!](?: [A-Z]|$)`)
	check := func(t *testing.T, r Reading) {
		t.Helper()
		text := Advise(r)
		if n := len(sentenceEnd.FindAllString(text, -1)); n < 1 || n > 3 {
			t.Errorf("%s: %d sentences: %s", show(r), n, text)
		}
		if strings.Contains(text, "  ") || strings.Contains(text, "..") || strings.Contains(text, "nil") {
			t.Errorf("%s: %s", show(r), text)
		}
	}
	for _, kind := range kinds {
		check(t, Reading{Kind: kind})
	}
	for _, s := range samples(t) {
		check(t, s.reading())
	}
}

func TestAdviseUsesTheNumbers(t *testing.T) {
	byID := map[string]sample{}
	for _, s := range samples(t) {
		byID[s.ID] = s
	}
	for id, parts := range map[string][]string{
		"M26": {"cap of 17.69 GiB", "not by the card", "9.06 GiB free"},
		"M84": {"cap of 9.00 GiB", "130.23 GiB free", "8.64 GiB"},
		"M35": {"2.00 MiB was asked for", "203.49 GiB of 287.98 GiB was free", "do not explain"},
		"M20": {"736.86 MiB", "expandable_segments:True alone"},
		"M17": {"larger than the card"},
		"M85": {"Other processes", "301.56 MiB of 139.80 GiB"},
	} {
		text := Advise(Read(byID[id].Text))
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %q in %q", id, part, text)
			}
		}
	}
}
