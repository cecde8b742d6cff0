package trace

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/parquet-go/parquet-go"
)

func TestDecodeRecordings(t *testing.T) {
	t.Run("esmfold", func(t *testing.T) {
		events, meta, err := ReadFile("testdata/esmfold_L256_B1.parquet")
		if err != nil {
			t.Fatal(err)
		}
		if len(events) != 78060 {
			t.Errorf("%d events", len(events))
		}
		wantCell := proto.Cell{
			Workload: proto.Workload{Name: "esmfold", Params: map[string]string{
				"model": "esmfold_v1", "weights": "random", "recycles": "1", "stem": "bfloat16", "trunk": "float32"}},
			GPU: "NVIDIA H200", Driver: "580.159.04", SeqLen: 256, Batch: 1,
		}
		if meta.Cell.ID() != wantCell.ID() {
			t.Errorf("cell %+v, want %+v", meta.Cell, wantCell)
		}
		wantStack := proto.Stack{GPU: "NVIDIA H200", Driver: "580.159.04", Torch: "2.11.0+cu130", Transformers: "5.17.0"}
		if meta.Stack != wantStack {
			t.Errorf("stack %+v", meta.Stack)
		}
		if meta.PeakAllocated == 0 || meta.PeakReserved <= meta.PeakAllocated || meta.ProcessPeak <= meta.PeakReserved {
			t.Errorf("peaks %d %d %d", meta.PeakAllocated, meta.PeakReserved, meta.ProcessPeak)
		}
		if outside, ok := meta.OutsideAllocator(); !ok || outside != meta.ProcessPeak-meta.PeakReserved {
			t.Errorf("outside the allocator: %d, %v", outside, ok)
		}
		if meta.Context != 648871936 || meta.DeviceTotal != 150109880320 || meta.Weights != 8435267018 {
			t.Errorf("context %d, device %d, weights %d", meta.Context, meta.DeviceTotal, meta.Weights)
		}
		if meta.Settings["expandable_segments"] != "false" || meta.Settings["max_split_size"] != "-1" || meta.Settings["PYTORCH_CUDA_ALLOC_CONF"] != "" {
			t.Errorf("settings %v", meta.Settings)
		}
		if len(meta.Extra) != 0 || meta.Origin != "" {
			t.Errorf("extra %v, origin %q", meta.Extra, meta.Origin)
		}
	})
	t.Run("other workload", func(t *testing.T) {
		events, meta, err := ReadFile("testdata/resnet_infer_L224_B64.parquet")
		if err != nil {
			t.Fatal(err)
		}
		if len(events) != 812 || meta.Cell.Workload.Name != "resnet_infer" || meta.Cell.SeqLen != 224 || meta.Cell.Batch != 64 {
			t.Errorf("%d events, cell %+v", len(events), meta.Cell)
		}
		if _, ok := meta.OutsideAllocator(); ok {
			t.Error("a file without a process peak knows what was outside the allocator")
		}
		if events[0].Action != allocator.SegmentAlloc && events[0].Action != allocator.Alloc {
			t.Errorf("first event %+v", events[0])
		}
	})
}

// TestDecodeAgainstReader reads the columns with the library's own row reader.
func TestDecodeAgainstReader(t *testing.T) {
	files, err := filepath.Glob("testdata/*.parquet")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		rows, err := parquet.ReadFile[row](file)
		if err != nil {
			t.Fatal(err)
		}
		events, _, err := ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) != len(events) {
			t.Fatalf("%s: %d rows, %d events", file, len(rows), len(events))
		}
		for i, e := range events {
			if got := (row{e.Action.String(), int64(e.Addr), e.Size, e.Stream}); got != rows[i] {
				t.Fatalf("%s, event %d: %+v, want %+v", file, i, got, rows[i])
			}
		}
	}
}

func sampleEvents() []allocator.Event {
	return []allocator.Event{
		{Action: allocator.SegmentAlloc, Addr: 0x7f0000000000, Size: 2 << 20, TimeUS: 1_700_000_000_000_000},
		{Action: allocator.Alloc, Addr: 0x7f0000000000, Size: 513, Stream: 3, TimeUS: 1_700_000_000_000_001},
		{Action: allocator.FreeRequested, Addr: 0x7f0000000000, Size: 513, Stream: 3},
		{Action: allocator.FreeCompleted, Addr: 0x7f0000000000, Size: 513, Stream: 3},
		{Action: allocator.SegmentMap, Addr: 1<<63 + 5, Size: 1},
		{Action: allocator.SegmentUnmap, Addr: 1<<63 + 5, Size: 1},
		{Action: allocator.OOM, Addr: 12345, Size: 1 << 40, Stream: -1},
		{Action: allocator.Snapshot},
		{Action: allocator.SegmentFree, Addr: 0x7f0000000000, Size: 2 << 20},
	}
}

