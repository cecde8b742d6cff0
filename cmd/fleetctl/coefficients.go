package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/proto"
)

func (a *app) coefficientsCommand() *cobra.Command {
	c := &cobra.Command{Use: "coefficients", Short: "Fitted coefficients"}
	a.serverFlag(c)
	var read reading
	get := &cobra.Command{Use: "get", Short: "Print the fitted coefficients, from any coordinator", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			answer, err := client.Coefficients(cmd.Context(), read.query())
			if err != nil {
				return a.explain(err)
			}
			if a.json {
				return writeJSON(a.out, answer)
			}
			if len(answer.Coefficients) == 0 {
				fmt.Fprintln(a.out, "no coefficients yet: a group is fitted when all of its cells have settled")
				return nil
			}
			return coefficientTable(a.out, answer.Coefficients)
		}}
	read.add(get)
	c.AddCommand(get, a.coefficientHistoryCommand(), a.exportCommand(), a.importCommand(), a.watchCommand())
	return c
}

// groups calls do for each group's coefficients, under a line that names it.
func groups(w io.Writer, all []proto.Coefficients, do func(*table, proto.Coefficients), header ...string) error {
	name := func(c proto.Coefficients) string {
		return fmt.Sprintf("%s (%s, %s quotas)", groupName(c.Group), c.Origin, c.QuotaKind)
	}
	for start := 0; start < len(all); {
		end := start
		t := newTable(w)
		fmt.Fprintln(w, name(all[start]))
		t.row(header...)
		for ; end < len(all) && name(all[end]) == name(all[start]); end++ {
			do(t, all[end])
		}
		if err := t.flush(); err != nil {
			return err
		}
		if start = end; start < len(all) {
			fmt.Fprintln(w)
		}
	}
	return nil
}

// formulaTable shows for each group one line a target: the sum of its terms. L is
// the sequence length, B the batch.
func formulaTable(w io.Writer, all []proto.Coefficients) error {
	return groups(w, all, func(t *table, c proto.Coefficients) {
		t.formula(c, 64, fmt.Sprintf("%.2f %%", 100*c.ResidualMaxRel), span(c.Domain.SeqLen), span(c.Domain.Batch))
	}, "  TARGET", "WORST RESIDUAL", "LENGTHS", "BATCHES", "BYTES = SUM OF")
}

// formula adds a target's line, and as many more as its terms need; width is how
// much of a line they may take.
func (t *table) formula(c proto.Coefficients, width int, before ...string) {
	name := "  " + c.Target
	for _, line := range formulaLines(c, width) {
		t.row(append(append([]string{name}, before...), line)...)
		name = " "
		for i := range before {
			before[i] = " "
		}
	}
}

// formulaLines is the sum of a target's terms, broken between them.
func formulaLines(c proto.Coefficients, width int) []string {
	lines := []string{""}
	for _, term := range c.Terms {
		if term.Value == 0 {
			continue
		}
		last, text := &lines[len(lines)-1], formulaTerm(term)
		switch {
		case *last == "":
			*last = text
		case len(*last)+len(" + ")+len(text) <= width:
			*last += " + " + text
		default:
			lines = append(lines, "+ "+text)
		}
	}
	return lines
}

// formulaTerm is a constant in MiB with its name, or a factor and its variable.
func formulaTerm(t proto.Term) string {
	variable, ok := map[string]string{"BL": "B*L", "BL2": "B*L^2", "BL3": "B*L^3", "CL": "L", "CL2": "L^2"}[t.Name]
	if !ok {
		return strconv.FormatFloat(t.Value/(1<<20), 'f', 1, 64) + " MiB " + t.Name
	}
	return strconv.FormatFloat(t.Value, 'g', 5, 64) + "*" + variable
}

// coefficientTable shows each term of each group and target with its interval,
// which is in the value's unit.
func coefficientTable(w io.Writer, all []proto.Coefficients) error {
	return groups(w, all, func(t *table, c proto.Coefficients) {
		target, residual := "  "+c.Target, fmt.Sprintf("%.2f %%", 100*c.ResidualMaxRel)
		for _, term := range c.Terms {
			value, unit := termValue(term.Value, term.Unit)
			lo, _ := termValue(term.Lo, term.Unit)
			hi, _ := termValue(term.Hi, term.Unit)
			t.row(target, residual, term.Name, value, lo+" .. "+hi, unit)
			target, residual = " ", " "
		}
	}, "  TARGET", "WORST RESIDUAL", "TERM", "VALUE", "INTERVAL", "UNIT")
}

func groupName(g proto.Group) string {
	name := g.Workload.String() + " " + g.Driver
	if g.ChunkSize > 0 {
		name += fmt.Sprintf(" c%d", g.ChunkSize)
	}
	if env := proto.EnvString(g.Env); env != "" {
		name += " " + env
	}
	return name
}

// termValue shows a constant in MiB, and a factor in bytes per unit.
func termValue(v float64, unit string) (value, shown string) {
	if unit == "bytes" {
		return strconv.FormatFloat(v/(1<<20), 'f', 1, 64), "MiB"
	}
	return strconv.FormatFloat(v, 'g', 5, 64), unit
}
