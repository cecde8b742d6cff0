package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/proto"
)

// runRow is one run as a file tells of it.
type runRow struct {
	line  int
	group proto.Group
	point fit.Point
	// leftOut says why the run is not fitted; empty for those that are.
	leftOut string
}

// runTable is a whole file of runs.
type runTable struct {
	rows []runRow
	// notes hold for everything that is fitted from the file.
	notes []string
	// check judges one group's rows beyond the fit; nil for none.
	check func([]runRow) []string
}

// importLabels name what a file of runs does not say of itself.
type importLabels struct {
	workload, gpu, driver string
}

func (a *app) fitCommand() *cobra.Command {
	c := &cobra.Command{Use: "fit", Short: "Fit measured peaks and predict from them, without a fleet"}
	c.AddCommand(a.fitRunsCommand(), a.fitPredictCommand())
	return c
}

func (a *app) fitRunsCommand() *cobra.Command {
	var labels importLabels
	var explain bool
	c := &cobra.Command{Use: "runs FILE|-", Short: "Fit coefficients to a file of measured runs", Args: cobra.ExactArgs(1),
		Long: `Runs fits one set of coefficients to each group of a file: all runs of one
workload, card, driver, chunk size and environment. The file holds JSON lines,
or a CSV table whose columns name their unit; docs/cli.md describes both.

Only runs without a quota that passed are fitted. What is left out, and which
groups have too few points, is said on stderr. All numbers are of origin
"imported", wherever they were measured: the fleet has not seen them being made.`,
		Example: "  fleetctl fit runs my_runs.csv --json >coefficients.json",
		RunE: func(_ *cobra.Command, args []string) error {
			table, err := a.readRuns(args[0], labels)
			if err != nil {
				return err
			}
			all, err := a.fitRuns(args[0], table)
			if err != nil {
				return err
			}
			var accounts []account
			if explain {
				if accounts, err = accountsOf(all, table); err != nil {
					return err
				}
			}
			if a.json {
				return writeJSON(a.out, coefficientsDocument{Coefficients: all, Accounts: accounts})
			}
			return errors.Join(writeFits(a.out, all, table), writeAccounts(a.out, accounts))
		}}
	c.Flags().StringVar(&labels.workload, "workload", "", "workload of the runs (default esmfold for JSON lines, the file's name for CSV)")
	c.Flags().StringVar(&labels.gpu, "gpu", "", "GPU model of the runs")
	c.Flags().StringVar(&labels.driver, "driver", "", "driver of the runs")
	c.Flags().BoolVar(&explain, "explain", false, "take every fitted run's peak apart, to the byte")
	return c
}

// coefficientsDocument is what fit runs prints, and the part of any document
// that fit predict reads.
type coefficientsDocument struct {
	Coefficients []proto.Coefficients `json:"coefficients"`
	// Accounts are of fit runs --explain alone.
	Accounts []account `json:"accounts,omitempty"`
}

// fitRuns fits every group of a table, in the groups' order in the file.
func (a *app) fitRuns(name string, table runTable) ([]proto.Coefficients, error) {
	var keys []string
	groups, leftOut := map[string][]runRow{}, map[string]int{}
	for _, r := range table.rows {
		if r.leftOut != "" {
			leftOut[r.leftOut]++
			continue
		}
		key := groupKey(r.group)
		if groups[key] == nil {
			keys = append(keys, key)
		}
		groups[key] = append(groups[key], r)
	}
	var all []proto.Coefficients
	fitted, tooFew := 0, []string{}
	for _, key := range keys {
		coefficients, err := fitGroup(groups[key], table)
		switch {
		case errors.Is(err, fit.ErrTooFewPoints):
			tooFew = append(tooFew, fmt.Sprintf("  %s (%s)", groupLabel(groups[key][0].group), counted(len(groups[key]), "run")))
			continue
		case err != nil:
			return nil, wrongInput(fmt.Errorf("fit %s: %w", groupLabel(groups[key][0].group), err))
		}
		fitted += len(groups[key])
		all = append(all, coefficients...)
	}
	if len(tooFew) > 0 {
		tooFew = slices.Insert(tooFew, 0, "not fitted, as a fit needs 2 combinations of length and batch where weights are known, else 3:")
	}
	if len(all) == 0 {
		return nil, usagef("%s: nothing can be fitted\n%s", name, strings.Join(append([]string{whatIsLeftOut(leftOut)}, tooFew...), "\n"))
	}
	fmt.Fprintf(a.err, "%d of %s fitted; %s\n", fitted, counted(len(table.rows), "run"), whatIsLeftOut(leftOut))
	for _, text := range tooFew {
		fmt.Fprintln(a.err, text)
	}
	return all, nil
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func whatIsLeftOut(leftOut map[string]int) string {
	if len(leftOut) == 0 {
		return "none left out"
	}
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(leftOut)) {
		parts = append(parts, fmt.Sprintf("%d %s", leftOut[reason], reason))
	}
	return "left out: " + strings.Join(parts, ", ")
}

