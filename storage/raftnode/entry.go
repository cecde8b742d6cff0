package raftnode

import (
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// The first byte of an entry says how the command behind it is packed.
const (
	entryPlain byte = 0
	entryZstd  byte = 1
)

// packAbove is the size from which on packing is worth it: sweeps are, results
// and settlements are not.
const packAbove = 4 << 10

// maxUnpacked ends an entry that would fill the memory. maxCommand is the most
// that goes into one: what no member could read must not get into the log, where
// it would stop every one of them, and again at every start. Text that repeats
// itself packs to a thousandth, so MaxEntry does not see to that.
const (
	maxUnpacked = 256 << 20
	maxCommand  = maxUnpacked / 2
)

// packer turns commands into log entries and back. It is safe for concurrent
// use and has no goroutines of its own.
type packer struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newPacker() (*packer, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("zstd writer: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked))
	if err != nil {
		return nil, fmt.Errorf("zstd reader: %w", err)
	}
	return &packer{enc: enc, dec: dec}, nil
}

// pack returns registry.ErrTooLarge for a command above MaxEntry.
func (p *packer) pack(cmd registry.Command) ([]byte, error) {
	data, err := registry.EncodeCommand(cmd)
	if err != nil {
		return nil, err
	}
	if len(data) > maxCommand {
		return nil, fmt.Errorf("%w: %d bytes, and %d are the most", registry.ErrTooLarge, len(data), maxCommand)
	}
	entry := []byte{entryPlain}
	if len(data) > packAbove {
		entry = p.enc.EncodeAll(data, []byte{entryZstd})
	} else {
		entry = append(entry, data...)
	}
	if len(entry) > MaxEntry {
		return nil, fmt.Errorf("%w: %d bytes, packed to %d, and %d are the most", registry.ErrTooLarge, len(data), len(entry), MaxEntry)
	}
	return entry, nil
}

func (p *packer) unpack(entry []byte) (registry.Command, error) {
	if len(entry) == 0 {
		return registry.Command{}, errors.New("the entry is empty")
	}
	data := entry[1:]
	switch entry[0] {
	case entryPlain:
	case entryZstd:
		var err error
		if data, err = p.dec.DecodeAll(data, nil); err != nil {
			return registry.Command{}, fmt.Errorf("unpack: %w", err)
		}
	default:
		return registry.Command{}, fmt.Errorf("it is packed in a way that this build does not know (%d)", entry[0])
	}
	return registry.DecodeCommand(data)
}
