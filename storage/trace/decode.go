package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/parquet-go/parquet-go"
)

// MaxFileSize is the largest trace file that is read, in bytes.
const MaxFileSize = 1 << 30

// maxFooter is the largest footer that is read, in bytes, several times that of
// MaxEvents in the smallest row groups that writers make. The library goes down
// into what is nested in it by recursion, one level a byte: a stack that
// overflows ends the process, and no recover stops that.
const maxFooter = 256 << 10

// maxText is the longest error of the library that is passed on, in bytes: it
// names every level that it was in.
const maxText = 300

// Decode reads a trace file. It takes the columns action, addr, size, stream
// and, where the file has it, time_us; other columns are passed over. Columns
// may be nullable as long as no value is null, integers of 32 or 64 bits. Every
// error wraps ErrFormat: the bytes come from outside and are to blame, also
// where reading them fails. It does not panic on any input.
func Decode(r io.ReaderAt, size int64) (events []allocator.Event, meta Meta, err error) {
	defer refuse(&err, func() { events, meta = nil, Meta{} })
	file, err := openParquet(r, size)
	if err != nil {
		return nil, Meta{}, err
	}
	if meta, err = fileMeta(file); err != nil {
		return nil, Meta{}, err
	}
	if events, err = readEvents(file, r, size); err != nil {
		return nil, Meta{}, err
	}
	return events, meta, nil
}

// DecodeMeta reads a trace file's metadata and its number of events and leaves
// the columns alone. It fails as Decode does.
func DecodeMeta(r io.ReaderAt, size int64) (meta Meta, events int64, err error) {
	defer refuse(&err, func() { meta, events = Meta{}, 0 })
	file, err := openParquet(r, size)
	if err != nil {
		return Meta{}, 0, err
	}
	meta, err = fileMeta(file)
	return meta, file.NumRows(), err
}

// ReadFile decodes the trace in a file. Errors name the file; those that
// blame its content wrap ErrFormat.
func ReadFile(path string) ([]allocator.Event, Meta, error) {
	st, err := os.Stat(path) // first: opening a pipe would wait for its writer
	if err != nil {
		return nil, Meta{}, fmt.Errorf("read trace: %w", err)
	}
	if !st.Mode().IsRegular() {
		return nil, Meta{}, fmt.Errorf("read trace %s: %w: not a regular file", path, ErrFormat)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, Meta{}, fmt.Errorf("read trace: %w", err)
	}
	defer f.Close()
	events, meta, err := Decode(f, st.Size())
	if err != nil {
		return nil, Meta{}, fmt.Errorf("read trace %s: %w", path, err)
	}
	return events, meta, nil
}

// refuse ends a decoding that went wrong: it turns a panic into an error and
// makes every error wrap ErrFormat. The Parquet library checks most of what a
// malformed file can claim, not all of it, and panics on the rest; that must
// cost one trace, never the process.
func refuse(err *error, clear func()) {
	if p := recover(); p != nil {
		clear()
		*err = fmt.Errorf("malformed parquet: %v", p)
	}
	if *err == nil {
		return
	}
	if text := (*err).Error(); len(text) > maxText {
		*err = &shortened{strings.ToValidUTF8(text[:maxText], "") + "...", *err}
	}
	if !errors.Is(*err, ErrFormat) {
		*err = fmt.Errorf("%w: %w", ErrFormat, *err)
	}
}

// shortened is an error of which only the beginning is shown.
type shortened struct {
	text  string
	whole error
}

func (e *shortened) Error() string { return e.text }
func (e *shortened) Unwrap() error { return e.whole }

// openParquet reads the footer, after checking what the library takes on trust.
func openParquet(r io.ReaderAt, size int64) (*parquet.File, error) {
	const magic = "PAR1"
	if size > MaxFileSize {
		return nil, fmt.Errorf("%d bytes, the most is %d", size, MaxFileSize)
	}
	if size < 12 {
		return nil, fmt.Errorf("%d bytes are too few for a parquet file", size)
	}
	var head [4]byte
	var tail [8]byte
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return nil, fmt.Errorf("read the first bytes: %w", err)
	}
	if _, err := r.ReadAt(tail[:], size-8); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the last bytes: %w", err)
	}
	if string(head[:]) != magic {
		return nil, errors.New("not a parquet file")
	}
	if string(tail[4:]) != magic {
		return nil, errors.New("the parquet file is truncated: it ends without a footer")
	}
	switch footer := int64(binary.LittleEndian.Uint32(tail[:4])); {
	case footer > size-12:
		return nil, fmt.Errorf("the footer claims %d of the file's %d bytes", footer, size)
	case footer > maxFooter:
		return nil, fmt.Errorf("the footer has %d bytes, the most is %d", footer, maxFooter)
	}
	file, err := parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true),
		parquet.ReadBufferSize(64<<10))
	if err != nil {
		return nil, err
	}
	if n := file.NumRows(); n < 0 || n > MaxEvents {
		return nil, fmt.Errorf("the file claims %d events, the most is %d", n, MaxEvents)
	}
	return file, nil
}

func fileMeta(file *parquet.File) (Meta, error) {
	pairs := file.Metadata().KeyValueMetadata
	kv := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		kv[pair.Key] = pair.Value
	}
	return metaOf(kv)
}

// readEvents reads the columns of every row group into events.
func readEvents(file *parquet.File, r io.ReaderAt, size int64) ([]allocator.Event, error) {
	columns, err := findColumns(file.Schema())
	if err != nil {
		return nil, err
	}
	if err := weigh(file, columns, r, size); err != nil {
		return nil, err
	}
	events := make([]allocator.Event, 0, file.NumRows()) // as weighed
	for i, group := range file.RowGroups() {
		chunks := group.ColumnChunks()
		actions, err := readActions(chunks[columns.action], group.NumRows())
		if err != nil {
			return nil, fmt.Errorf("row group %d, column action: %w", i, err)
		}
		base := len(events)
		if base+len(actions) > cap(events) {
			return nil, fmt.Errorf("the file claims %d events and holds more", file.NumRows())
		}
		events = events[:base+len(actions)]
		part := events[base:]
		for k, a := range actions {
			part[k].Action = a
		}
		for _, column := range columns.integers {
			if err := readIntegers(chunks[column.index], part, column); err != nil {
				return nil, fmt.Errorf("row group %d, column %s: %w", i, column.name, err)
			}
		}
	}
	if int64(len(events)) != file.NumRows() {
		return nil, fmt.Errorf("the file claims %d events and holds %d", file.NumRows(), len(events))
	}
	for i := range events {
		if events[i].Size < 0 {
			return nil, fmt.Errorf("event %d: size %d is negative", i, events[i].Size)
		}
	}
	return events, nil
}
