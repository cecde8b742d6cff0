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

// formulaTable shows, under each group's name, one line a target: the sum of its
// terms. L is the sequence length, B the batch.
func formulaTable(w io.Writer, all []proto.Coefficients) error {
	t := newTable(w, "COEFFICIENTS", "RESIDUAL", "LENGTHS", "BATCHES", "BYTES = SUM OF")
	group := ""
	for _, c := range all {
		if name := groupName(c.Group) + c.Group.GPU + string(c.QuotaKind); name != group {
			group = name
			fmt.Fprintln(t.w, groupName(c.Group)) // a line without cells belongs to no column
		}
		t.formula(c, 80, fmt.Sprintf("%.2f %%", 100*c.ResidualMaxRel), span(c.Domain.SeqLen), span(c.Domain.Batch))
	}
	return t.flush()
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

// coefficientTable shows each term of each group and target with its interval.
func coefficientTable(w io.Writer, all []proto.Coefficients) error {
	t := newTable(w, "GROUP", "ORIGIN", "TARGET", "TERM", "VALUE", "INTERVAL", "WORST RESIDUAL")
	for _, c := range all {
		for i, term := range c.Terms {
			residual := ""
			if i == 0 {
				residual = fmt.Sprintf("%.2f %%", 100*c.ResidualMaxRel)
			}
			t.row(groupName(c.Group), string(c.Origin), c.Target, term.Name, termValue(term.Value, term.Unit),
				termValue(term.Lo, term.Unit)+" .. "+termValue(term.Hi, term.Unit), residual)
		}
	}
	return t.flush()
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
func termValue(v float64, unit string) string {
	if unit == "bytes" {
		return strconv.FormatFloat(v/(1<<20), 'f', 1, 64) + " MiB"
	}
	return strconv.FormatFloat(v, 'g', 5, 64) + " " + unit
}