func sampleMeta() Meta {
	return Meta{
		Cell: proto.Cell{Workload: proto.Workload{Name: "esmfold", Params: map[string]string{"model": "esmfold_v1"}},
			GPU: "NVIDIA H200", Driver: "580.159.04-synthetic", SeqLen: 97, Batch: 2, ChunkSize: 64,
			Env: map[string]string{"A": "b:c,d", "E": ""}, QuotaKind: proto.QuotaDevice, Step: proto.DefaultStep},
		Stack:  proto.Stack{GPU: "NVIDIA H200", Driver: "580.159.04-synthetic", CUDA: "13.0", Torch: "2.11.0+cu130", Python: "3.12"},
		Origin: proto.OriginSimulated, Settings: map[string]string{"expandable_segments": "false", "odd": `{"1":0}`},
		PeakAllocated: 1, PeakReserved: 2, ProcessPeak: 3, Context: 4, Weights: 5, DeviceTotal: 6, Truncated: true,
		Extra: map[string]string{"pandas": "{}", "note": "x\ny"},
	}
}

func TestRoundTrip(t *testing.T) {
	untimed := sampleEvents()
	for i := range untimed {
		untimed[i].TimeUS = 0
	}
	long := make([]allocator.Event, 20_001) // more than two batches of the writer
	for i := range long {
		long[i] = allocator.Event{Action: allocator.Alloc, Addr: uint64(i), Size: int64(i) * 512}
	}
	for name, tc := range map[string]struct {
		events []allocator.Event
		meta   Meta
	}{
		"timed":   {sampleEvents(), sampleMeta()},
		"untimed": {untimed, sampleMeta()},
		"long":    {long, Meta{}},
		"empty":   {nil, Meta{}},
	} {
		t.Run(name, func(t *testing.T) {
			var file, again bytes.Buffer
			if err := Encode(&file, tc.events, tc.meta); err != nil {
				t.Fatal(err)
			}
			events, meta, err := Decode(bytes.NewReader(file.Bytes()), int64(file.Len()))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(events, tc.events) {
				t.Errorf("events differ: %v, want %v", head(events), head(tc.events))
			}
			if err := Encode(&again, events, meta); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(file.Bytes(), again.Bytes()) {
				t.Errorf("encoding what was decoded gives other bytes: meta %+v", meta)
			}
			if meta.Cell.ID() != tc.meta.Cell.ID() || meta.Stack != tc.meta.Stack || meta.Truncated != tc.meta.Truncated ||
				meta.Origin != tc.meta.Origin || meta.PeakReserved != tc.meta.PeakReserved || meta.Extra["note"] != tc.meta.Extra["note"] {
				t.Errorf("meta %+v, want %+v", meta, tc.meta)
			}
			light, n, err := DecodeMeta(bytes.NewReader(file.Bytes()), int64(file.Len()))
			if err != nil || n != int64(len(tc.events)) || light.Cell.ID() != meta.Cell.ID() {
				t.Errorf("DecodeMeta: %d events, %v", n, err)
			}
		})
	}
}

func head(events []allocator.Event) []allocator.Event { return events[:min(len(events), 10)] }

func TestEncodeRefuses(t *testing.T) {
	for name, event := range map[string]allocator.Event{
		"unknown action": {Action: 99},
		"no action":      {Size: 1},
		"negative size":  {Action: allocator.Alloc, Size: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Encode(&bytes.Buffer{}, []allocator.Event{event}, Meta{}); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestReadFileRefuses(t *testing.T) {
	if _, _, err := ReadFile(filepath.Join(t.TempDir(), "none.parquet")); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrFormat) {
		t.Errorf("missing file: %v", err)
	}
	if _, _, err := ReadFile(t.TempDir()); !errors.Is(err, ErrFormat) {
		t.Errorf("a folder: %v", err)
	}
}

func BenchmarkDecode(b *testing.B) {
	file, err := os.ReadFile("testdata/esmfold_L256_B1.parquet")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := Decode(bytes.NewReader(file), int64(len(file))); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	events, meta, err := ReadFile("testdata/esmfold_L256_B1.parquet")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var file bytes.Buffer
		if err := Encode(&file, events, meta); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(file.Len())/float64(len(events)), "bytes/event")
	}
}
