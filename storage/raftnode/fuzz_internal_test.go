package raftnode

import (
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/storage/registry"
)

// FuzzUnpack: an entry of the log is a command that packs again, or an error: the
// node then stops with a sentence.
func FuzzUnpack(f *testing.F) {
	p, err := newPacker()
	if err != nil {
		f.Fatal(err)
	}
	small := registry.Command{Version: 1, CancelSweep: &registry.CancelSweep{ID: "s"}}
	large := registry.Command{Version: 1, AddSweep: &registry.AddSweep{ID: "s", Source: string(make([]byte, 2*packAbove))}}
	for _, c := range []registry.Command{small, large} {
		entry, err := p.pack(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(entry)
	}
	f.Add([]byte{})
	f.Add([]byte{7, 1, 2})
	f.Fuzz(func(t *testing.T, entry []byte) {
		c, err := p.unpack(entry)
		if err != nil {
			return
		}
		if _, err := p.pack(c); err != nil {
			t.Fatalf("it does not pack again: %v", err)
		}
		registry.New().Apply(1, time.Unix(0, 0), c)
	})
}
