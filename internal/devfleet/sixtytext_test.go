package devfleet

import (
	"fmt"
	"strings"

	"github.com/oomfleet/oomfleet/agent/sim"
	"github.com/oomfleet/oomfleet/proto"
)

// sixtyText is the document of the sixty cells.
func sixtyText(bisect, predict []judged) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Sixty cells by bisection and by prediction (simulated)\n")
	line("`deploy/examples/sixty.yaml` on simulated agents of driver %s, once with `search.strategy: bisect` and once with", RecordedDriver)
	line("`predict` and `certify: edges`. Every number here is **simulated**, none was measured: the agents replay recordings of the real ESMFold,")
	line("and their seconds are a model. %d of the %d cells deviate from what the predictor knows (seed %d): *adaptive* cells pass below",
		sixtyCells-number(predict, ofKind("")), sixtyCells, *deviationSeed)
	line("the replayed boundary, since they catch a refusal and go on with smaller blocks, cells with an *extra* allocation fail at it, and in")
	line("*order* cells the runs themselves differ.\n")
	line("    go test ./internal/devfleet -run TestSixtyCells -v -rewrite    # writes this file; without -rewrite it is held to the run\n")
	line("*Wrong*: the boundary does not pass, or one step below it passes; in *order* cells: no run has its boundary there.")
	line("*Missed*: it is an edge, but some larger quota fails. *Bands*: the fail bands that are there are not told (in *order* cells: not judged).\n")
	line("| cells | | strategy | recordings | probes | GPU-seconds | wrong | missed | bands |")
	line("|---|---|---|---|---|---|---|---|---|")
	for _, kind := range []sim.DeviationKind{"", sim.DeviateAdaptive, sim.DeviateExtra, sim.DeviateOrder, "all"} {
		for _, s := range []struct {
			name  string
			cells []judged
		}{{"bisect", bisect}, {"predict", predict}} {
			name, group := string(kind), s.cells
			if kind != "all" {
				group = only(s.cells, ofKind(kind))
			}
			if kind == "" {
				name = "as recorded"
			}
			line("| %s | %d | %s | %s |", name, len(group), s.name, row(group))
		}
	}
	line("\nPrediction took %.1f %% of the GPU-seconds of bisection. %d cells were settled on what the trace of a probe showed that had spoken", 100*seconds(predict)/seconds(bisect), number(predict, fromProbe))
	line("against their prediction (docs/adr/0011). A run with the allocator's history on takes 5 %% longer in the model, the middle of the 0 to 10 %%")
	line("seen on an H200: recordings of both strategies, and probes whose trace may teach. How the cells ended:\n")
	for _, s := range []struct {
		name  string
		cells []judged
	}{{"bisect", bisect}, {"predict", predict}} {
		var states []string
		for _, state := range []proto.CellState{proto.CellCertified, proto.CellBisected, proto.CellAdaptive, proto.CellFailed} {
			states = append(states, fmt.Sprintf("%d %s", number(s.cells, func(c judged) bool { return c.State == state }), state))
		}
		line("- %s: %s", s.name, strings.Join(states, ", "))
	}
	for _, s := range []struct {
		name  string
		cells []judged
	}{{"bisect", bisect}, {"predict", predict}} {
		bad := only(s.cells, func(c judged) bool { return c.wrong || c.missed || c.bands })
		if len(bad) == 0 {
			continue
		}
		line("\nWrong, missed or without their bands, %s:\n", s.name)
		for _, c := range bad {
			line("- %s%s", c.sentence(), c.faults())
		}
	}
	return b.String()
}

func fromProbe(c judged) bool { return c.PredictedFrom == proto.FromProbe }

func ofKind(kind sim.DeviationKind) func(judged) bool {
	return func(c judged) bool { return c.truth.Deviation.Kind == kind }
}

func only(cells []judged, is func(judged) bool) (some []judged) {
	for _, c := range cells {
		if is(c) {
			some = append(some, c)
		}
	}
	return some
}

func row(cells []judged) string {
	probes := 0
	for _, c := range cells {
		probes += c.Probes
	}
	return fmt.Sprintf("%d | %d | %.0f | %d | %d | %d",
		number(cells, func(c judged) bool { return c.Trace != nil }), probes, seconds(cells),
		number(cells, func(c judged) bool { return c.wrong }), number(cells, func(c judged) bool { return c.missed }),
		number(cells, func(c judged) bool { return c.bands }))
}

// faults says what is wrong with a cell, and which fail bands it should tell.
func (j judged) faults() string {
	var said string
	if j.wrong {
		said += "; wrong"
	}
	if j.missed {
		said += "; missed"
	}
	if !j.bands {
		return said
	}
	said += "; fail bands"
	bands := j.truth.FailBands()
	if len(bands) == 0 {
		return said + " none"
	}
	for _, b := range bands {
		said += fmt.Sprintf(" %d-%d", b.From/proto.MiB, b.To/proto.MiB)
	}
	return said + " MiB"
}
