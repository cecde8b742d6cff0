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

// weigh checks, before any column is read, that the pages of the columns lie
// inside the file and claim no more than the file may hold. The library
// allocates what a page header claims (up to 2 GiB a page) before it looks at
// the bytes; running out of memory cannot be recovered from.
func weigh(file *parquet.File, columns columnSet, r io.ReaderAt, size int64) error {
	var rows int64
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
			if err := weighChunk(&group.Columns[column].MetaData, group.NumRows, r, size); err != nil {
				return fmt.Errorf("row group %d, column %d: %w", i, column, err)
			}
		}
	}
	if rows != file.NumRows() {
		return fmt.Errorf("the file claims %d events, its row groups %d", file.NumRows(), rows)
	}
	return nil
}

func weighChunk(chunk *format.ColumnMetaData, rows int64, r io.ReaderAt, size int64) error {
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
