package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

func (a *app) exportCommand() *cobra.Command {
	var read reading
	var format, file string
	c := &cobra.Command{Use: "export", Short: "Write coefficients to a file, as JSON or CSV", Args: cobra.NoArgs,
		Long: `Export writes the newest coefficients. The JSON form is the document of
coefficients get and of fit runs: fit predict reads it, and coefficients import
takes it into another fleet. The CSV form has one line a term, for spreadsheets.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "json" && format != "csv" {
				return usagef("--format is json or csv, not %q", format)
			}
			if a.json && format == "csv" {
				return usagef("--json and --format csv exclude each other")
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			answer, err := client.Coefficients(cmd.Context(), read.query())
			if err != nil {
				return a.explain(err)
			}
			err = a.toFile(file, func(w io.Writer) error {
				if format == "csv" {
					return writeCoefficientCSV(w, answer.Coefficients)
				}
				return writeJSON(w, coefficientsDocument{Coefficients: answer.Coefficients})
			})
			if err != nil || file == "-" {
				return err
			}
			done := exported{File: file, Coefficients: len(answer.Coefficients)}
			if a.json {
				return writeJSON(a.out, done)
			}
			_, err = fmt.Fprintf(a.out, "%s: %d coefficients\n", done.File, done.Coefficients)
			return err
		}}
	read.add(c)
	c.Flags().StringVar(&format, "format", "json", "json or csv")
	c.Flags().StringVarP(&file, "output", "o", "-", "the file, - for stdout")
	return c
}

// exported is what `coefficients export -o FILE --json` prints.
type exported struct {
	File         string `json:"file"`
	Coefficients int    `json:"coefficients"`
}

// toFile writes to a file that is there only if all of it is, or to stdout.
func (a *app) toFile(name string, write func(io.Writer) error) error {
	if name == "-" {
		return write(a.out)
	}
	partial := name + ".partial"
	out, err := os.OpenFile(partial, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return wrongInput(fmt.Errorf("write %s: %w", name, err))
	}
	buffered := bufio.NewWriter(out)
	err = errors.Join(write(buffered), buffered.Flush(), out.Sync(), out.Close())
	if err == nil {
		err = os.Rename(partial, name)
	}
	if err != nil {
		os.Remove(partial)
	}
	return err
}

// writeCoefficientCSV writes one line for each term of each group and target.
func writeCoefficientCSV(w io.Writer, all []proto.Coefficients) error {
	out := csv.NewWriter(w)
	out.Write([]string{"origin", "workload", "params", "gpu", "driver", "cuda", "torch", "chunk_size", "env", "quota_kind", "target", "term",
		"value", "unit", "lo", "hi", "residual_max_rel", "seq_len_from", "seq_len_to", "batch_from", "batch_to", "points"})
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	for _, c := range all {
		g := c.Group
		for _, t := range c.Terms {
			out.Write([]string{string(c.Origin), g.Workload.Name, proto.EnvString(g.Workload.Params), g.GPU, g.Driver, g.CUDA, g.Torch,
				strconv.Itoa(g.ChunkSize), proto.EnvString(g.Env), string(c.QuotaKind), c.Target, t.Name, number(t.Value), t.Unit, number(t.Lo), number(t.Hi),
				number(c.ResidualMaxRel), strconv.Itoa(c.Domain.SeqLen[0]), strconv.Itoa(c.Domain.SeqLen[1]), strconv.Itoa(c.Domain.Batch[0]),
				strconv.Itoa(c.Domain.Batch[1]), strconv.Itoa(c.Points)})
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

func (a *app) importCommand() *cobra.Command {
	var labels importLabels
	c := &cobra.Command{Use: "import FILE|-", Short: "Import a table of runs, or coefficients of another fleet", Args: cobra.ExactArgs(1),
		Long: `Import fits a table of runs (CSV or JSON lines, as fit runs takes them) and commits
the coefficients to the registry, or commits a document of coefficients as
export and fit runs write it. Either way they are of origin "imported": they never
mix with what the fleet measured or simulated, and are asked for by that origin.
What does not fit in a table is said, and kept beside its coefficients.`,
		Example: "  fleetctl coefficients import my_runs.csv --gpu 'NVIDIA GeForce RTX 5090' --driver 575.57.08",
		RunE: func(cmd *cobra.Command, args []string) error {
			models, err := a.readImport(args[0], labels)
			if err != nil {
				return err
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			reply, err := untilLeader(cmd.Context(), func(ctx context.Context) (coordinator.ImportReply, error) { return client.Import(ctx, models) })
			if err != nil {
				return a.explain(err)
			}
			for _, note := range notesOf(models) {
				fmt.Fprintln(a.err, "note: "+note)
			}
			if a.json {
				return writeJSON(a.out, reply)
			}
			for _, g := range reply.Groups {
				word := "the same as before"
				if g.Changed {
					word = "imported"
				}
				fmt.Fprintf(a.out, "%s: %s, revision %d (%s)\n", groupLabel(g.Group), word, g.Revision, strings.Join(g.Targets, ", "))
			}
			return nil
		}}
	c.Flags().StringVar(&labels.workload, "workload", "", "workload of a table's runs (default esmfold for JSON lines, the file's name for CSV)")
	c.Flags().StringVar(&labels.gpu, "gpu", "", "GPU model of a table's runs")
	c.Flags().StringVar(&labels.driver, "driver", "", "driver of a table's runs")
	return c
}

// readImport reads either kind of file.
func (a *app) readImport(name string, labels importLabels) ([]proto.Coefficients, error) {
	text, err := a.readAll(name)
	if err != nil {
		return nil, err
	}
	var document struct {
		Coefficients []proto.Coefficients `json:"coefficients"`
	}
	if json.Unmarshal(text, &document) == nil && document.Coefficients != nil {
		origins := map[string]proto.Origin{}
		for i := range document.Coefficients {
			c := &document.Coefficients[i]
			key := fmt.Sprint(c.Group, c.QuotaKind, c.Target)
			if o, ok := origins[key]; ok && o != c.Origin {
				return nil, usagef("%s holds %s of two origins, %s and %s, and would import one over the other: export one, with coefficients export --origin ORIGIN",
					name, groupLabel(c.Group), o, c.Origin)
			}
			origins[key] = c.Origin
			if c.Origin != proto.OriginImported {
				c.Notes = append(slices.Clone(c.Notes), fmt.Sprintf("%s by another fleet, imported here", c.Origin))
				c.Origin = proto.OriginImported
			}
		}
		return document.Coefficients, nil
	}
	runs := *a
	runs.in = strings.NewReader(string(text))
	if labels.workload == "" && name != "-" && !strings.HasPrefix(strings.TrimSpace(string(text)), "{") {
		labels.workload = strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	}
	table, err := runs.readRuns("-", labels)
	if err != nil {
		return nil, err
	}
	return a.fitRuns(name, table)
}

// readAll reads a file or stdin, to the limit of files of runs.
func (a *app) readAll(name string) ([]byte, error) {
	in, _, err := a.input(name, "the file")
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxRunsFile+1))
	switch {
	case err != nil:
		return nil, wrongInput(fmt.Errorf("read %s: %w", name, err))
	case len(text) > maxRunsFile:
		return nil, usagef("%s has more than 64 MiB", name)
	}
	return text, nil
}

// notesOf are what models say of themselves, each once.
func notesOf(models []proto.Coefficients) []string {
	var out []string
	for _, m := range models {
		for _, note := range m.Notes {
			if !slices.Contains(out, note) {
				out = append(out, note)
			}
		}
	}
	return out
}

func (a *app) coefficientHistoryCommand() *cobra.Command {
	var read reading
	var revision int
	c := &cobra.Command{Use: "history", Short: "List the coefficients of each group by revision", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			query := read.query()
			if revision > 0 {
				query.Set("revision", strconv.Itoa(revision))
			}
			answer, err := client.CoefficientHistory(cmd.Context(), query)
			if err != nil {
				return a.explain(err)
			}
			if a.json {
				return writeJSON(a.out, answer)
			}
			return historyTable(a.out, answer.History)
		}}
	read.add(c)
	c.Flags().IntVar(&revision, "revision", 0, "only this revision of each group")
	return c
}

func historyTable(w io.Writer, all []api.CoefficientRevision) error {
	t := newTable(w, "GROUP", "ORIGIN", "REVISION", "INDEX", "FITTED", "EVIDENCE", "NEWEST")
	for _, r := range all {
		newest := ""
		if r.Newest {
			newest = "yes"
		}
		t.row(groupName(r.Group), string(r.Origin), strconv.Itoa(r.Revision), strconv.FormatUint(r.Index, 10),
			r.Fitted.Local().Format("2006-01-02 15:04:05"), counted(len(r.Evidence), "run"), newest)
	}
	return t.flush()
}
