package matrix

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

// Expansion is what a matrix file comes to.
type Expansion struct {
	Name   string
	Search proto.Search
	// Cells are sorted by proto.Cell.Compare and free of duplicates; there is
	// at least one. Their ids depend on the values alone. Cells share their
	// maps: read them, never write to them.
	Cells []proto.Cell
	// Notices are remarks in the order of the file; they stop nothing.
	Notices Problems
	// Rollout is the standing order of the file; nil without one.
	Rollout *proto.RolloutPolicy
}

// Expand reads a matrix file and combines its axes: the product, less what the
// exclude rules match, plus what the include rules name. The error is a Problems
// with everything that is wrong.
func Expand(source []byte, options Options) (*Expansion, error) {
	r := &reader{}
	spec := r.parse(source, options)
	if spec.axes.at != nil {
		r.resolve(spec, options.Installed)
		r.judge(spec)
	}
	if len(r.problems) > 0 {
		return nil, r.finish(r.problems)
	}
	cells := r.combine(spec)
	if len(cells) == 0 {
		r.fail(spec.axes.at, "no cell is left: the exclude rules match all of them")
		return nil, r.finish(r.problems)
	}
	return &Expansion{Name: spec.Name, Search: spec.Search, Cells: cells, Notices: r.finish(r.notices), Rollout: spec.Rollout}, nil
}

// resolve puts the registered agents' GPU model and drivers in the place of
// `installed`, and gives notice of what no agent has.
func (r *reader) resolve(spec *Spec, stacks []proto.Stack) {
	at := spec.gpuAt
	if at == nil {
		at = spec.axes.at
	}
	models := distinctTexts(stacks, func(s proto.Stack) (string, bool) { return s.GPU, true })
	switch {
	case spec.GPU == Installed && len(models) == 0:
		r.fail(at, "target.gpu is installed, but no agent is registered; start one, or name the model")
		spec.GPU = ""
	case spec.GPU == Installed && len(models) > 1:
		r.fail(at, "target.gpu is installed, but agents have %d models; name one of %s", len(models), strings.Join(models, ", "))
		spec.GPU = ""
	case spec.GPU == Installed:
		spec.GPU = models[0]
	case spec.GPU != "" && len(models) > 0 && !slices.Contains(models, spec.GPU):
		r.notice(at, "no registered agent has the GPU %s (there is %s); its cells wait until one comes%s",
			spec.GPU, strings.Join(models, ", "), suggestion(spec.GPU, models))
	}
	drivers := distinctTexts(stacks, func(s proto.Stack) (string, bool) { return s.Driver, s.GPU == spec.GPU })
	r.drivers("axes.driver", spec.GPU, &spec.axes, drivers)
	for _, rules := range [][]selection{spec.exclude, spec.include} {
		for i := range rules {
			r.drivers("driver", spec.GPU, &rules[i], drivers)
		}
	}
}

// drivers resolves the driver versions of one selection. An unknown GPU leaves
// them unresolved.
func (r *reader) drivers(name, gpu string, sel *selection, installed []string) {
	if gpu == "" {
		sel.broken["driver"] = true
	}
	if sel.driver == nil || sel.broken["driver"] {
		return
	}
	var resolved []entry[string]
	for _, e := range sel.driver {
		switch {
		case e.value == Installed && len(installed) == 0:
			r.fail(e.at, "%s is installed, but no registered agent has the GPU %s; start one, or name the version", name, gpu)
			sel.broken["driver"] = true
		case e.value == Installed:
			for _, version := range installed {
				resolved = append(resolved, entry[string]{e.at, version})
			}
		default:
			if len(installed) > 0 && !slices.Contains(installed, e.value) {
				r.notice(e.at, "no registered agent has driver %s on the GPU %s (there is %s); its cells wait until one comes",
					e.value, gpu, strings.Join(installed, ", "))
			}
			resolved = append(resolved, e)
		}
	}
	sel.driver = distinct(r, name, resolved)
}

