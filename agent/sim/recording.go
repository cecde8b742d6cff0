package sim

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

//go:embed traces/*.parquet
var traces embed.FS

// loadEvents is how many events of every recording belong to loading the
// weights: the model is built in the same order each time, and after this event
// the allocator holds exactly the recorded loaded_allocated_bytes.
const loadEvents = 4937

// recording is one uncapped run of the real ESMFold.
type recording struct {
	events []allocator.Event
	meta   trace.Meta
	// outside is what the process held beside the allocator at its peak.
	outside proto.Bytes
}

func traceName(seqLen, batch, chunk int) string {
	name := fmt.Sprintf("L%d_B%d", seqLen, batch)
	if chunk > 0 {
		name += fmt.Sprintf("_c%d", chunk)
	}
	return name
}

// Recorded lists the cells that have a recording, as "L384 B1" or "L512 B1 c64".
func Recorded() []string {
	names, err := fs.Glob(traces, "traces/*.parquet")
	if err != nil {
		panic(fmt.Sprintf("sim: the pattern of embedded traces is constant: %v", err))
	}
	for i, name := range names {
		names[i] = strings.ReplaceAll(strings.TrimSuffix(path.Base(name), ".parquet"), "_", " ")
	}
	return names
}

// runOf is the run of a cell: its recording, or else what the programs of the
// recordings make of it.
func runOf(seqLen, batch, chunk int) (r recording, found bool, err error) {
	if r, found, err = load(seqLen, batch, chunk); found || err != nil {
		return r, found, err
	}
	return fromProgram(seqLen, batch, chunk)
}

// load reads the recording of a cell; found is false when there is none.
func load(seqLen, batch, chunk int) (r recording, found bool, err error) {
	name := "traces/" + traceName(seqLen, batch, chunk) + ".parquet"
	file, err := traces.ReadFile(name)
	if err != nil {
		return recording{}, false, nil
	}
	r.events, r.meta, err = trace.Decode(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return recording{}, true, fmt.Errorf("read recording %s: %w", name, err)
	}
	outside, known := r.meta.OutsideAllocator()
	if !known || len(r.events) <= loadEvents {
		return recording{}, true, fmt.Errorf("recording %s is not whole: %d events, process peak %v", name, len(r.events), r.meta.ProcessPeak)
	}
	r.outside = outside
	return r, true, nil
}
