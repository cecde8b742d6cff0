package allocator

import (
	"encoding/binary"
	"testing"
)

// FuzzEvents: a trace is an agent's word. Whatever it holds, reading it as a
// program, checking it and sweeping it ends with a result or an error.
func FuzzEvents(f *testing.F) {
	f.Add([]byte{3, 0, 1, 0, 20, 0, 0, 1, 0, 20, 1, 0, 1, 0, 20, 2, 0, 1, 0, 20})
	f.Add([]byte{0, 0, 1, 0, 1, 7, 0, 0, 0, 9})
	f.Fuzz(func(t *testing.T, data []byte) {
		const row = 5
		var events []Event
		for ; len(data) >= row && len(events) < 100; data = data[row:] {
			addr, size := uint64(binary.LittleEndian.Uint16(data[1:])), int64(binary.LittleEndian.Uint16(data[3:]))
			e := Event{Action: Action(data[0] % 10), Addr: addr << 18, Size: size << 12}
			if data[0]&0x80 != 0 {
				e.Addr, e.Size, e.Stream = ^e.Addr, -e.Size, int64(data[1])
			}
			events = append(events, e)
		}
		if _, err := SelfCheck(events, Settings{}); err != nil {
			return
		}
		if _, err := Sweep(events, SweepOptions{Step: roundLarge}); err != nil {
			return
		}
		ReadCapped(events) //nolint:errcheck // an error is as good
	})
}
