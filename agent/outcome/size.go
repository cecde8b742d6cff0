package outcome

import (
	"math/big"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

// number matches a printed size in compact text; the unit follows in a group
// of its own. Printers divide by 1024 whatever they call the unit.
const (
	number    = `([0-9]+(?:\.[0-9]+)?)`
	sizeText  = number + `(bytes|[kmgt]i?b)`
	looseSize = number + `(bytes|[kmgt]i?b?|b)`
)

// noSize is the first number of bytes that is no size: PyTorch itself refuses
// requests from one exabyte on, and what is printed above it is a count that
// fell below zero (2^64 bytes print as 17179869184.00 GiB).
const noSize = proto.Bytes(1) << 60

// parseSize converts a printed size exactly: decimals times unit, rounded to
// the nearest byte, ties up. It reports huge, with nil, for what is no size.
func parseSize(digits, unit string) (size *proto.Bytes, huge bool) {
	whole, fraction, _ := strings.Cut(digits, ".")
	if len(whole) > 30 || len(fraction) > 30 {
		return nil, true
	}
	n, ok := new(big.Int).SetString(whole+fraction, 10)
	if !ok {
		return nil, true
	}
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(fraction))), nil)
	n.Mul(n, big.NewInt(unitBytes(unit)))
	n.Add(n.Lsh(n, 1), scale) // floor((2·n + scale) / (2·scale)) rounds ties up
	n.Quo(n, scale.Lsh(scale, 1))
	if n.Cmp(big.NewInt(int64(noSize))) >= 0 {
		return nil, true
	}
	b := proto.Bytes(n.Int64())
	return &b, false
}

func unitBytes(unit string) int64 {
	switch unit[0] {
	case 'k':
		return int64(proto.KiB)
	case 'm':
		return int64(proto.MiB)
	case 'g':
		return int64(proto.GiB)
	case 't':
		return int64(proto.GiB) << 10
	}
	return 1 // "bytes", "b"
}

// sum adds sizes; nil if one of them is not known.
func sum(sizes ...*proto.Bytes) *proto.Bytes {
	var total proto.Bytes
	for _, s := range sizes {
		if s == nil {
			return nil
		}
		total += *s
	}
	return &total
}

// known is the first size that is known, nil for none.
func known(sizes ...*proto.Bytes) *proto.Bytes {
	for _, s := range sizes {
		if s != nil {
			return s
		}
	}
	return nil
}

// orZero is the size, or 0 where it is not known.
func orZero(size *proto.Bytes) proto.Bytes {
	if size == nil {
		return 0
	}
	return *size
}
