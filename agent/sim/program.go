package sim

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// programText is the allocation programs that the recordings of batch 1 give
// (allocator.BuildFamily); TestProgramsAreOfTheRecordings holds the file to
// them and writes it with -rewrite.
//
//go:embed programs/esmfold.json
var programText []byte

// outsideOfAny is what the process holds beside the allocator at its peak: the
// same 688.8 MiB in every recording from length 192 on, whatever the shape.
const outsideOfAny = proto.Bytes(722_272_256)

// fromProgram is the run of a cell that was not recorded, off the programs of
// the recordings; found is false outside their domain.
func fromProgram(seqLen, batch, chunk int) (r recording, found bool, err error) {
	var family allocator.Family
	if err := json.Unmarshal(programText, &family); err != nil {
		return recording{}, false, fmt.Errorf("read the embedded programs: %w", err)
	}
	r.events, err = family.Trace(seqLen, batch, chunk)
	if errors.Is(err, allocator.ErrOutOfDomain) {
		return recording{}, false, nil
	}
	if err != nil {
		return recording{}, true, fmt.Errorf("program of %s: %w", traceName(seqLen, batch, chunk), err)
	}
	like, _, err := load(640, 1, chunk)
	if err != nil {
		return recording{}, true, err
	}
	r.meta = trace.Meta{Cell: like.meta.Cell, Stack: like.meta.Stack, Settings: like.meta.Settings, Context: like.meta.Context,
		Weights: like.meta.Weights, DeviceTotal: like.meta.DeviceTotal}
	r.meta.Cell.SeqLen, r.meta.Cell.Batch = seqLen, batch
	r.outside = outsideOfAny
	return r, true, nil
}

// Programs says for which cells beside the recorded ones a simulated agent has
// a program, as "lengths 96 to 2560, batch 1".
func Programs() []string {
	var family allocator.Family
	if err := json.Unmarshal(programText, &family); err != nil {
		return nil // TestProgramsAreOfTheRecordings reads the same text
	}
	var out []string
	for _, d := range family.Domains() {
		out = append(out, d.String())
	}
	return out
}
