package fleetsim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// town is what a history is about: the sweeps that people submit, and the truth
// of each of their cells. It depends on the seed and the number of cells alone.
type town struct {
	sweeps []sweep
	truths map[registry.Key]*truth
	keys   []registry.Key // sorted
	// stacks are those that the cells need agents of.
	stacks []proto.Stack
	// order is the town's standing order; nil for none.
	order *order
}

// sweep is one submission and when it comes.
type sweep struct {
	registry.AddSweep
	at time.Duration
	// cancelled is when it is cancelled; 0 is never.
	cancelled time.Duration
	// ambush: it comes in the moment in which one of its cells is to be settled
	// without it, or at its time where that does not happen before.
	ambush bool
}

const (
	gpuName  = "NVIDIA H200"
	cudaName = "13.0"
	torchVer = "2.11.0"
)

// confs are the allocator settings that cells are drawn with; the last one is
// beyond what replay models.
func confs() []string {
	return []string{"", "expandable_segments:True", "garbage_collection_threshold:0.8", "max_split_size_mb:128", "backend:cudaMallocAsync"}
}

func drawTown(d *dice, most int) *town {
	r := d.of("town")
	t := &town{truths: make(map[registry.Key]*truth)}
	w := drawWorkload(r)
	ordered, all := d.of("ordered").IntN(3) == 0, most
	if ordered {
		most = max(1, most/3)
	}
	cells := drawCells(r, most)
	if ordered { // as in a matrix file: what has two kinds is compared with nothing
		kind := cells[0].QuotaKind
		cells = slices.DeleteFunc(cells, func(c proto.Cell) bool { return c.QuotaKind != kind })
	}
	for _, c := range cells {
		stack := proto.Stack{GPU: c.GPU, Driver: c.Driver, CUDA: cudaName, Torch: torchVer}
		if !slices.Contains(t.stacks, stack) {
			t.stacks = append(t.stacks, stack)
		}
	}
	points := drawPoints(r, cells)
	for _, c := range cells {
		key := registry.Key{Origin: proto.OriginSimulated, Cell: c.ID()}
		how := points[point{c.SeqLen, c.Batch}]
		if how == deviateNone && r.IntN(4) == 0 {
			how = one(r, deviateAdaptive, deviateExtra)
		}
		t.truths[key] = newTruth(r, w, c, how)
		t.keys = append(t.keys, key)
	}
	slices.SortFunc(t.keys, registry.Key.Compare)
	t.drawSweeps(r, cells)
	if ordered {
		t.drawOrder(d, w, points, all-len(cells))
	}
	return t
}

func drawCells(r *rand.Rand, most int) []proto.Cell {
	lengths := []int{64, 96, 128, 160, 192, 256, 320, 384, 512}
	r.Shuffle(len(lengths), func(i, j int) { lengths[i], lengths[j] = lengths[j], lengths[i] })
	lengths = lengths[:1+r.IntN(7)]
	batches := one(r, []int{1}, []int{1}, []int{2}, []int{1, 2}, []int{2, 3})
	envs := confs()
	r.Shuffle(len(envs), func(i, j int) { envs[i], envs[j] = envs[j], envs[i] })
	envs = envs[:1+r.IntN(2)]
	kinds := one(r, []proto.QuotaKind{proto.QuotaAllocator}, []proto.QuotaKind{proto.QuotaAllocator},
		[]proto.QuotaKind{proto.QuotaAllocator, proto.QuotaDevice}, []proto.QuotaKind{proto.QuotaProcess})
	drivers := one(r, []string{"580.159.04"}, []string{"580.159.04"}, []string{"580.159.04", "580.160.01"})
	step := one(r, proto.DefaultStep, proto.DefaultStep, 16*proto.MiB)
	var cells []proto.Cell
	for _, driver := range drivers {
		for _, kind := range kinds {
			for _, l := range lengths {
				for _, b := range batches {
					for _, env := range envs {
						c := proto.Cell{Workload: proto.Workload{Name: "sim:town"}, GPU: gpuName, Driver: driver, SeqLen: l, Batch: b,
							Env: map[string]string{}, QuotaKind: kind, Step: step}
						if env != "" {
							c.Env["PYTORCH_CUDA_ALLOC_CONF"] = env
						}
						cells = append(cells, c)
					}
				}
			}
		}
	}
	r.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	return cells[:min(len(cells), most)]
}

