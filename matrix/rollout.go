package matrix

import (
	"reflect"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"

	"github.com/oomfleet/oomfleet/proto"
)

// Bounds and defaults of the rollout section.
const (
	DefaultMaxPerDay = 4
	HardMaxPerDay    = 100
	DefaultMargin    = 16 * proto.MiB
	MaxRepeats       = 20
)

// DefaultConfidence is the rate at which verdicts hold where a file names none;
// MinConfidence and MaxConfidence are what package fit takes.
const (
	DefaultConfidence = 0.95
	MinConfidence     = 0.5
	MaxConfidence     = 0.999
)

// rollout reads the standing order. A matrix whose driver and GPU are fixed in
// the file can never meet a new stack, which is an error; fixed by an override
// it is this one submission that does not stand.
func (r *reader) rollout(n *yaml.Node, spec *Spec) {
	if n == nil {
		return
	}
	s, ok := r.section(n, "rollout", reflect.TypeFor[FileRollout]())
	if !ok {
		return
	}
	policy := &proto.RolloutPolicy{MaxPerDay: DefaultMaxPerDay, Margin: DefaultMargin, Confidence: DefaultConfidence}
	if at := s.value("on"); at == nil {
		r.fail(s.node, "rollout.on is missing: new-stack sweeps again whenever an agent announces a new GPU or driver")
	} else {
		r.choice(at, "rollout.on", []string{string(proto.TriggerNewStack)})
	}
	if at := s.value("max_per_day"); at != nil {
		policy.MaxPerDay, _ = r.number(at, "rollout.max_per_day", 1, HardMaxPerDay)
	}
	if at := s.value("margin"); at != nil {
		if margin, ok := r.amount(follow(at), "rollout.margin"); ok && margin == 0 {
			r.fail(follow(at), "rollout.margin is 0, so every difference would matter and none could be called the same; the step, %v, is a small one", spec.Step)
		} else {
			policy.Margin = margin
		}
	}
	if at := s.value("confidence"); at != nil {
		policy.Confidence = r.confidence(at)
	}
	if at := s.value("repeat"); at != nil {
		policy.Repeats, _ = r.number(at, "rollout.repeat", 0, MaxRepeats)
	}
	if spec.awaitsStacks() {
		spec.Rollout = policy
	} else if at := r.fixedAt(spec); at != nil {
		r.fail(at, "rollout waits for new stacks, but axes.driver names fixed versions; write installed among them")
	}
}

func (r *reader) confidence(at *yaml.Node) float64 {
	text, ok := r.word(at, "rollout.confidence")
	if !ok {
		return 0
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || !(value >= MinConfidence && value <= MaxConfidence) {
		r.fail(follow(at), "rollout.confidence: %q is not a number from %v to %v", text, MinConfidence, MaxConfidence)
	}
	return value
}

// awaitsStacks reports whether an agent that comes later can add cells.
func (s *Spec) awaitsStacks() bool {
	return slices.ContainsFunc(s.axes.driver, func(e entry[string]) bool { return e.value == Installed })
}

// fixedAt is where the file fixes the drivers; nil where an override did or
// where the axis is not known.
func (r *reader) fixedAt(spec *Spec) *yaml.Node {
	if len(spec.axes.driver) == 0 || spec.axes.broken["driver"] {
		return nil
	}
	at := spec.axes.driver[0].at
	if _, override := r.origin[at]; override {
		return nil
	}
	return at
}
