package fit

import (
	"math/rand/v2"
	"testing"
)

// fleet is a made-up group with known truth: its runs, and what new ones do.
type fleet struct {
	driver
	rng    *rand.Rand
	points []Point
}

// newFleet runs a random design from one to three times, under noise of a random
// size: allocated exact, reserved in segments, the context as a whole.
func newFleet(seed uint64) fleet {
	rng := rand.New(rand.NewPCG(seed, 50))
	f := fleet{rng: rng, driver: driver{truth: randomTruth(rng), contextNoise: 8 * rng.Float64(), slackNoise: 1 + 7*rng.Float64()}}
	var cells [][2]int
	for l, longest := 64, 384+64*rng.IntN(8); l <= longest; l += 32 * (1 + rng.IntN(3)) {
		cells = append(cells, [2]int{l, 1})
	}
	for _, b := range []int{2, 4} {
		cells = append(cells, [2]int{96 + rng.IntN(160), b})
	}
	for range 1 + rng.IntN(3) {
		for _, c := range cells {
			f.points = append(f.points, f.run(c[0], c[1], rng))
		}
	}
	return f
}

// fresh is a new run somewhere inside the domain of a model.
func (f fleet) fresh(m Model) Point {
	between := func(r [2]int) int { return r[0] + f.rng.IntN(r[1]-r[0]+1) }
	return f.run(between(m.Domain.SeqLen), between(m.Domain.Batch), f.rng)
}

// fixed are the true values of a target's terms.
func (f fleet) fixed(t Target) map[string]float64 {
	tr := f.truth
	terms := map[string]float64{"weights": tr.weights, "workspaces": tr.workspaces, "BL": tr.bl, "BL2": tr.bl2, "BL3": tr.bl3}
	if t != Allocated {
		terms["slack"] = tr.slack
		terms["BL"] += tr.slackBL
	}
	if t == Process {
		terms["context"], terms["modules"] = tr.context, tr.modules
	}
	return terms
}

// Over 200 simulated fleets with known truth, every stated interval holds at the
// stated rate: predictions of all three peaks, and every coefficient. One new run
// is made for each fleet and target, so that trials are independent.
func TestFleetsHoldTheirIntervals(t *testing.T) {
	const fleets = 200
	hits := map[string]int{}
	width := map[Target]float64{}
	for seed := range uint64(fleets) {
		f := newFleet(seed)
		for _, m := range mustFit(t, f.points) {
			p := f.fresh(m)
			said := m.Predict(p.SeqLen, p.Batch)
			hits["peak "+string(m.Target)] += 0
			if said.holds(float64(p.peak(m.Target))) {
				hits["peak "+string(m.Target)]++
			}
			width[m.Target] += float64(said.Hi-said.Lo) / mib / fleets
			for name, v := range f.fixed(m.Target) {
				key := string(m.Target) + "'s " + name
				hits[key] += 0
				if got, _ := term(m, name); got.Lo <= v && v <= got.Hi { // no such term claims that it is 0
					hits[key]++
				}
			}
		}
	}
	least := binomialLeast(fleets, 0.95)
	for key, n := range hits {
		t.Logf("%-24s holds in %d of %d", key, n, fleets)
		if n < least {
			t.Errorf("%s: only %d of %d hold, 95 %% is stated, %d is the least that chance allows", key, n, fleets, least)
		}
	}
	// Two standard deviations of the noise alone, each way, are about 25 MiB.
	if width[Allocated] > 1 || width[Reserved] > 75 || width[Process] > 75 {
		t.Errorf("intervals are too wide to be of use: %v", width)
	}
	t.Logf("seeds 0 to %d, mean widths in MiB %v", fleets-1, width)
}
