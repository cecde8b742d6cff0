package outcome

import (
	"strings"
	"testing"
)

// TestManySentencesTakeTheTextsLength: twice as many sentences take twice the
// looking, whichever of their words is missing. Sought anew for each sentence, the
// missing word took the whole rest of the text each time: minutes for a log of
// some megabytes.
func TestManySentencesTakeTheTextsLength(t *testing.T) {
	for name, line := range map[string]string{
		"cut after the size": "cudaoutofmemory.triedtoallocate2",
		"without beginning":  "gpu0hasatotalcapacityof3",
		"whole":              "cudaoutofmemory.triedtoallocate2.00mib.gpu0hasatotalcapacityof31.86gibofwhich1.00gibisfree.",
	} {
		t.Run(name, func(t *testing.T) {
			looked := func(lines int) int {
				m, found, from := mentions{text: strings.Repeat(line, lines)}, 0, 0
				for {
					start, end := m.next(from)
					if start < 0 {
						break
					}
					if start < from || end <= start {
						t.Fatalf("sentence %d is from %d to %d, sought from %d", found, start, end, from)
					}
					found, from = found+1, end
				}
				if found == 0 {
					t.Fatal("no sentence was found")
				}
				return m.tried.looked + m.total.looked
			}
			half, whole := looked(500), looked(1000)
			if whole > 2*half+2*len(line) {
				t.Errorf("500 lines take %d bytes of looking, 1000 take %d", half, whole)
			}
			if most := 3 * 1000 * len(line); whole > most {
				t.Errorf("1000 lines take %d bytes of looking, more than %d", whole, most)
			}
		})
	}
}