// fitGroup fits the runs of one group.
func fitGroup(rows []runRow, table runTable) ([]proto.Coefficients, error) {
	var points []fit.Point
	for _, r := range rows {
		points = append(points, r.point)
	}
	models, err := fit.Fit(points, fit.Options{})
	if err != nil {
		return nil, err
	}
	notes := table.notes
	if table.check != nil {
		notes = append(append(table.check(rows), lessThanWeights(points, models)...), notes...)
	}
	var out []proto.Coefficients
	for _, m := range models {
		m.Notes = append(slices.Clone(m.Notes), notes...)
		text, err := json.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("encode the model of %s: %w", m.Target, err)
		}
		c := proto.Coefficients{Group: rows[0].group, QuotaKind: proto.QuotaAllocator, Origin: proto.OriginImported, Target: string(m.Target),
			ResidualMaxRel: m.ResidualMaxRel, Domain: proto.Domain{SeqLen: m.Domain.SeqLen, Batch: m.Domain.Batch},
			Points: m.Points, Notes: m.Notes, Model: text}
		for _, t := range m.Terms {
			c.Terms = append(c.Terms, proto.Term(t))
		}
		out = append(out, c)
	}
	return out, nil
}

// groupKey tells groups apart.
func groupKey(g proto.Group) string {
	text, err := json.Marshal(g) // sorts map keys
	if err != nil {
		panic(fmt.Sprintf("a group is plain data and always marshals: %v", err))
	}
	return string(text)
}

// groupLabel is all of a group that is known, for people.
func groupLabel(g proto.Group) string {
	parts := []string{g.Workload.Name}
	for _, name := range slices.Sorted(maps.Keys(g.Workload.Params)) {
		parts = append(parts, name+"="+g.Workload.Params[name])
	}
	for _, text := range []string{g.GPU, g.Driver} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	parts = append(parts, fmt.Sprintf("chunk %d", g.ChunkSize))
	if env := proto.EnvString(g.Env); env != "" {
		parts = append(parts, env)
	}
	return strings.Join(parts, " ")
}

// writeFits shows a block for each group: a formula a target, where the memory
// of its runs goes, then the notes.
func writeFits(w io.Writer, all []proto.Coefficients, table runTable) error {
	for start := 0; start < len(all); {
		end := start
		for end < len(all) && groupKey(all[end].Group) == groupKey(all[start].Group) {
			end++
		}
		group := all[start:end]
		fmt.Fprintf(w, "%s (%s)\n", groupLabel(group[0].Group), group[0].Origin)
		t := newTable(w, "  TARGET", "WORST RESIDUAL", "LENGTHS", "BATCHES", "POINTS", "BYTES = SUM OF")
		var notes []string
		for _, c := range group {
			t.formula(c, 64, fmt.Sprintf("%.2f %%", 100*c.ResidualMaxRel), span(c.Domain.SeqLen), span(c.Domain.Batch), fmt.Sprint(c.Points))
			for _, note := range c.Notes {
				if !slices.Contains(notes, note) {
					notes = append(notes, note)
				}
			}
		}
		if err := errors.Join(t.flush(), writeBill(w, group, table)); err != nil {
			return err
		}
		for _, note := range notes {
			if err := writeNote(w, "  ", "note: "+note); err != nil {
				return err
			}
		}
		fmt.Fprintln(w)
		start = end
	}
	return nil
}

func span(r proto.Range) string { return fmt.Sprintf("%d-%d", r[0], r[1]) }
