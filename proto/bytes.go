package proto

import (
	"fmt"
	"math/big"
	"strings"
)

// Bytes is an amount of memory in bytes. It is a plain integer in JSON.
type Bytes int64

// Binary units.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)

// DefaultStep is the grid of quotas unless the matrix says otherwise: the page
// size of the driver, and the unit of every large segment of the allocator.
const DefaultStep = 2 * MiB

// String shows b to a person: MiB below 100 GiB with up to two decimals, GiB
// from there on, and bytes below one MiB. It is never parsed back; documents carry the integer.
func (b Bytes) String() string {
	switch {
	case b == 0:
		return "0"
	case b > -MiB && b < MiB:
		return fmt.Sprintf("%d B", int64(b))
	case b > -100*GiB && b < 100*GiB:
		return trimZeros(fmt.Sprintf("%.2f", float64(b)/float64(MiB))) + " MiB"
	default:
		return trimZeros(fmt.Sprintf("%.2f", float64(b)/float64(GiB))) + " GiB"
	}
}

func trimZeros(s string) string {
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// RoundUp returns the smallest multiple of step that is at least b. A step of
// zero or less returns b.
func (b Bytes) RoundUp(step Bytes) Bytes {
	if step <= 0 {
		return b
	}
	return (b + step - 1) / step * step
}

// RoundDown returns the largest multiple of step that is at most b, for b >= 0.
func (b Bytes) RoundDown(step Bytes) Bytes {
	if step <= 0 {
		return b
	}
	return b / step * step
}

var units = []struct {
	suffix string
	factor Bytes
}{{"KiB", KiB}, {"MiB", MiB}, {"GiB", GiB}, {"B", 1}, {"", 1}}

// ParseBytes reads an amount as a person writes it: a plain integer of bytes,
// or a decimal number with KiB, MiB or GiB (a space may stand between). Amounts
// that are not a whole number of bytes, negative ones, decimal units (MB, GB)
// and anything above 1 EiB are refused with one sentence that says so.
func ParseBytes(text string) (Bytes, error) {
	s := strings.TrimSpace(text)
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		digits = strings.TrimSpace(digits)
		if digits == "" || strings.Trim(digits, "0123456789.") != "" || strings.Count(digits, ".") > 1 {
			break
		}
		value, ok := new(big.Rat).SetString(digits)
		if !ok {
			break
		}
		value.Mul(value, new(big.Rat).SetInt64(int64(u.factor)))
		if !value.IsInt() {
			return 0, fmt.Errorf("%.80q is not a whole number of bytes", text)
		}
		if !value.Num().IsInt64() || value.Num().Int64() > 1<<60 {
			return 0, fmt.Errorf("%.80q is more than 1 EiB", text)
		}
		return Bytes(value.Num().Int64()), nil
	}
	return 0, fmt.Errorf("%.80q is not an amount of memory: write bytes as an integer, or a number with KiB, MiB or GiB", text)
}
