package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// Question asks for the quota of one run.
type Question struct {
	SeqLen, Batch, ChunkSize int
	// GPU and Driver may be empty where the registry knows only one.
	GPU, Driver string
	// Workload is its name. Params narrow it down, where several are known that
	// differ in them.
	Workload  string
	Params    map[string]string
	Env       map[string]string
	QuotaKind proto.QuotaKind
	Origin    proto.Origin
}

// Recommendation is a quota with its evidence.
type Recommendation struct {
	QuotaKind proto.QuotaKind `json:"quota_kind"`
	Origin    proto.Origin    `json:"origin"`
	// Survive is the smallest quota that is known to pass, NoRetry one at which
	// the allocator never flushes (0 where it is not known).
	Survive proto.Bytes `json:"survive_bytes"`
	NoRetry proto.Bytes `json:"no_retry_bytes"`
	// BandsKnown is false when larger quotas than Survive may fail again: a
	// bisection sees one edge of several.
	BandsKnown bool `json:"bands_known"`
	// Basis is boundary (this very cell was probed, or predicted and marked
	// so) or coefficients (the upper end of the fit's interval).
	Basis     string          `json:"basis"`
	CellState proto.CellState `json:"cell_state,omitempty"`
	CellID    proto.CellID    `json:"cell_id,omitempty"`
	GPU       string          `json:"gpu"`
	Driver    string          `json:"driver"`
	// Predicted is the fit's own value below Survive, for basis coefficients.
	Predicted    proto.Bytes   `json:"predicted_bytes,omitempty"`
	Domain       *proto.Domain `json:"domain,omitempty"`
	AppliedIndex uint64        `json:"applied_index"`
	Role         string        `json:"role,omitempty"`
}

// Recommend answers a question from a view: with the boundary of that very cell
// if it has one, else with the upper end of the fitted interval. It refuses to
// mix origins and to extrapolate; the error is a sentence for people.
func Recommend(view registry.View, q Question) (Recommendation, error) {
	cells := matching(view, q)
	if len(cells) == 0 {
		return Recommendation{}, errors.New(notCovered(view, q))
	}
	if err := oneStack(cells); err != nil {
		return Recommendation{}, err
	}
	if r := settledCell(cells, q); r != nil {
		b := r.Settled.Boundary
		return Recommendation{QuotaKind: q.QuotaKind, Origin: q.Origin, Survive: b.Boundary, NoRetry: b.NoRetry, BandsKnown: b.BandsKnown,
			Basis: "boundary", CellState: r.Settled.State, CellID: r.Key.Cell, GPU: r.Cell.GPU, Driver: r.Cell.Driver}, nil
	}
	return fromFit(view, q, cells)
}

// matching are the records of the question's group, by canonical order.
func matching(view registry.View, q Question) []*registry.Record {
	var out []*registry.Record
	for _, r := range view.Records {
		c := &r.Cell
		if r.Key.Origin == q.Origin && c.QuotaKind == q.QuotaKind && c.ChunkSize == q.ChunkSize && c.Workload.Name == q.Workload &&
			within(q.Params, c.Workload.Params) &&
			(q.GPU == "" || c.GPU == q.GPU) && (q.Driver == "" || c.Driver == q.Driver) && maps.Equal(c.Env, q.Env) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *registry.Record) int { return a.Cell.Compare(b.Cell) })
	return out
}

// within reports whether all that some says is so in all.
func within(some, all map[string]string) bool {
	for name, value := range some {
		if got, ok := all[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// oneStack refuses to answer for cells whose numbers have nothing to do with
// each other.
func oneStack(cells []*registry.Record) error {
	stacks, variants := map[string]bool{}, map[string]bool{}
	for _, r := range cells {
		stacks[r.Cell.GPU+" under driver "+r.Cell.Driver] = true
		variants[proto.EnvString(r.Cell.Workload.Params)] = true
	}
	if len(stacks) > 1 {
		return fmt.Errorf("several stacks are known (%s): name one with gpu and driver", strings.Join(slices.Sorted(maps.Keys(stacks)), "; "))
	}
	if len(variants) > 1 {
		return fmt.Errorf("several variants of workload %s are known (%s): name one with param", cells[0].Cell.Workload.Name,
			strings.Join(slices.Sorted(maps.Keys(variants)), "; "))
	}
	return nil
}

// settledCell is the very cell of the question if its boundary is known; on the
// finest grid, if it was measured on several. It is nil for none.
func settledCell(cells []*registry.Record, q Question) *registry.Record {
	var best *registry.Record
	for _, r := range cells {
		if r.Cell.SeqLen == q.SeqLen && r.Cell.Batch == q.Batch && r.Settled != nil && r.Settled.Boundary.Boundary > 0 &&
			(best == nil || r.Cell.Step < best.Cell.Step) {
			best = r
		}
	}
	return best
}

func notCovered(view registry.View, q Question) string {
	drivers := map[string]bool{}
	for _, r := range view.Records {
		if r.Key.Origin == q.Origin {
			drivers[r.Cell.Driver] = true
		}
	}
	if len(drivers) == 0 {
		return fmt.Sprintf("no %s sweep has run: submit a matrix first", q.Origin)
	}
	return fmt.Sprintf("no %s sweep covers this combination of workload, GPU, driver, chunk size, environment and quota kind; drivers covered: %s",
		q.Origin, strings.Join(slices.Sorted(maps.Keys(drivers)), ", "))
}

// newestFit is the newest set of coefficients that holds for one of the cells:
// versions of CUDA and torch may differ between recordings, and a cell without
// one belongs to no set yet.
func newestFit(view registry.View, cells []*registry.Record) (set *registry.CoefficientSet, step proto.Bytes) {
	for _, r := range cells {
		if s := view.Coefficients[registry.GroupOf(r)]; s != nil && (set == nil || s.Index > set.Index) {
			set, step = s, r.Cell.Step
		}
	}
	return set, step
}

// fromFit answers from the coefficients of the cells' group.
func fromFit(view registry.View, q Question, cells []*registry.Record) (Recommendation, error) {
	set, step := newestFit(view, cells)
	if set == nil {
		return Recommendation{}, errors.New("this cell has no boundary and its group no coefficients yet: wait until the sweep has settled, or add lengths to the matrix")
	}
	target := fit.Reserved
	if q.QuotaKind != proto.QuotaAllocator {
		target = fit.Process
	}
	for _, c := range set.Models {
		if c.Target != string(target) {
			continue
		}
		var model fit.Model
		if err := json.Unmarshal(c.Model, &model); err != nil {
			return Recommendation{}, errors.New("the stored coefficients cannot be read by this build: fit the group again")
		}
		p := model.Predict(q.SeqLen, q.Batch)
		if !p.InDomain {
			return Recommendation{}, fmt.Errorf("length %d at batch %d is outside what was measured (lengths %d to %d, batches %d to %d): add it to the matrix",
				q.SeqLen, q.Batch, c.Domain.SeqLen[0], c.Domain.SeqLen[1], c.Domain.Batch[0], c.Domain.Batch[1])
		}
		return Recommendation{QuotaKind: q.QuotaKind, Origin: q.Origin, Survive: proto.Bytes(p.Hi).RoundUp(step), BandsKnown: true,
			Predicted: proto.Bytes(p.Value), Basis: "coefficients", GPU: cells[0].Cell.GPU, Driver: cells[0].Cell.Driver, Domain: &c.Domain}, nil
	}
	return Recommendation{}, fmt.Errorf("the group's coefficients have no %s target", target)
}
