package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/coordinator/diff"
	"github.com/oomfleet/oomfleet/proto"
)

// diffFlags are how two sweeps are compared.
type diffFlags struct {
	drivers      []string
	torches      []string
	margin, card string
	confidence   float64
	format       string
	repeat       int
	strict       bool
}

// autoRepeat stands for as many repeats as the comparison asks for.
const autoRepeat = -1

func (a *app) matrixDiffCommand() *cobra.Command {
	var f diffFlags
	c := &cobra.Command{Use: "diff BEFORE AFTER | diff SWEEP --driver X --driver Y", Short: "Compare two sweeps: same, changed, or need more", Args: cobra.RangeArgs(1, 2),
		Long: `Diff compares two sweeps cell by cell and term by term, and says whether anything
changed, what, by how much, and what it means for jobs that run under quotas.

BEFORE and AFTER are ids of sweeps, names of matrices (the newest sweep of that
name), or files with the document that dev --submit or matrix status print with
--json; - is stdin. Files need no fleet. One sweep with two --driver compares its
drivers. Numbers of two origins, kinds of quota or steps are never compared.

Exit code 0 if all is the same or more recordings are needed, 3 if something
changed (with --strict also if more are needed), 2 if the two cannot be compared.`,
		Example: "  fleetctl matrix diff nightly-2794c5ed nightly-e6c205f8\n  fleetctl matrix diff before.json after.json --margin 8MiB --format markdown\n  fleetctl matrix diff esmfold-small --driver 580.159.04 --driver 590.10 --repeat",
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := f.options()
			if err != nil {
				return wrongInput(err)
			}
			if a.json {
				if f.format != "table" && f.format != "json" {
					return usagef("--json and --format %s exclude each other", f.format)
				}
				f.format = "json"
			}
			write := map[string]func(diff.Document) error{"table": a.diffTable, "json": a.diffJSON, "markdown": a.diffMarkdown, "csv": a.diffCSV}[f.format]
			if write == nil {
				return usagef("--format is table, json, markdown or csv, not %q", f.format)
			}
			sides, err := a.diffSides(cmd.Context(), args, f)
			if err != nil {
				return err
			}
			doc, err := diff.Sweeps(sides[0].Side, sides[1].Side, options)
			if err != nil {
				return wrongInput(err)
			}
			if err := write(doc); err != nil {
				return err
			}
			if f.repeat != 0 {
				if err := a.repeatCells(cmd.Context(), sides, doc, f.repeat); err != nil {
					return err
				}
			}
			return diffCode(doc, f.strict)
		}}
	fl := c.Flags()
	fl.StringArrayVar(&f.drivers, "driver", nil, "the driver that is meant where a sweep has several: once for both sides, or twice")
	fl.StringArrayVar(&f.torches, "torch", nil, "compare the recordings of one sweep's cells under two versions of torch; given twice")
	fl.StringVar(&f.margin, "margin", "16MiB", "the difference that does not matter")
	fl.Float64Var(&f.confidence, "confidence", 0.95, "the rate at which the verdicts should hold, 0.5 to 0.999")
	fl.StringVar(&f.card, "card", "", "memory of the card that jobs run on, to say which no longer fit it")
	fl.StringVar(&f.format, "format", "table", "table, json, markdown or csv")
	fl.BoolVar(&f.strict, "strict", false, "exit with 3 also where more recordings are needed")
	fl.IntVar(&f.repeat, "repeat", 0, "record the undecided cells so many times more, or as often as they need")
	fl.Lookup("repeat").NoOptDefVal = fmt.Sprint(autoRepeat)
	return c
}

func (f diffFlags) options() (diff.Options, error) {
	o := diff.Options{Confidence: f.confidence}
	var err error
	if o.Margin, err = proto.ParseBytes(f.margin); err != nil {
		return o, fmt.Errorf("--margin: %w", err)
	}
	if o.Margin == 0 {
		return o, errors.New("--margin 0 would make every difference matter, so that nothing could be called the same; 2MiB is the smallest that means anything")
	}
	if f.confidence < 0.5 || f.confidence > 0.999 || f.confidence != f.confidence {
		return o, fmt.Errorf("--confidence is between 0.5 and 0.999, not %v", f.confidence)
	}
	if o.Card, err = positive("--card", f.card); err != nil {
		return o, err
	}
	switch {
	case f.repeat < autoRepeat || f.repeat > 20:
		return o, fmt.Errorf("--repeat takes 1 to 20 recordings, not %d", f.repeat)
	case len(f.torches) != 0 && len(f.torches) != 2:
		return o, fmt.Errorf("--torch is given twice, not %d times", len(f.torches))
	case len(f.drivers) > 2:
		return o, fmt.Errorf("--driver is given at most twice, not %d times", len(f.drivers))
	}
	return o, nil
}

// diffCode is the exit code that a verdict ends the command with.
func diffCode(d diff.Document, strict bool) error {
	switch {
	case d.Verdict == proto.VerdictChanged:
		return &codedError{exitPartial, errors.New("")}
	case d.Verdict == proto.VerdictNeedMore && strict:
		return &codedError{exitPartial, errors.New("")}
	}
	return nil
}

// repeatCells records the undecided cells again and says what that should do.
func (a *app) repeatCells(ctx context.Context, sides [2]diffSide, doc diff.Document, repeats int) error {
	cells, most := doc.RepeatCells()
	if len(cells) == 0 {
		fmt.Fprintln(a.err, "no cell needs more recordings")
		return nil
	}
	if sides[0].client == nil || sides[1].client == nil {
		return usagef("--repeat asks a fleet to record cells again, so both sides must be sweeps of one, not files")
	}
	if repeats == autoRepeat {
		repeats = most
	}
	r := api.Repetition{Cells: cells, Repeats: repeats, Request: rand.Text()}
	reply, err := untilLeader(ctx, func(ctx context.Context) (coordinator.SubmitReply, error) {
		return sides[1].client.Repeat(ctx, doc.After.Sweep.ID, r)
	})
	if err != nil {
		return a.explain(err)
	}
	fmt.Fprintf(a.err, "%s: %d cells are recorded %d times more\n", reply.Matrix.ID, len(cells), repeats)
	for _, r := range doc.Repeat {
		fmt.Fprintf(a.err, "  %s: %s\n", r.Cell, power(r, repeats))
	}
	fmt.Fprintf(a.err, "wait for them, then compare again: fleetctl matrix status %s --wait\n", reply.Matrix.ID)
	return nil
}

// power says what repeats are expected to do to an interval.
func power(r diff.Repeat, repeats int) string {
	if r.HalfNow == 0 {
		return "nothing tells yet how much runs differ; repeats will"
	}
	then := r.Half(repeats)
	return fmt.Sprintf("known to ±%s now, to about ±%s then", strings.TrimPrefix(diff.Signed(r.HalfNow), "+"), strings.TrimPrefix(diff.Signed(then), "+"))
}
