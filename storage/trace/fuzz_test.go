package trace

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/parquet-go/parquet-go"
)

// oneLine refuses a text that is no sentence for a person or a log: a hostile
// input must not write its own lines there, nor fill it.
func oneLine(t *testing.T, err error) {
	t.Helper()
	if text := err.Error(); len(text) > 2000 || strings.ContainsAny(text, "\n\r") {
		t.Errorf("an error of %d bytes: %.300q", len(text), text)
	}
}

// again is what a trace is once it was written and read again.
func again(t *testing.T, events []allocator.Event, meta Meta) ([]allocator.Event, Meta) {
	t.Helper()
	var file bytes.Buffer
	if err := Encode(&file, events, meta); err != nil {
		t.Fatalf("what was read cannot be written: %v", err)
	}
	events, meta, err := decode(file.Bytes())
	if err != nil {
		t.Fatalf("what was written cannot be read: %v", err)
	}
	return events, meta
}

// TestRecordingsSurvive: the recordings of other writers, which are too large to
// be seeds of a fuzz target, come back whole.
func TestRecordingsSurvive(t *testing.T) {
	for _, name := range []string{"testdata/resnet_infer_L224_B64.parquet", "testdata/llama_L512_B2.parquet"} {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		events, meta, err := decode(file)
		if err != nil {
			t.Fatal(err)
		}
		if e, m := again(t, events, meta); !slices.Equal(e, events) || !reflect.DeepEqual(m, meta) {
			t.Errorf("%s: %d events and %+v come back as %d and %+v", name, len(events), meta, len(e), m)
		}
	}
}

// FuzzDecode: any bytes are a trace that comes back the same when it is written
// and read again, or an error that wraps ErrFormat. The seeds are as small as
// files can be, in each form that the reader knows.
func FuzzDecode(f *testing.F) {
	var own bytes.Buffer
	if err := Encode(&own, sampleEvents()[:2], Meta{Origin: sampleMeta().Origin}); err != nil {
		f.Fatal(err)
	}
	f.Add(own.Bytes())
	f.Add(written(f, []narrowRow{{"alloc", 1, 2, 3}}))
	f.Add(written(f, []row{{"alloc", 1, 2, 3}, {"oom", 4, 5, 6}}, parquet.Compression(&parquet.Uncompressed)))
	f.Add(written(f, []row{{"alloc", 1, 2, 3}}, parquet.DataPageVersion(1), parquet.KeyValueMetadata("seq_len", "2")))
	f.Fuzz(func(t *testing.T, file []byte) {
		events, meta, err := decode(file)
		if err != nil {
			if !errors.Is(err, ErrFormat) || events != nil {
				t.Fatalf("%d events, %v", len(events), err)
			}
			oneLine(t, err)
			return
		}
		if len(events) > 1000 {
			return // slow to write, and nothing new
		}
		if e, m := again(t, events, meta); !slices.Equal(e, events) || !reflect.DeepEqual(m, meta) {
			t.Errorf("%+v and %+v come back as %+v and %+v", events, meta, e, m)
		}
	})
}

// FuzzMeta: whatever a file says of its run, it is refused, or comes back the
// same when it is written and read again.
func FuzzMeta(f *testing.F) {
	kv, err := sampleMeta().keyValues()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(kv[keyCell], kv[keyStack], kv[keySettings], "97", "esmfold_v1", "stem=bfloat16,trunk=float32")
	f.Add("", "", `{"a":null,"b":[1, 2],"c":"d"}`, "", "resnet50", "x=")
	f.Fuzz(func(t *testing.T, cell, stack, settings, number, model, dtype string) {
		meta, err := metaOf(map[string]string{keyCell: cell, keyStack: stack, keySettings: settings, keySeqLen: number, "weights_bytes": number,
			keyModel: model, keyDtype: dtype, keyTrunc: dtype, "other": model})
		if err != nil {
			oneLine(t, err)
			return
		}
		kv, err := meta.keyValues()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if m, err := metaOf(kv); err != nil || !reflect.DeepEqual(m, meta) {
			t.Errorf("%+v comes back as %+v, %v", meta, m, err)
		}
	})
}
