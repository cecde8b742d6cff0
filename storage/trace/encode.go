package trace

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/parquet-go/parquet-go"
)

// MaxEvents is the most events that one trace may hold, fifty times what the
// longest recorded run has. It bounds what a file can make us allocate: a few
// kilobytes can hold that many, and decoded they take 40 bytes each.
const MaxEvents = 1 << 23

// row is an event in the file. Addresses are near their neighbours (delta);
// sizes repeat in long patterns that zstd finds best in plain values.
type row struct {
	Action string `parquet:"action,dict,zstd"`
	Addr   int64  `parquet:"addr,delta,zstd"`
	Size   int64  `parquet:"size,zstd"`
	Stream int64  `parquet:"stream,dict,zstd"`
}

// timedRow is an event of a trace whose events know their time. Two row types,
// not one optional column: most traces carry no times, and readers of the
// plain form must not find a column that is empty throughout.
type timedRow struct {
	row
	TimeUS int64 `parquet:"time_us,delta,zstd"`
}

// Encode writes a trace file. The column time_us is written when any event has
// a time. The same events and meta give the same bytes (from one build), so a
// trace that is stored twice is one object. It fails on events that Decode
// would refuse, and with the writer's own error.
func Encode(w io.Writer, events []allocator.Event, meta Meta) error {
	if len(events) > MaxEvents {
		return fmt.Errorf("encode trace: %d events, the most is %d", len(events), MaxEvents)
	}
	kv, err := meta.keyValues()
	if err != nil {
		return err
	}
	options := []parquet.WriterOption{parquet.CreatedBy("oomfleet", fmt.Sprint(formatVersion), "")}
	for _, key := range slices.Sorted(maps.Keys(kv)) {
		options = append(options, parquet.KeyValueMetadata(key, kv[key]))
	}
	if slices.ContainsFunc(events, func(e allocator.Event) bool { return e.TimeUS != 0 }) {
		err = write(parquet.NewGenericWriter[timedRow](w, options...), events, func(e allocator.Event, r row) timedRow {
			return timedRow{row: r, TimeUS: e.TimeUS}
		})
	} else {
		err = write(parquet.NewGenericWriter[row](w, options...), events, func(_ allocator.Event, r row) row { return r })
	}
	if err != nil {
		return fmt.Errorf("encode trace: %w", err)
	}
	return nil
}

// write hands events to w in batches and closes it.
func write[R any](w *parquet.GenericWriter[R], events []allocator.Event, complete func(allocator.Event, row) R) error {
	const batchRows = 8192
	names := map[allocator.Action]string{}
	batch := make([]R, 0, batchRows)
	for i, e := range events {
		name, ok := names[e.Action]
		if !ok {
			name = e.Action.String()
			if _, err := allocator.ParseAction(name); err != nil {
				return fmt.Errorf("event %d: %w", i, err)
			}
			names[e.Action] = name
		}
		if e.Size < 0 {
			return fmt.Errorf("event %d: size %d is negative", i, e.Size)
		}
		batch = append(batch, complete(e, row{Action: name, Addr: int64(e.Addr), Size: e.Size, Stream: e.Stream}))
		if len(batch) == batchRows || i == len(events)-1 {
			if _, err := w.Write(batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return w.Close()
}