// point is a length and batch: its cells run the same operations.
type point struct{ seqLen, batch int }

// drawPoints picks the points at which the workload does other things than at the
// rest, or does them in another order from run to run.
func drawPoints(r *rand.Rand, cells []proto.Cell) map[point]deviation {
	points := make(map[point]deviation)
	for _, c := range cells {
		p := point{c.SeqLen, c.Batch}
		if _, drawn := points[p]; !drawn {
			points[p] = one(r, deviateChanged, deviateOrder, deviateNone, deviateNone, deviateNone, deviateNone, deviateNone, deviateNone,
				deviateNone, deviateNone, deviateNone, deviateNone, deviateNone, deviateNone, deviateNone, deviateNone)
		}
	}
	return points
}

// vague reports whether some recording of the cell's family misleads about the
// others: then only what was probed is sure.
func (t *town) vague(key registry.Key) bool {
	family := registry.FamilyOf(key.Origin, t.truths[key].cell)
	for other, tr := range t.truths {
		misleads := tr.deviates == deviateChanged || tr.deviates == deviateOrder
		if misleads && registry.FamilyOf(other.Origin, tr.cell) == family {
			return true
		}
	}
	return false
}

// drawSweeps splits the cells: a first sweep, sometimes a second one that asks for
// more of some and brings others, sometimes one that is cancelled.
func (t *town) drawSweeps(r *rand.Rand, cells []proto.Cell) {
	first := drawSearch(r)
	all := sweep{AddSweep: registry.AddSweep{ID: "first", Name: "first", Origin: proto.OriginSimulated, Search: first, Cells: cells}}
	if len(cells) < 2 || r.IntN(2) == 0 {
		t.sweeps = []sweep{all}
		return
	}
	half := len(cells) / 2
	all.Cells = cells[:half+1]
	second := sweep{AddSweep: registry.AddSweep{ID: "second", Name: "second", Origin: proto.OriginSimulated, Search: drawSearch(r), Cells: cells[half:]},
		at: time.Duration(r.IntN(90)) * time.Second}
	second.ambush = r.IntN(2) == 0
	if r.IntN(3) == 0 {
		second.ambush = false
		second.cancelled = second.at + time.Duration(1+r.IntN(60))*time.Second
	}
	t.sweeps = []sweep{all, second}
}

func drawSearch(r *rand.Rand) proto.Search {
	s := proto.Search{
		Strategy: one(r, proto.StrategyPredict, proto.StrategyPredict, proto.StrategyPredict, proto.StrategyBisect),
		Certify:  one(r, proto.CertifyEdges, proto.CertifyEdges, proto.CertifyAll, proto.CertifySample, proto.CertifyNone),
	}
	if s.Certify == proto.CertifySample {
		s.SamplePercent = 50
	}
	if r.IntN(6) == 0 { // a range that cuts off some boundaries
		s.Min = proto.Bytes(r.IntN(600)) * proto.MiB
		s.Max = s.Min + proto.Bytes(200+r.IntN(3000))*proto.MiB
	}
	return s
}

// steady reports whether nothing that people do while the fleet works decides how
// a cell ends: it is in no sweep that is cancelled.
func (t *town) steady(key registry.Key) bool {
	for _, s := range t.sweeps {
		if s.cancelled > 0 && slices.ContainsFunc(s.Cells, func(c proto.Cell) bool { return c.ID() == key.Cell }) {
			return false
		}
	}
	return true
}
