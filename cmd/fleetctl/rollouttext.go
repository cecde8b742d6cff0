package main

import (
	"fmt"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

// triggerText says in a table what made a sweep: a person, who may have left a
// standing order, or what the coordinator saw.
func triggerText(r *proto.Rollout) string {
	switch {
	case r == nil:
		return ""
	case r.Trigger != nil && r.Trigger.Kind == proto.TriggerNewStack && r.Trigger.Stack != nil && r.Trigger.Repeats > 0:
		return "new torch " + r.Trigger.Stack.Torch
	case r.Trigger != nil && r.Trigger.Kind == proto.TriggerNewStack && r.Trigger.Stack != nil:
		return "new driver " + r.Trigger.Stack.Driver
	case r.Trigger != nil:
		return "repeat of " + string(r.Trigger.Of)
	case r.Policy != nil && r.Ended:
		return "standing order, ended"
	case r.Policy != nil:
		return "standing order"
	}
	return ""
}

func verdictText(r *proto.Rollout) string {
	if r == nil || r.Verdict == nil {
		return ""
	}
	return r.Verdict.Summary
}

// rolloutText is what a sweep has to do with a new stack, a line each.
func rolloutText(report proto.Report) string {
	r := report.Rollout
	if r == nil {
		return ""
	}
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if p := r.Policy; p != nil {
		if r.Ended || report.State == "cancelled" {
			say("standing order: ended")
		} else {
			say("standing order: new stacks are swept by themselves, at most %d a day, and compared (margin %v, confidence %v)", p.MaxPerDay, p.Margin, p.Confidence)
		}
	}
	if t := r.Trigger; t != nil {
		switch {
		case t.Kind == proto.TriggerNewStack && t.Stack != nil && t.Repeats > 0:
			say("started by itself: agent %s announced torch %s under driver %s, for the standing order of %s; its cells are recorded again", t.Agent, t.Stack.Torch, t.Stack.Driver, t.Of)
		case t.Kind == proto.TriggerNewStack && t.Stack != nil:
			say("started by itself: agent %s announced driver %s on the %s, for the standing order of %s", t.Agent, t.Stack.Driver, t.Stack.GPU, t.Of)
		default:
			say("records cells of %s again, %d times each", t.Of, t.Repeats)
		}
	}
	if v := r.Verdict; v != nil {
		say("verdict: %s (%s same, %d changed, %d need more, against %s under %s)", v.Summary, plural(v.Same, "cell"), v.Changed, v.NeedMore, v.Base, fromText(v))
		say("the whole comparison: fleetctl matrix diff %s%s", diffArguments(v, report), marginFlag(v.Margin))
	}
	return strings.Join(lines, "\n")
}

// diffArguments are those of the command that makes the verdict's comparison.
func diffArguments(v *proto.SweepVerdict, report proto.Report) string {
	if v.From.Driver == v.To.Driver {
		return fmt.Sprintf("%s --torch %s --torch %s", v.Base, v.From.Torch, v.To.Torch)
	}
	drivers := fmt.Sprintf(" --driver %s --driver %s", v.From.Driver, v.To.Driver)
	after := report.Matrix.ID
	if t := report.Rollout.Trigger; t != nil && t.Kind == proto.TriggerRepeat {
		after = t.Of
	}
	return fmt.Sprintf("%s %s%s", v.Base, after, drivers)
}

// fromText names what the verdict's base differs in.
func fromText(v *proto.SweepVerdict) string {
	if v.From.Driver == v.To.Driver {
		return "torch " + v.From.Torch
	}
	return "driver " + v.From.Driver
}

func marginFlag(margin proto.Bytes) string {
	if margin == 16*proto.MiB || margin == 0 {
		return ""
	}
	return fmt.Sprintf(" --margin %d", int64(margin))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
