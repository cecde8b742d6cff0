package proto_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// FuzzParseBytes: an amount is one that a card or a disk can have, however it is
// written, or is refused with one short sentence.
func FuzzParseBytes(f *testing.F) {
	for _, text := range []string{"11012MiB", " 0.5 GiB ", "1152921504606846976", "1.0000000001KiB", "1e3", "-1", "00.5B", ".", "1 000"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, err := proto.ParseBytes(text)
		if err != nil {
			if said := err.Error(); len(said) > 2000 || strings.ContainsAny(said, "\n\r") {
				t.Errorf("an error of %d bytes: %.300q", len(said), said)
			}
			return
		}
		if b < 0 || b > 1<<60 {
			t.Errorf("%q is %d bytes", text, b)
		}
		for form, value := range map[string]proto.Bytes{"%d": b, "%dMiB": b / proto.MiB, "%d.0 KiB": b / proto.KiB} {
			unit := map[string]proto.Bytes{"%d": 1, "%dMiB": proto.MiB, "%d.0 KiB": proto.KiB}[form]
			if again, err := proto.ParseBytes(fmt.Sprintf(form, int64(value))); err != nil || again != value*unit {
				t.Errorf("%q is %d bytes, and %s of it %d, %v", text, b, form, again, err)
			}
		}
	})
}
