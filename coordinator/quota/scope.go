package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// known is one thing that a view knows of some subject: a cell's record or a set
// of coefficients.
type known struct {
	record *registry.Record
	set    *registry.CoefficientSet
	group  proto.Group
}

// settled is whether it answers anything: coverage counts nothing else.
func (k known) settled() bool {
	return k.set != nil || k.record.Settled != nil && k.record.Settled.Boundary.Boundary > 0
}

func (k known) programEnv() map[string]string { return proto.Cell{Env: k.group.Env}.ProgramEnv() }

// scope is what is known of one subject: one origin, workload, stack, chunk size
// and environment but for the allocator's own variables. Quota kinds, lengths,
// batches and allocator settings are all in it.
type scope struct {
	subject Subject
	params  map[string]string
	records []*registry.Record
	// sets are the coefficients of exactly the question's environment.
	sets []*registry.CoefficientSet
}

// everything lists what a view knows of an origin, in canonical order.
func everything(view registry.View, origin proto.Origin) []known {
	var out []known
	for _, r := range view.Records {
		if r.Key.Origin == origin {
			out = append(out, known{record: r, group: r.Group()})
		}
	}
	slices.SortFunc(out, func(a, b known) int { return a.record.Cell.Compare(b.record.Cell) })
	for _, key := range slices.SortedFunc(maps.Keys(view.Coefficients), registry.GroupKey.Compare) {
		if set := view.Coefficients[key]; key.Origin == origin && len(set.Models) > 0 {
			out = append(out, known{set: set, group: set.Models[0].Group})
		}
	}
	return out
}

// scopeOf narrows a view down to the question's subject, and says at which word
// of the question nothing was left.
func (a Adviser) scopeOf(q Question) (scope, error) {
	all := everything(a.View, q.Origin)
	if len(all) == 0 {
		return scope{}, refusef(NotCovered, "no %s sweep has run: submit a matrix first%s", q.Origin, a.elsewhere(q))
	}
	left := slices.DeleteFunc(slices.Clone(all), func(k known) bool {
		return k.group.Workload.Name != q.Workload || !within(q.Params, k.group.Workload.Params)
	})
	if len(left) == 0 {
		return scope{}, refusef(NotCovered, "no %s sweep covers workload %s; workloads covered: %s%s", q.Origin,
			proto.Workload{Name: q.Workload, Params: q.Params}, namesOf(all, func(k known) string { return k.group.Workload.Name }), a.elsewhere(q))
	}
	if q.Driver != "" {
		of := slices.DeleteFunc(slices.Clone(left), func(k known) bool { return k.group.Driver != q.Driver })
		if len(of) == 0 {
			return scope{}, refusef(UnknownDriver, "driver %s is not known to any %s sweep of %s; drivers covered: %s%s", q.Driver, q.Origin, q.Workload,
				namesOf(left, driverOf), a.elsewhere(q))
		}
		left = of
	}
	if q.GPU != "" {
		of := slices.DeleteFunc(slices.Clone(left), func(k known) bool { return k.group.GPU != q.GPU })
		if len(of) == 0 {
			return scope{}, refusef(NotCovered, "no %s sweep covers GPU %q; GPUs covered: %s%s", q.Origin, q.GPU,
				namesOf(left, func(k known) string { return k.group.GPU }), a.elsewhere(q))
		}
		left = of
	}
	env := proto.Cell{Env: q.Env}.ProgramEnv()
	of := slices.DeleteFunc(slices.Clone(left), func(k known) bool {
		return k.group.ChunkSize != q.ChunkSize || !maps.Equal(k.programEnv(), env)
	})
	if len(of) == 0 {
		return scope{}, refusef(NotCovered, "no %s sweep covers chunk size %d%s; covered: %s%s", q.Origin, q.ChunkSize, withEnv(env),
			namesOf(left, func(k known) string {
				return fmt.Sprintf("chunk size %d%s", k.group.ChunkSize, withEnv(k.programEnv()))
			}), a.elsewhere(q))
	}
	return oneOf(of, q)
}

// oneOf refuses to answer for numbers that have nothing to do with each other.
func oneOf(left []known, q Question) (scope, error) {
	stacks, variants := map[string]bool{}, map[string]bool{}
	for _, k := range left {
		stacks[k.group.GPU+" under driver "+k.group.Driver] = true
		variants[proto.EnvString(k.group.Workload.Params)] = true
	}
	if len(stacks) > 1 {
		return scope{}, refusef(Ambiguous, "several stacks are known (%s): name one with gpu and driver", strings.ReplaceAll(sortedKeys(stacks), ", ", "; "))
	}
	if len(variants) > 1 {
		return scope{}, refusef(Ambiguous, "several variants of workload %s are known (%s): name one with param", q.Workload,
			strings.ReplaceAll(sortedKeys(variants), ", ", "; "))
	}
	s := scope{subject: q.Subject, params: left[0].group.Workload.Params}
	s.subject.GPU, s.subject.Driver, s.subject.Params = left[0].group.GPU, left[0].group.Driver, s.params
	if s.subject.Env == nil {
		s.subject.Env = map[string]string{}
	}
	for _, k := range left {
		switch {
		case k.record != nil:
			s.records = append(s.records, k.record)
		case maps.Equal(k.group.Env, s.subject.Env):
			s.sets = append(s.sets, k.set)
		}
	}
	return s, nil
}

// cell is the question's cell, on the given grid.
func (s scope) cell(q Question, step proto.Bytes) proto.Cell {
	return proto.Cell{Workload: proto.Workload{Name: s.subject.Workload, Params: s.params}, GPU: s.subject.GPU, Driver: s.subject.Driver,
		SeqLen: q.SeqLen, Batch: q.Batch, ChunkSize: q.ChunkSize, Env: s.subject.Env, QuotaKind: q.Kind, Step: step}
}

func driverOf(k known) string { return k.group.Driver }

// namesOf lists what the settled ones have of something.
func namesOf(all []known, name func(known) string) string {
	set := map[string]bool{}
	for _, k := range all {
		if k.settled() {
			set[name(k)] = true
		}
	}
	if len(set) == 0 {
		return "none, as no cell has settled yet"
	}
	return sortedKeys(set)
}

// elsewhere names the origins that know the workload under other names than the
// one asked for; empty for none. Origins never mix, so it is only a hint.
func (a Adviser) elsewhere(q Question) string {
	hint := ""
	for _, origin := range []proto.Origin{proto.OriginMeasured, proto.OriginSimulated, proto.OriginImported} {
		if origin == q.Origin {
			continue
		}
		drivers := map[string]bool{}
		for _, k := range everything(a.View, origin) {
			if k.settled() && k.group.Workload.Name == q.Workload && (q.Driver == "" || k.group.Driver == q.Driver) {
				drivers[k.group.Driver] = true
			}
		}
		delete(drivers, "")
		if len(drivers) > 0 {
			hint += fmt.Sprintf("; %s has drivers %s: ask with origin %s", origin, sortedKeys(drivers), origin)
		}
	}
	return hint
}

// withEnv shows an environment behind another word; empty for none.
func withEnv(env map[string]string) string {
	if len(env) == 0 {
		return ""
	}
	return " with " + proto.EnvString(env)
}
