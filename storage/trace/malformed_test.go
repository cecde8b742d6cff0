package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/parquet-go/parquet-go"
)

// written is a parquet file of rows as another program might write it.
func written[R any](t testing.TB, rows []R, options ...parquet.WriterOption) []byte {
	t.Helper()
	var file bytes.Buffer
	w := parquet.NewGenericWriter[R](&file, options...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func decode(file []byte) ([]allocator.Event, Meta, error) {
	return Decode(bytes.NewReader(file), int64(len(file)))
}

// The forms that data tools give the columns: nullable (pandas), unsigned
// (polars), narrow, other compressions, more columns, several row groups.
type nullableRow struct {
	Frames string  `parquet:"frames,snappy"`
	TimeUS *int64  `parquet:"time_us,optional"`
	Stream *int64  `parquet:"stream,optional,dict"`
	Size   *int64  `parquet:"size,optional,gzip"`
	Addr   *uint64 `parquet:"addr,optional"`
	Action *string `parquet:"action,optional"`
}

type narrowRow struct {
	Action string `parquet:"action,snappy"`
	Addr   uint32 `parquet:"addr"`
	Size   int32  `parquet:"size"`
	Stream int32  `parquet:"stream,dict"`
}

func TestDecodeOtherWriters(t *testing.T) {
	t.Run("nullable", func(t *testing.T) {
		addr, size, stream, time, action := uint64(1)<<63+7, int64(5), int64(2), int64(9), "alloc"
		file := written(t, []nullableRow{{"x", &time, &stream, &size, &addr, &action}, {"y", &time, &stream, &size, &addr, &action}})
		events, _, err := decode(file)
		want := allocator.Event{Action: allocator.Alloc, Addr: addr, Size: 5, Stream: 2, TimeUS: 9}
		if err != nil || len(events) != 2 || events[0] != want || events[1] != want {
			t.Errorf("%+v, %v", events, err)
		}
		file = written(t, []nullableRow{{"x", &time, &stream, &size, &addr, &action}, {"y", &time, &stream, nil, &addr, &action}})
		if _, _, err := decode(file); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "size") {
			t.Errorf("a size is null: %v", err)
		}
	})
	t.Run("narrow", func(t *testing.T) {
		file := written(t, []narrowRow{{"free_completed", 1<<32 - 1, 1<<31 - 1, -3}})
		events, _, err := decode(file)
		want := allocator.Event{Action: allocator.FreeCompleted, Addr: 1<<32 - 1, Size: 1<<31 - 1, Stream: -3}
		if err != nil || len(events) != 1 || events[0] != want {
			t.Errorf("%+v, %v", events, err)
		}
	})
	t.Run("row groups and small pages", func(t *testing.T) {
		rows := make([]row, 1000)
		for i := range rows {
			rows[i] = row{"alloc", int64(i), int64(2 * i), int64(i % 3)}
		}
		for _, version := range []int{1, 2} {
			file := written(t, rows, parquet.MaxRowsPerRowGroup(300), parquet.PageBufferSize(256), parquet.DataPageVersion(version))
			events, _, err := decode(file)
			if err != nil || len(events) != len(rows) {
				t.Fatalf("pages of version %d: %d events, %v", version, len(events), err)
			}
			for i, e := range events {
				if e.Addr != uint64(i) || e.Size != int64(2*i) || e.Stream != int64(i%3) {
					t.Fatalf("pages of version %d, event %d: %+v", version, i, e)
				}
			}
		}
	})
}

// TestPagesAreWeighed: pages that unpack to far more than the events of the file
// can need are refused before one is unpacked, however little they take in it.
func TestPagesAreWeighed(t *testing.T) {
	rows := make([]row, 2000)
	for i := range rows {
		rows[i] = row{Action: strings.Repeat("a", 4096) + strconv.Itoa(i)}
	}
	file := written(t, rows)
	if _, _, err := decode(file); len(file) > 1<<18 || !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "the most for 2000 events is") {
		t.Errorf("%d bytes: %v", len(file), err)
	}
	var sum weight
	for range maxPages {
		if err := sum.add(0, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := sum.add(0, 1); err == nil {
		t.Error("pages that hold nothing are not counted")
	}
	// The widest form that a writer gives events: everything in a dictionary that
	// does not help.
	wide := make([]wideRow, 200_000)
	for i := range wide {
		n := int64(i) * 0x1234567
		wide[i] = wideRow{"segment_unmap", n, n, n, n}
	}
	for _, o := range [][]parquet.WriterOption{{}, {parquet.PageBufferSize(4096)}, {parquet.MaxRowsPerRowGroup(10_000), parquet.DataPageVersion(1)}} {
		if events, _, err := decode(written(t, wide, o...)); err != nil || len(events) != len(wide) || events[7].Addr != uint64(wide[7].Addr) {
			t.Errorf("%d events, %v", len(events), err)
		}
	}
}

type wideRow struct {
	Action string `parquet:"action"`
	Addr   int64  `parquet:"addr,dict"`
	Size   int64  `parquet:"size,dict"`
	Stream int64  `parquet:"stream,dict"`
	TimeUS int64  `parquet:"time_us,dict"`
}

func TestDecodeRefuses(t *testing.T) {
	good := written(t, []row{{"alloc", 1, 2, 3}, {"oom", 4, 5, 6}})
	withKey := func(key, value string) []byte {
		return written(t, []row{{"alloc", 1, 2, 3}}, parquet.KeyValueMetadata(key, value))
	}
	footer := bytes.Clone(good)
	binary.LittleEndian.PutUint32(footer[len(footer)-8:], 0xfffffff0)
	// nested is a footer of sets in sets, n deep.
	nested := func(n int) []byte {
		file := append([]byte("PAR1"), bytes.Repeat([]byte{0x5a}, n)...)
		return append(binary.LittleEndian.AppendUint32(file, uint32(n)), "PAR1"...)
	}
	for name, tc := range map[string]struct {
		file []byte
		want string
	}{
		"empty":             {nil, "too few"},
		"text":              {[]byte("action,addr,size,stream\nalloc,1,2,3\n"), "not a parquet file"},
		"only a header":     {append([]byte("PAR1"), make([]byte, 20)...), "truncated"},
		"footer too long":   {footer, "footer claims"},
		"nested":            {nested(64 << 10), "..."},
		"nested too deep":   {nested(24 << 20), "footer has"}, // a stack of 1 GB, which ended the process
		"unknown action":    {written(t, []row{{"alloc", 1, 2, 3}, {"realloc", 1, 2, 3}}), `"realloc"`},
		"plain bad action":  {written(t, []narrowRow{{"alloc", 1, 2, 3}, {"x", 1, 2, 3}}), "event 1"},
		"negative size":     {written(t, []row{{"alloc", 1, 2, 3}, {"alloc", 1, -2, 3}}), "event 1: size -2 is negative"},
		"no action":         {written(t, []struct{ Addr, Size int64 }{}), "column action: no such column"},
		"no stream":         {written(t, []shortRow{{"alloc", 1, 2}}), "column stream: no such column"},
		"size is text":      {written(t, []textRow{{"alloc", 1, "2", 3}}), "column size has type"},
		"size is a list":    {written(t, []listRow{{"alloc", 1, []int64{2}, 3}}), "column size holds lists"},
		"newer version":     {withKey("fleet.trace.version", "2"), "version"},
		"bad batch":         {withKey("batch", "two"), "batch"},
		"negative peak":     {withKey("peak_reserved_bytes", "-1"), "peak_reserved_bytes"},
		"bad origin":        {withKey("origin", "invented"), "origin"},
		"bad settings":      {withKey("allocator_settings", "[1]"), "allocator_settings"},
		"bad cell":          {withKey("cell", "{"), "cell"},
		"bad stack":         {withKey("stack", "7"), "stack"},
		"seq_len too large": {withKey("seq_len", "99999999999999999999"), "seq_len"},
	} {
		t.Run(name, func(t *testing.T) {
			events, _, err := decode(tc.file)
			if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), tc.want) || events != nil {
				t.Errorf("%d events, %v; want %q", len(events), err, tc.want)
			}
		})
	}
	t.Run("too large", func(t *testing.T) {
		if _, _, err := Decode(bytes.NewReader(good), MaxFileSize+1); !errors.Is(err, ErrFormat) {
			t.Error(err)
		}
	})
	t.Run("reader fails", func(t *testing.T) {
		if _, _, err := Decode(failing{}, 1000); !errors.Is(err, ErrFormat) || !errors.Is(err, io.ErrNoProgress) {
			t.Error(err)
		}
	})
}

