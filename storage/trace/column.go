package trace

import (
	"errors"
	"fmt"
	"io"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// columnSet says where a file keeps the columns of a trace.
type columnSet struct {
	action   int
	integers []intColumn
}

// intColumn is a column of whole numbers: its place in the file, whether its
// 32-bit values are unsigned, and the field of an event that it fills.
type intColumn struct {
	name     string
	index    int
	unsigned bool
	set      func(*allocator.Event, int64)
}

// indexes lists the columns that are read.
func (c columnSet) indexes() []int {
	all := []int{c.action}
	for _, column := range c.integers {
		all = append(all, column.index)
	}
	return all
}

func findColumns(schema *parquet.Schema) (columnSet, error) {
	var set columnSet
	leaf, err := findColumn(schema, "action", parquet.ByteArray)
	if err != nil {
		return set, err
	}
	set.action = leaf.ColumnIndex
	for _, column := range []intColumn{
		{name: "addr", set: func(e *allocator.Event, v int64) { e.Addr = uint64(v) }},
		{name: "size", set: func(e *allocator.Event, v int64) { e.Size = v }},
		{name: "stream", set: func(e *allocator.Event, v int64) { e.Stream = v }},
		{name: "time_us", set: func(e *allocator.Event, v int64) { e.TimeUS = v }},
	} {
		leaf, err := findColumn(schema, column.name, parquet.Int64, parquet.Int32)
		if errors.Is(err, errNoColumn) && column.name == "time_us" {
			continue
		}
		if err != nil {
			return set, err
		}
		column.index = leaf.ColumnIndex
		if t := leaf.Node.Type().LogicalType(); t != nil {
			number, ok := t.Value.(*format.IntType)
			column.unsigned = ok && !number.IsSigned
		}
		set.integers = append(set.integers, column)
	}
	return set, nil
}

// errNoColumn is returned by findColumn when the file lacks the column.
var errNoColumn = errors.New("no such column")

func findColumn(schema *parquet.Schema, name string, kinds ...parquet.Kind) (parquet.LeafColumn, error) {
	leaf, ok := schema.Lookup(name)
	if !ok {
		return leaf, fmt.Errorf("column %s: %w", name, errNoColumn)
	}
	if leaf.MaxRepetitionLevel > 0 {
		return leaf, fmt.Errorf("column %s holds lists", name)
	}
	for _, kind := range kinds {
		if leaf.Node.Type().Kind() == kind {
			return leaf, nil
		}
	}
	return leaf, fmt.Errorf("column %s has type %s, want %s", name, leaf.Node.Type(), kinds[0])
}

// eachPage hands over every page of a chunk and releases it afterwards.
func eachPage(chunk parquet.ColumnChunk, use func(parquet.Page) error) error {
	pages := chunk.Pages()
	defer pages.Close()
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) && page == nil {
			return nil
		}
		if err != nil {
			return err
		}
		if page.NumNulls() > 0 {
			err = errors.New("a value is missing")
		} else {
			err = use(page)
		}
		parquet.Release(page)
		if err != nil {
			return err
		}
	}
}

// readActions reads the action column of a row group of n rows. Names are
// parsed once for each entry of the dictionary that writers keep for them.
func readActions(chunk parquet.ColumnChunk, n int64) ([]allocator.Action, error) {
	actions := make([]allocator.Action, 0, n) // as weighed
	known := map[string]allocator.Action{}
	parse := func(name []byte) (allocator.Action, error) {
		if a, ok := known[string(name)]; ok {
			return a, nil
		}
		a, err := allocator.ParseAction(string(name[:min(len(name), 64)]))
		if err == nil {
			known[string(name)] = a
		}
		return a, err
	}
	err := eachPage(chunk, func(page parquet.Page) error {
		if int64(len(actions))+page.NumValues() > n {
			return fmt.Errorf("more than the %d values that the row group claims", n)
		}
		dictionary := page.Dictionary()
		if dictionary == nil {
			return eachValue(page, func(v parquet.Value) error {
				a, err := parse(v.ByteArray())
				if err != nil {
					return fmt.Errorf("event %d: %w", len(actions), err)
				}
				actions = append(actions, a)
				return nil
			})
		}
		table := make([]allocator.Action, dictionary.Len())
		for i := range table {
			a, err := parse(dictionary.Index(int32(i)).ByteArray())
			if err != nil {
				return err
			}
			table[i] = a
		}
		data := page.Data()
		for _, i := range data.Int32() {
			if i < 0 || int(i) >= len(table) {
				return fmt.Errorf("event %d: dictionary entry %d of %d", len(actions), i, len(table))
			}
			actions = append(actions, table[i])
		}
		return nil
	})
	if err == nil && int64(len(actions)) != n {
		err = fmt.Errorf("%d values, the row group claims %d", len(actions), n)
	}
	return actions, err
}

// readIntegers fills one field of events from a column chunk.
func readIntegers(chunk parquet.ColumnChunk, events []allocator.Event, column intColumn) error {
	at := 0
	err := eachPage(chunk, func(page parquet.Page) error {
		if page.NumValues() > int64(len(events)-at) {
			return fmt.Errorf("more than the %d values of the other columns", len(events))
		}
		if data := page.Data(); page.Dictionary() == nil && page.Type().Kind() == parquet.Int64 {
			for _, v := range data.Int64() {
				column.set(&events[at], v)
				at++
			}
			return nil
		}
		return eachValue(page, func(v parquet.Value) error {
			column.set(&events[at], column.widen(v))
			at++
			return nil
		})
	})
	if err == nil && at != len(events) {
		err = fmt.Errorf("%d values, other columns have %d", at, len(events))
	}
	return err
}

// widen is a value of an integer column as 64 bits.
func (c intColumn) widen(v parquet.Value) int64 {
	switch {
	case v.Kind() == parquet.Int64:
		return v.Int64()
	case c.unsigned:
		return int64(v.Uint32())
	default:
		return int64(v.Int32())
	}
}

// eachValue hands over the values of a page, whatever its encoding.
func eachValue(page parquet.Page, use func(parquet.Value) error) error {
	values := page.Values()
	var buf [512]parquet.Value
	for {
		n, err := values.ReadValues(buf[:])
		for _, v := range buf[:n] {
			if v.IsNull() {
				return errors.New("a value is missing")
			}
			if err := use(v); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || (err == nil && n == 0) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