func distinctTexts(stacks []proto.Stack, text func(proto.Stack) (string, bool)) []string {
	var texts []string
	for _, s := range stacks {
		if t, ok := text(s); ok && t != "" {
			texts = append(texts, t)
		}
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

// judge checks the rules against the axes, and the size of every product before
// it is made: a typing mistake costs an error, not the machine's memory.
func (r *reader) judge(spec *Spec) {
	for _, rule := range spec.exclude {
		r.judgeExclude(rule, spec.axes)
	}
	for _, axis := range axisNames() {
		if spec.axes.broken[axis] {
			return // its number of values is not known
		}
	}
	total := r.within(spec, spec.axes, 0, "axes: the product of the values")
	for i, rule := range spec.include {
		spec.include[i] = rule.or(spec.axes)
		if total <= spec.MaxCells {
			total = r.within(spec, spec.include[i], total, "include: with this rule the sweep")
		}
	}
	if total <= spec.MaxCells {
		r.weigh(spec, total)
	}
}

// combine makes the cells of a spec without problems.
func (r *reader) combine(spec *Spec) []proto.Cell {
	filters := make([]filter, len(spec.exclude))
	for i, rule := range spec.exclude {
		filters[i] = newFilter(rule)
	}
	known := map[proto.CellID]bool{}
	var cells []proto.Cell
	spec.product(spec.axes, func(c proto.Cell, envKey string) {
		for _, f := range filters {
			if f.matches(c, envKey) {
				return
			}
		}
		known[c.ID()] = true
		cells = append(cells, c)
	})
	for _, rule := range spec.include {
		doubled, size := 0, 0
		spec.product(rule, func(c proto.Cell, _ string) {
			size++
			if id := c.ID(); known[id] {
				doubled++
			} else {
				known[id] = true
				cells = append(cells, c)
			}
		})
		if doubled > 0 {
			r.notice(rule.at, "this rule names %d of its %d cells for the second time; they count once", doubled, size)
		}
	}
	slices.SortFunc(cells, proto.Cell.Compare)
	return cells
}

// within returns total plus the size of a product, and reports the step over
// the limit.
func (r *reader) within(spec *Spec, sel selection, total int, what string) int {
	size := 1
	for _, n := range []int{len(sel.seqLen), len(sel.batch), len(sel.chunk), len(sel.driver), len(sel.env)} {
		if size > HardMaxCells {
			break // more than any limit already; multiplying on could overflow
		}
		size *= max(n, 1)
	}
	if total += size; total > spec.MaxCells {
		more := fmt.Sprint(total)
		if total > HardMaxCells {
			more = fmt.Sprintf("more than %d", HardMaxCells)
		}
		r.fail(sel.at, "%s comes to %s cells; limits.max_cells is %d (it can be raised to %d)", what, more, spec.MaxCells, HardMaxCells)
	}
	return total
}

// or fills the axes that a rule leaves out with every value of the axis.
func (sel selection) or(axes selection) selection {
	if sel.seqLen == nil {
		sel.seqLen = axes.seqLen
	}
	if sel.batch == nil {
		sel.batch = axes.batch
	}
	if sel.chunk == nil {
		sel.chunk = axes.chunk
	}
	if sel.driver == nil {
		sel.driver = axes.driver
	}
	if sel.env == nil {
		sel.env = axes.env
	}
	return sel
}

// product calls yield for every combination of a selection, in the order of
// proto.Cell.Compare as far as the axes decide it, which makes sorting cheap.
func (s *Spec) product(sel selection, yield func(c proto.Cell, envKey string)) {
	drivers, chunks := inOrder(sel.driver, strings.Compare), inOrder(sel.chunk, cmp.Compare[int])
	batches, seqLens := inOrder(sel.batch, cmp.Compare[int]), inOrder(sel.seqLen, cmp.Compare[int])
	envs := inOrder(sel.env, func(a, b environment) int { return strings.Compare(a.key, b.key) })
	cell := proto.Cell{Workload: s.Workload, GPU: s.GPU, QuotaKind: s.QuotaKind, Step: s.Step}
	for _, driver := range drivers {
		for _, chunk := range chunks {
			for _, batch := range batches {
				for _, seqLen := range seqLens {
					for _, env := range envs {
						cell.Driver, cell.ChunkSize, cell.Batch, cell.SeqLen = driver.value, chunk.value, batch.value, seqLen.value
						cell.Env = env.value.vars
						yield(cell, env.value.key)
					}
				}
			}
		}
	}
}

func inOrder[T any](entries []entry[T], compare func(a, b T) int) []entry[T] {
	return slices.SortedFunc(slices.Values(entries), func(a, b entry[T]) int { return compare(a.value, b.value) })
}
