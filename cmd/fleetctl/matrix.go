package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/matrix"
	"github.com/oomfleet/oomfleet/proto"
)

func (a *app) matrixCommand() *cobra.Command {
	c := &cobra.Command{Use: "matrix", Short: "Matrix files and their sweeps"}
	a.serverFlag(c)
	c.AddCommand(a.matrixExpandCommand(), a.matrixSubmitCommand(), a.matrixStatusCommand(), a.matrixListCommand(), a.matrixCancelCommand(), a.matrixSchemaCommand(), a.matrixDiffCommand())
	return c
}

// readMatrix reads a matrix file, or stdin for "-".
func (a *app) readMatrix(path string) ([]byte, error) {
	if path == "-" {
		text, err := io.ReadAll(io.LimitReader(a.in, 4<<20))
		if err != nil {
			return nil, fmt.Errorf("read the matrix from stdin: %w", err)
		}
		return text, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, wrongInput(fmt.Errorf("read the matrix file: %w: name one that can be read, or - for stdin", err))
	}
	defer f.Close()
	// One byte more than matrix.Expand takes, so that it is it who refuses.
	text, err := io.ReadAll(io.LimitReader(f, matrix.MaxSource+1))
	if err != nil {
		return nil, wrongInput(fmt.Errorf("read the matrix file: %w: name one that can be read, or - for stdin", err))
	}
	return text, nil
}

// badMatrix shows every problem of a file with its place.
func badMatrix(path string, err error) error {
	var problems matrix.Problems
	if errors.As(err, &problems) {
		return usagef("%s has errors\n%s", path, strings.TrimRight(problems.String(), "\n"))
	}
	return wrongInput(err)
}

func (a *app) notices(n matrix.Problems) {
	if len(n) > 0 {
		fmt.Fprintln(a.err, strings.TrimRight(n.String(), "\n"))
	}
}

// expansionDocument is what `matrix expand --json` prints.
type expansionDocument struct {
	Name     string          `json:"name"`
	Search   proto.Search    `json:"search"`
	Cells    []expandedCell  `json:"cells"`
	Estimate matrix.Estimate `json:"estimate"`
	Notices  matrix.Problems `json:"notices"`
}

type expandedCell struct {
	ID proto.CellID `json:"id"`
	proto.Cell
}

func (a *app) matrixExpandCommand() *cobra.Command {
	var set []string
	c := &cobra.Command{Use: "expand FILE", Short: "Show the cells of a matrix file, without a fleet", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			source, err := a.readMatrix(args[0])
			if err != nil {
				return err
			}
			e, err := matrix.Expand(source, matrix.Options{Set: set})
			if err != nil {
				err = badMatrix(args[0], err)
				if strings.Contains(err.Error(), "is installed, but no ") {
					err = usagef("%w\nexpand asks no fleet what is installed; name it: --set target.gpu='NVIDIA H200' --set axes.driver=580.159.04", err)
				}
				return err
			}
			if a.json {
				d := expansionDocument{Name: e.Name, Search: e.Search, Estimate: e.Estimate(), Notices: e.Notices, Cells: []expandedCell{}}
				for _, cell := range e.Cells {
					d.Cells = append(d.Cells, expandedCell{cell.ID(), cell})
				}
				return writeJSON(a.out, d)
			}
			a.notices(e.Notices)
			t := newTable(a.out, "CELL", "WORKLOAD", "GPU", "DRIVER", "LENGTH", "BATCH", "CHUNK", "QUOTA", "ENVIRONMENT")
			for _, cell := range e.Cells {
				t.row(string(cell.ID()), cell.Workload.String(), cell.GPU, cell.Driver, fmt.Sprint(cell.SeqLen), fmt.Sprint(cell.Batch),
					fmt.Sprint(cell.ChunkSize), string(cell.QuotaKind), proto.EnvString(cell.Env))
			}
			if err := t.flush(); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "\n%s\n", e.Estimate())
			return nil
		}}
	c.Flags().StringArrayVar(&set, "set", nil, "override a key, like axes.seq_len=128,256; may be repeated")
	return c
}

func (a *app) matrixSchemaCommand() *cobra.Command {
	return &cobra.Command{Use: "schema", Short: "Print the JSON Schema of matrix files, for editors", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(a.out, matrix.Schema())
			return err
		}}
}

