package sim

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/oomfleet/oomfleet/allocator"
)

var rewrite = flag.Bool("rewrite", false, "write programs/esmfold.json from the recordings")

// recordedShapes are the recordings of batch 1 that the programs are built from.
func recordedShapes() (shapes [][2]int) {
	for _, l := range []int{128, 192, 256, 300, 301, 320, 333, 384, 448, 640} {
		shapes = append(shapes, [2]int{l, 0})
	}
	for _, l := range []int{300, 384, 512, 640, 768} {
		shapes = append(shapes, [2]int{l, 64})
	}
	return shapes
}

// TestProgramsAreOfTheRecordings: the embedded programs are what the embedded
// recordings give, to the byte.
func TestProgramsAreOfTheRecordings(t *testing.T) {
	var recordings []allocator.Recording
	for _, s := range recordedShapes() {
		r, found, err := load(s[0], 1, s[1])
		if err != nil || !found {
			t.Fatalf("L%d c%d: found %v, %v", s[0], s[1], found, err)
		}
		recordings = append(recordings, allocator.Recording{SeqLen: s[0], Batch: 1, Chunk: s[1], Events: r.events})
	}
	family, err := allocator.BuildFamily(recordings)
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(family)
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile("programs/esmfold.json", append(want, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(bytes.TrimSpace(programText), want) {
		t.Error("programs/esmfold.json is not what the recordings give: run go test ./agent/sim -run Programs -rewrite")
	}
}

// TestCellsBetweenTheRecordings: a cell without a recording is played from the
// programs, one outside their domain is not.
func TestCellsBetweenTheRecordings(t *testing.T) {
	for _, c := range []struct {
		seqLen, batch, chunk int
		found                bool
	}{{352, 1, 0, true}, {704, 1, 0, true}, {576, 1, 64, true}, {352, 2, 0, false}, {32, 1, 0, false}, {128, 1, 64, false}} {
		r, found, err := runOf(c.seqLen, c.batch, c.chunk)
		if err != nil || found != c.found {
			t.Errorf("%+v: found %v, %v", c, found, err)
			continue
		}
		if found && (r.meta.Weights == 0 || r.outside == 0 || len(r.events) < 70_000) {
			t.Errorf("%+v: %d events, meta %+v", c, len(r.events), r.meta)
		}
	}
	// The load is the same in every program: phases are told by its length.
	r, _, err := runOf(704, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	load, err := allocator.Replay(r.events[:loadEvents], allocator.Settings{}, allocator.Limit{})
	if err != nil || load.Allocated != 8_435_281_920 || load.Reserved != 8_669_626_368 {
		t.Errorf("after the load: %+v, %v", load, err)
	}
}
