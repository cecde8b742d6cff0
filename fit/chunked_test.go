package fit

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// chunkedRun is what a program like ESMFold does with chunks, where no copy binds:
// the cubic term's rows exist a chunk at a time, for every batch.
func chunkedRun(d driver, chunk, l, b int, rng *rand.Rand) Point {
	whole := d.bl3 * float64(b*l) * float64(l*l)
	d.workspaces += d.bl3*float64(min(chunk, b*l))*float64(l*l) - whole
	p := d.run(l, b, rng)
	p.Chunk = chunk
	return p
}

// With several batches the part that a chunk's rows hold is told from the rest,
// as its coefficient without chunks times the chunk size, and carries over to
// batches that were not run.
func TestChunkedFormsAreFound(t *testing.T) {
	const fleets = 100
	held, term2 := 0, 0
	for seed := range uint64(fleets) {
		rng := rand.New(rand.NewPCG(seed, 70))
		d := esmfoldLike()
		d.bl3 = 16 + 32*rng.Float64()
		var points []Point
		for _, c := range [][2]int{{64, 1}, {128, 1}, {256, 1}, {384, 1}, {512, 1}, {640, 1}, {128, 2}, {256, 2}, {384, 2}, {128, 4}, {256, 4}} {
			points = append(points, chunkedRun(d, 64, c[0], c[1], rng))
		}
		m := mustFit(t, points)[0]
		if got, _ := term(m, "CL2"); got.Lo <= 64*d.bl3 && 64*d.bl3 <= got.Hi && math.Abs(got.Value-64*d.bl3) < 0.01*got.Value {
			term2++
		}
		fresh := chunkedRun(d, 64, 320, 3, rng)
		if p := m.Predict(320, 3); p.InDomain && p.holds(float64(fresh.Allocated)) && math.Abs(m.against(fresh).Rel) < 1e-4 {
			held++
		}
		if cube, _ := term(m, "BL3"); cube.Value != 0 {
			t.Errorf("seed %d: a cubic term with chunks: %+v", seed, cube)
		}
	}
	t.Logf("seeds 0 to %d: CL2 found in %d, a new batch predicted in %d", fleets-1, term2, held)
	if least := binomialLeast(fleets, 0.95); term2 < least || held < least {
		t.Errorf("CL2 found in %d, a new batch predicted in %d of %d", term2, held, fleets)
	}
}

// On one batch, chunk x L^2 is B x L^2 times a constant: the real ESMFold's BL2 in
// chunks of 64 is what it is without, and 64 times its BL3.
func TestChunkedOnOneBatchSaysSo(t *testing.T) {
	chunked, plain := mustFit(t, realRuns(t, 64))[0], mustFit(t, realRuns(t, 0))[0]
	both, _ := term(chunked, "BL2")
	square, _ := term(plain, "BL2")
	cube, _ := term(plain, "BL3")
	if want := square.Value + 64*cube.Value; math.Abs(both.Value-want) > 0.01*want {
		t.Errorf("BL2 in chunks is %.0f, expected %.0f", both.Value, want)
	}
	if !strings.Contains(strings.Join(chunked.Notes, "\n"), "rows of a chunk") {
		t.Errorf("notes %q", chunked.Notes)
	}
}

func TestChunkSizesAreNotMixed(t *testing.T) {
	if _, err := Fit(append(realRuns(t, 0), realRuns(t, 64)...), Options{}); !errors.Is(err, ErrBadPoint) {
		t.Fatalf("%v", err)
	}
}
