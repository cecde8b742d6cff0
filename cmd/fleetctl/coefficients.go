package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

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

// formulaTable shows one line a group and target: the sum of its terms. L is
// the sequence length, B the batch.
func formulaTable(w io.Writer, all []proto.Coefficients) error {
	t := newTable(w, "GROUP", "TARGET", "BYTES = SUM OF", "WORST RESIDUAL", "LENGTHS", "BATCHES")
	for _, c := range all {
		var parts []string
		for _, term := range c.Terms {
			if term.Value != 0 {
				parts = append(parts, formulaTerm(term))
			}
		}
		t.row(groupName(c.Group), c.Target, strings.Join(parts, " + "), fmt.Sprintf("%.2f %%", 100*c.ResidualMaxRel),
			fmt.Sprintf("%d-%d", c.Domain.SeqLen[0], c.Domain.SeqLen[1]), fmt.Sprintf("%d-%d", c.Domain.Batch[0], c.Domain.Batch[1]))
	}
	return t.flush()
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