type shortRow struct {
	Action string `parquet:"action"`
	Addr   int64  `parquet:"addr"`
	Size   int64  `parquet:"size"`
}

type textRow struct {
	Action string `parquet:"action"`
	Addr   int64  `parquet:"addr"`
	Size   string `parquet:"size"`
	Stream int64  `parquet:"stream"`
}

type listRow struct {
	Action string  `parquet:"action"`
	Addr   int64   `parquet:"addr"`
	Size   []int64 `parquet:"size"`
	Stream int64   `parquet:"stream"`
}

type failing struct{}

func (failing) ReadAt([]byte, int64) (int, error) { return 0, io.ErrNoProgress }

// TestDecodeDamaged cuts a real trace everywhere and turns every byte of a small
// one around: no damage may panic, and none may pass as a longer trace.
func TestDecodeDamaged(t *testing.T) {
	real, err := os.ReadFile("testdata/resnet_infer_L224_B64.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(real) {
		if _, _, err := decode(real[:n]); !errors.Is(err, ErrFormat) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	for i := range real {
		for _, mask := range []byte{0x01, 0x80, 0xff} {
			damaged := bytes.Clone(real)
			damaged[i] ^= mask
			events, _, err := decode(damaged)
			if err != nil && !errors.Is(err, ErrFormat) || err == nil && len(events) != 812 {
				t.Fatalf("byte %d ^ %#x: %d events, %v", i, mask, len(events), err)
			}
		}
	}
}
