// Package quotatest owns a small registry for tests of quotas: what a fleet
// would know that had recorded a few lengths of the real ESMFold, built its
// program, and probed three cells, with each probe's outcome replayed from the
// recording. It refuses to invent a number: all of them come from the recordings
// in a folder. Origin is simulated throughout.
//
// Start reading at New.
package quotatest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator/quota"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// The stacks of the world. Synthetic has more context than Driver has, by
// Offset.
const (
	GPU       = "NVIDIA H200"
	Driver    = "580.159.04"
	Synthetic = "580.159.04-synthetic"
	Offset    = 40 * proto.MiB
)

// Epoch is the time of the first log entry; each later one is a second on.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// World is a registry and the store behind it. It is read-only once New returns.
type World struct {
	testing.TB
	Machine *registry.Machine
	// Last is the time of the newest entry.
	Last time.Time

	folder   string
	index    uint64
	files    map[proto.Digest][]byte
	programs map[proto.Digest][]byte
	compiled map[proto.Digest]*allocator.Program
}

// New makes the world from the traces in a folder, named L<seq_len>_B<batch>[_c<chunk>].parquet.
func New(t testing.TB, folder string) *World {
	t.Helper()
	w := &World{TB: t, Machine: registry.New(), folder: folder, Last: epoch,
		files: map[proto.Digest][]byte{}, programs: map[proto.Digest][]byte{}, compiled: map[proto.Digest]*allocator.Program{}}
	var row, chunked []proto.Cell
	for _, l := range []int{128, 192, 256, 320, 384} {
		row = append(row, Cell(l, 1, 0))
	}
	chunked = append(chunked, Cell(384, 1, 64), Cell(512, 1, 64))
	pair := Cell(256, 2, 0)
	var synthetic []proto.Cell
	for _, c := range row {
		c.Driver = Synthetic
		synthetic = append(synthetic, c)
	}
	w.sweep("rollout", append(append(append([]proto.Cell{pair}, row...), chunked...), synthetic...)...)
	for _, c := range append(append([]proto.Cell{pair}, row...), append(chunked, synthetic...)...) {
		w.record(c)
		w.predict(c)
	}
	w.program(row[:4])
	for _, c := range []proto.Cell{row[4], chunked[1], pair, synthetic[4]} {
		w.certify(c)
	}
	w.fit(row)
	w.fit(synthetic)
	return w
}

// Cell is an ESMFold cell of the world: allocator quotas under Driver.
func Cell(seqLen, batch, chunk int) proto.Cell {
	return proto.Cell{GPU: GPU, Driver: Driver, SeqLen: seqLen, Batch: batch, ChunkSize: chunk, Env: map[string]string{},
		QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep, Workload: proto.Workload{Name: "esmfold",
			Params: map[string]string{"model": "esmfold_v1", "recycles": "1", "stem": "bfloat16", "trunk": "float32", "weights": "random"}}}
}

// View is the registry's.
func (w *World) View() registry.View { return w.Machine.View() }

// Events are the recording of a length and batch.
func (w *World) Events(seqLen, batch, chunk int) ([]allocator.Event, trace.Meta) {
	w.Helper()
	events, meta, err := trace.ReadFile(w.file(seqLen, batch, chunk))
	if err != nil {
		w.Fatal(err)
	}
	return events, meta
}

// Recorded is a recording, compiled.
func (w *World) Recorded(seqLen, batch, chunk int) *allocator.Program {
	w.Helper()
	events, _ := w.Events(seqLen, batch, chunk)
	p, err := allocator.Compile(events)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

func (w *World) file(seqLen, batch, chunk int) string {
	name := fmt.Sprintf("L%d_B%d", seqLen, batch)
	if chunk > 0 {
		name += fmt.Sprintf("_c%d", chunk)
	}
	return filepath.Join(w.folder, name+".parquet")
}

// Family reads a stored program.
func (w *World) Family(digest proto.Digest) (*allocator.Family, error) {
	text, ok := w.programs[digest]
	if !ok {
		return nil, trace.ErrNotFound
	}
	f := &allocator.Family{}
	return f, json.Unmarshal(text, f)
}

// Recording is a stored trace, compiled.
func (w *World) Recording(digest proto.Digest) (*allocator.Program, error) {
	if p := w.compiled[digest]; p != nil {
		return p, nil
	}
	return nil, trace.ErrNotFound
}

// Open streams a stored trace.
func (w *World) Open(_ context.Context, digest proto.Digest) (io.ReadCloser, proto.Bytes, error) {
	text, ok := w.files[digest]
	if !ok {
		return nil, 0, trace.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(text)), proto.Bytes(len(text)), nil
}

// GetTrace reads a stored trace.
func (w *World) GetTrace(_ context.Context, digest proto.Digest) ([]allocator.Event, trace.Meta, error) {
	text, ok := w.files[digest]
	if !ok {
		return nil, trace.Meta{}, trace.ErrNotFound
	}
	return trace.Decode(bytes.NewReader(text), int64(len(text)))
}

// GetProgram reads a stored program's text.
func (w *World) GetProgram(_ context.Context, digest proto.Digest) ([]byte, error) {
	text, ok := w.programs[digest]
	if !ok {
		return nil, trace.ErrNotFound
	}
	return text, nil
}

// Library is what the world has stored.
func (w *World) Library() quota.Library {
	return quota.Library{Family: w.Family, Recording: w.Recording}
}

// store keeps a trace file and what it compiles to.
func (w *World) store(seqLen, batch, chunk int) (proto.TraceRef, trace.Meta) {
	w.Helper()
	text, err := os.ReadFile(w.file(seqLen, batch, chunk))
	if err != nil {
		w.Fatal(err)
	}
	digest := trace.DigestOf(text)
	events, meta, err := trace.Decode(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		w.Fatal(err)
	}
	if w.compiled[digest] == nil {
		w.files[digest] = text
		if w.compiled[digest], err = allocator.Compile(events); err != nil {
			w.Fatal(err)
		}
	}
	return proto.TraceRef{Digest: digest, Size: proto.Bytes(len(text)), Events: int64(len(events))}, meta
}