func (a *app) matrixSubmitCommand() *cobra.Command {
	var set []string
	var origin string
	var again, wait bool
	c := &cobra.Command{Use: "submit FILE", Short: "Submit a matrix to the fleet", Args: cobra.ExactArgs(1),
		Long: `Submit sends a matrix file to the coordinators. Submitting the same file twice
is harmless: the sweep is the same, and what is settled stays settled.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			source, err := a.readMatrix(args[0])
			if err != nil {
				return err
			}
			if _, err := matrix.Parse(source, matrix.Options{Set: set}); err != nil {
				return badMatrix(args[0], err)
			}
			o, err := proto.ParseOrigin(origin)
			if err != nil || o == proto.OriginImported {
				return usagef("--origin is measured or simulated, not %q", origin)
			}
			s := api.Submission{Source: string(source), Set: set, Origin: o, Again: again, Request: rand.Text()}
			reply, err := untilLeader(cmd.Context(), func(ctx context.Context) (coordinator.SubmitReply, error) { return client.Submit(ctx, s) })
			if err != nil {
				return otherOrigin(cmd.Context(), client, o, a.explain(err))
			}
			if wait {
				a.submitted(a.err, reply)
				return a.follow(cmd.Context(), client, reply.Matrix.ID, false)
			}
			if report, err := client.Sweep(cmd.Context(), reply.Matrix.ID); err == nil {
				for _, w := range whoIsMissing(cmd.Context(), client, report) {
					fmt.Fprintln(a.err, w.String()+w.remedy())
				}
			}
			if a.json {
				return writeJSON(a.out, reply)
			}
			a.submitted(a.out, reply)
			fmt.Fprintf(a.out, "watch it with: fleetctl matrix status %s --watch\n", reply.Matrix.ID)
			return nil
		}}
	f := c.Flags()
	f.StringArrayVar(&set, "set", nil, "override a key, like axes.seq_len=128,256; may be repeated")
	f.StringVar(&origin, "origin", "measured", "which agents run it: measured or simulated")
	f.BoolVar(&again, "again", false, "run cells that failed before once more, as a sweep of its own")
	f.BoolVar(&wait, "wait", false, "wait until the sweep is settled, then print its status")
	return c
}

func (a *app) submitted(w io.Writer, r coordinator.SubmitReply) {
	a.notices(r.Notices)
	fmt.Fprintf(w, "%s: %d cells new, %d in work, %d settled already\n", r.Matrix.ID, r.New, r.Known, r.Settled)
}

func (a *app) matrixStatusCommand() *cobra.Command {
	var wait, watch bool
	c := &cobra.Command{Use: "status SWEEP", Short: "Show where a sweep stands, cell by cell", Args: cobra.ExactArgs(1),
		Long: `Status shows how far a sweep is, what it waits for, why cells failed, and then
each cell. SWEEP is the id of a sweep, or the name of a matrix: its newest sweep
is meant. A running sweep's pace is the average since it was submitted; with
--wait and --watch it is that of the time since then.`,
		Example: "  fleetctl matrix status nightly\n  fleetctl matrix status nightly-2794c5ed --watch",
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			find := a.sweepNamed
			if wait || watch {
				find = a.sweepAwaited
			}
			report, err := find(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			if wait || watch {
				return a.follow(cmd.Context(), client, report.Matrix.ID, watch)
			}
			waits := whoIsMissing(cmd.Context(), client, report)
			for _, w := range waits {
				fmt.Fprintln(a.err, w.atLength(time.Now()))
			}
			var submitted time.Time
			if report.State == "running" && !a.json && len(waits) == 0 { // else no pace says when it ends
				submitted = submittedAt(cmd.Context(), client, report.Matrix.ID)
			}
			return a.printReport(report, submitted)
		}}
	c.Flags().BoolVar(&wait, "wait", false, "wait until the sweep is settled")
	c.Flags().BoolVar(&watch, "watch", false, "show a screen that is kept up to date until the sweep is settled")
	return c
}

// sweepNamed asks for a sweep by its id or its matrix's name, which means the
// newest sweep of that name; repeats that a comparison asked for have the name too
// and are not meant.
func (a *app) sweepNamed(ctx context.Context, client *api.Client, name string) (proto.Report, error) {
	report, missing := client.Sweep(ctx, proto.MatrixID(name))
	var p *api.Problem
	if missing == nil || !errors.As(missing, &p) || p.Code != api.CodeNotFound && p.Code != api.CodeUnavailable {
		return report, a.explain(missing)
	}
	list, err := client.Sweeps(ctx)
	if err != nil {
		return report, a.explain(err)
	}
	for _, s := range list.Sweeps { // the newest first
		if t := s.Rollout; s.Matrix.Name == name && (t == nil || t.Trigger == nil || t.Trigger.Kind != proto.TriggerRepeat) {
			report, err = client.Sweep(ctx, s.Matrix.ID)
			return report, a.explain(err)
		}
	}
	if p.Code == api.CodeUnavailable { // nobody leads, and those who follow may lack it
		return report, a.explain(missing)
	}
	return report, noSuchSweep(name, list.Sweeps)
}

// sweepAwaited is sweepNamed for those who wait anyway: a fleet that does not
// answer for a moment is waited for, and said.
func (a *app) sweepAwaited(ctx context.Context, client *api.Client, name string) (proto.Report, error) {
	limit := time.NewTimer(silenceLimit)
	defer limit.Stop()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for said := false; ; said = true {
		report, err := a.sweepNamed(ctx, client, name)
		if err == nil || ctx.Err() != nil || !mayPass(err) {
			return report, err
		}
		if !said {
			fmt.Fprintf(a.err, "%v; waiting for an answer\n", err)
		}
		select {
		case <-ctx.Done():
			return report, context.Cause(ctx)
		case <-limit.C:
			return report, err
		case <-tick.C:
		}
	}
}

// mayPass reports whether an error tells of the fleet at this moment, not of what
// was asked.
func mayPass(err error) bool {
	var wrong *codedError
	return !errors.As(err, &wrong)
}

// submittedAt is when a sweep was submitted, zero where no coordinator says.
func submittedAt(ctx context.Context, client *api.Client, id proto.MatrixID) time.Time {
	list, err := client.Sweeps(ctx)
	if err != nil {
		return time.Time{} // the status itself is what was asked for
	}
	for _, s := range list.Sweeps {
		if s.Matrix.ID == id {
			return s.Submitted
		}
	}
	return time.Time{}
}

func (a *app) matrixListCommand() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the sweeps", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			answer, err := client.Sweeps(cmd.Context())
			if err != nil {
				return a.explain(err)
			}
			if a.json {
				return writeJSON(a.out, answer)
			}
			if len(answer.Sweeps) == 0 {
				fmt.Fprintln(a.out, "no sweep yet; submit one with `fleetctl matrix submit FILE`")
				return nil
			}
			t := newTable(a.out, "SWEEP", "ORIGIN", "STATE", "CELLS", "SETTLED", "FAILED", "SUBMITTED", "TRIGGER", "VERDICT")
			for _, s := range answer.Sweeps {
				t.row(string(s.Matrix.ID), string(s.Origin), s.State, fmt.Sprint(s.Counts.Total), fmt.Sprint(s.Counts.Settled()),
					fmt.Sprint(s.Counts.Failed), s.Submitted.Local().Format("2006-01-02 15:04:05"), triggerText(s.Rollout), verdictText(s.Rollout))
			}
			return t.flush()
		}}
}

func (a *app) matrixCancelCommand() *cobra.Command {
	return &cobra.Command{Use: "cancel SWEEP", Short: "Cancel a sweep; cells that another sweep wants go on", Args: cobra.ExactArgs(1),
		Long: `Cancel stops a sweep. A standing order (rollout in the matrix file) ends with it,
also when its own cells have settled long ago: no new stack starts a sweep any
more, and all results stay.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			answer, err := untilLeader(cmd.Context(), func(ctx context.Context) (api.Cancelled, error) { return client.Cancel(ctx, proto.MatrixID(args[0])) })
			if err != nil {
				return a.notCancelled(cmd.Context(), client, args[0], err)
			}
			if a.json {
				return writeJSON(a.out, answer)
			}
			fmt.Fprintf(a.out, "%s cancelled; %d tasks taken back\n", answer.ID, answer.Closed)
			return nil
		}}
}

// follow waits until a sweep is settled, shows progress on the way, and prints
// the status document.
func (a *app) follow(ctx context.Context, client *api.Client, id proto.MatrixID, watch bool) error {
	p := newProgress(a.err)
	p.watch = watch
	report, err := awaitSettled(ctx, client, id, p)
	if err != nil {
		return a.explain(err)
	}
	return a.printReport(report, time.Time{})
}
