package matrix

import (
	"reflect"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v4"

	"github.com/oomfleet/oomfleet/proto"
)

// quota reads the quota section into the spec: kind and step are part of every
// cell, min and max belong to the search.
func (r *reader) quota(n *yaml.Node, spec *Spec) {
	spec.QuotaKind, spec.Step = proto.QuotaAllocator, proto.DefaultStep
	if n == nil {
		return
	}
	s, ok := r.section(n, "quota", reflect.TypeFor[FileQuota]())
	if !ok {
		return
	}
	if at := s.value("kind"); at != nil {
		kinds := make([]string, 0, 3)
		for _, kind := range proto.QuotaKinds() {
			kinds = append(kinds, string(kind))
		}
		if text, ok := r.choice(at, "quota.kind", kinds); ok {
			spec.QuotaKind = proto.QuotaKind(text)
		}
	}
	stepHolds := true
	if at := s.value("step"); at != nil {
		spec.Step, stepHolds = r.step(follow(at))
	}
	if !stepHolds {
		spec.Step = proto.DefaultStep // min and max are still read, not judged by it
	}
	least, leastOK := r.bound(s, "min", spec.Step, stepHolds)
	most, mostOK := r.bound(s, "max", spec.Step, stepHolds)
	if at := s.value("max"); at != nil && mostOK && most == 0 {
		r.fail(follow(at), "quota.max is 0, so no quota is left; remove the key for the card's memory")
	} else if at != nil && leastOK && mostOK && least >= most {
		r.fail(follow(at), "quota.max %v is not above quota.min %v", most, least)
	}
	spec.Search.Min, spec.Search.Max = least, most
}

func (r *reader) amount(at *yaml.Node, name string) (proto.Bytes, bool) {
	text, ok := r.word(at, name)
	if !ok {
		return 0, false
	}
	value, err := proto.ParseBytes(text)
	if err != nil {
		r.fail(at, "%s: %v", name, err)
		return 0, false
	}
	return value, true
}

func (r *reader) step(at *yaml.Node) (proto.Bytes, bool) {
	step, ok := r.amount(at, "quota.step")
	if !ok {
		return 0, false
	}
	if step <= 0 || step%proto.DefaultStep != 0 {
		near := max(proto.DefaultStep, nearestMultiple(step, proto.DefaultStep))
		r.fail(at, "quota.step: %q is not a positive multiple of %v, the driver's page; the nearest is %v", at.Value, proto.DefaultStep, near)
		return 0, false
	}
	return step, true
}

func (r *reader) bound(s section, key string, step proto.Bytes, judge bool) (proto.Bytes, bool) {
	at := s.value(key)
	if at == nil {
		return 0, true
	}
	at = follow(at)
	value, ok := r.amount(at, s.name(key))
	if ok && judge && value%step != 0 {
		r.fail(at, "%s: %q is not a multiple of the step, %v; the nearest is %v", s.name(key), at.Value, step, nearestMultiple(value, step))
		return 0, false
	}
	return value, ok
}

func nearestMultiple(value, step proto.Bytes) proto.Bytes {
	down, up := value.RoundDown(step), value.RoundUp(step)
	if value-down < up-value {
		return down
	}
	return up
}

// samplePart is "sample N%".
var samplePart = regexp.MustCompile(`^sample +([0-9]{1,3}) ?%$`)

// search reads how boundaries are looked for; min and max stay as quota set them.
func (r *reader) search(n *yaml.Node, search *proto.Search) {
	search.Strategy, search.Certify = proto.StrategyPredict, proto.CertifyEdges
	if n == nil {
		return
	}
	s, ok := r.section(n, "search", reflect.TypeFor[FileSearch]())
	if !ok {
		return
	}
	if at := s.value("strategy"); at != nil {
		set := []string{string(proto.StrategyPredict), string(proto.StrategyBisect)}
		if text, ok := r.choice(at, "search.strategy", set); ok {
			search.Strategy = proto.Strategy(text)
		}
	}
	at := s.value("certify")
	if at == nil {
		return
	}
	at = follow(at)
	text, ok := r.word(at, "search.certify")
	if !ok {
		return
	}
	r.certify(at, text, search)
	if search.Strategy == proto.StrategyBisect && search.Certify != proto.CertifyEdges {
		r.fail(at, "search.certify: a bisection finds its edge with real probes, so %q cannot be asked of it; remove the key", text)
	}
}

func (r *reader) certify(at *yaml.Node, text string, search *proto.Search) {
	switch certify := proto.Certify(text); certify {
	case proto.CertifyEdges, proto.CertifyAll, proto.CertifyNone:
		search.Certify = certify
		return
	}
	if match := samplePart.FindStringSubmatch(text); match != nil {
		percent, _ := strconv.Atoi(match[1]) // at most three digits
		if percent < 1 || percent > 100 {
			r.fail(at, "search.certify: a sample is 1%% to 100%% of the cells, not %d%%", percent)
			return
		}
		search.Certify, search.SamplePercent = proto.CertifySample, percent
		return
	}
	r.fail(at, "search.certify: %q is not one of edges, all, none, or a share such as \"sample 20%%\"%s",
		text, suggestion(text, []string{"edges", "all", "none", "sample 20%"}))
}

func (r *reader) limits(n *yaml.Node) int {
	if n == nil {
		return DefaultMaxCells
	}
	s, ok := r.section(n, "limits", reflect.TypeFor[FileLimits]())
	if ok && s.value("max_cells") != nil {
		if count, ok := r.number(s.value("max_cells"), "limits.max_cells", 1, HardMaxCells); ok {
			return count
		}
	}
	return DefaultMaxCells
}
