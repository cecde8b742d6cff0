package fleetsim

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// dice draw all that is left to chance. Each purpose has a stream of its own, so
// that a fault which is left out moves the others as little as possible.
type dice struct {
	seed    uint64
	streams map[string]*rand.Rand
}

func newDice(seed uint64) *dice { return &dice{seed: seed, streams: make(map[string]*rand.Rand)} }

// of is the stream of a purpose.
func (d *dice) of(purpose string) *rand.Rand {
	r := d.streams[purpose]
	if r == nil {
		h := fnv.New64a()
		h.Write([]byte(purpose)) // hash.Hash never errs
		r = rand.New(rand.NewPCG(d.seed, h.Sum64()))
		d.streams[purpose] = r
	}
	return r
}

// between draws a time from lo to hi.
func (d *dice) between(purpose string, lo, hi time.Duration) time.Duration {
	return lo + time.Duration(d.of(purpose).Int64N(int64(hi-lo)+1))
}

// chance is true for percent of a hundred draws.
func (d *dice) chance(purpose string, percent int) bool { return d.of(purpose).IntN(100) < percent }

// one draws an element.
func one[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }
