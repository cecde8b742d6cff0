package trace

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// maxPage is the largest page that is read, in bytes after decompression. A
// column of MaxEvents in a single page would still fit.
const maxPage = 8 * MaxEvents

// maxPageHeader is the longest page header that is read, in bytes. Real ones
// take about a hundred, and hold two values of the column at most.
const maxPageHeader = 4 << 10

// The columns of a file may take eventBytes an event when they are unpacked, and
// looseBytes beside that. An action spelled out takes 18 bytes, each of four numbers
// 8, and each of the five 4 more where it stands in a dictionary.
const (
	eventBytes = 96
	looseBytes = 4 << 20
)

// maxPages is the most pages of the columns: those of MaxEvents events in pages
// of 256, which is smaller than any writer makes them, of which some hold nothing.
const maxPages = 5 * MaxEvents / 256

// weight is what has been weighed of a file.
type weight struct {
	unpacked int64 // bytes of pages
	pages    int
}

// add counts a page; it fails where those so far claim too much for a file of so
// many events.
func (w *weight) add(unpacked, events int64) error {
	w.pages++
	w.unpacked += unpacked
	switch most := eventBytes*events + looseBytes; {
	case w.unpacked > most:
		return fmt.Errorf("pages of %d bytes unpacked, the most for %d events is %d", w.unpacked, events, most)
	case w.pages > maxPages:
		return fmt.Errorf("more than %d pages", maxPages)
	}
	return nil
}

// weigh checks, before any column is read, that the pages of the columns lie
// inside the file and claim no more than the file may hold. The library
// allocates what a page header claims (up to 2 GiB a page) before it looks at
// the bytes; running out of memory cannot be recovered from.
func weigh(file *parquet.File, columns columnSet, r io.ReaderAt, size int64) error {
	var rows int64
	var sum weight
	for i := range file.Metadata().RowGroups {
		group := &file.Metadata().RowGroups[i]
		if group.NumRows < 0 || group.NumRows > MaxEvents-rows {
			return fmt.Errorf("row group %d claims %d events", i, group.NumRows)
		}
		rows += group.NumRows
		for _, column := range columns.indexes() {
			if column >= len(group.Columns) {
				return fmt.Errorf("row group %d has %d columns", i, len(group.Columns))
			}
			if err := weighChunk(&group.Columns[column].MetaData, ledger{group.NumRows, file.NumRows(), &sum}, r, size); err != nil {
				return fmt.Errorf("row group %d, column %d: %w", i, column, err)
			}
		}
	}
	if rows != file.NumRows() {
		return fmt.Errorf("the file claims %d events, its row groups %d", file.NumRows(), rows)
	}
	return nil
}

// ledger is what a chunk is held against: the events of its row group, those of
// the file, and what the file's chunks so far claim.
type ledger struct {
	rows, events int64
	sum          *weight
}

func weighChunk(chunk *format.ColumnMetaData, against ledger, r io.ReaderAt, size int64) error {
	rows := against.rows
	base := chunk.DataPageOffset
	if chunk.DictionaryPageOffset != 0 {
		base = chunk.DictionaryPageOffset
	}
	total := chunk.TotalCompressedSize
	if base < 0 || total < 0 || base > size || total > size-base {
		return errors.New("its pages lie outside the file")
	}
	var protocol thrift.CompactProtocol
	window := make([]byte, maxPageHeader)
	var values int64
	for at := base; at < base+total; {
		n, err := r.ReadAt(window[:min(len(window), int(base+total-at))], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("page header: %w", err)
		}
		reader := protocol.NewReaderFromBytes(window[:n])
		var header format.PageHeader
		if err := thrift.NewDecoder(reader).Decode(&header); err != nil {
			return fmt.Errorf("page header: %w", err)
		}
		at += int64(reader.BytesRead())
		stored, unpacked := int64(header.CompressedPageSize), int64(header.UncompressedPageSize)
		if stored < 0 || stored > base+total-at || unpacked < 0 || unpacked > maxPage {
			return fmt.Errorf("a page claims %d bytes, %d unpacked", stored, unpacked)
		}
		at += stored
		if err := against.sum.add(unpacked, against.events); err != nil {
			return err
		}
		switch {
		case header.DataPageHeader.Valid:
			values += int64(header.DataPageHeader.V.NumValues)
		case header.DataPageHeaderV2.Valid:
			values += int64(header.DataPageHeaderV2.V.NumValues)
		case header.DictionaryPageHeader.Valid && int64(header.DictionaryPageHeader.V.NumValues) > maxPage/4:
			return errors.New("its dictionary is too large")
		}
		if values < 0 || values > rows {
			return fmt.Errorf("its pages claim %d values, the row group %d", values, rows)
		}
	}
	if values != rows {
		return fmt.Errorf("its pages claim %d values, the row group %d", values, rows)
	}
	return nil
}
