package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/coordinator/quota"
	"github.com/oomfleet/oomfleet/proto"
)

// forecastDocument is the document of fit predict; a target without
// coefficients is null.
type forecastDocument struct {
	Allocated *forecast `json:"allocated"`
	Reserved  *forecast `json:"reserved"`
	Process   *forecast `json:"process"`
	InDomain  bool      `json:"in_domain"`
}

// forecast is a peak in bytes and the interval in which a new run lies.
type forecast struct {
	Value int64 `json:"value"`
	Lo    int64 `json:"lo"`
	Hi    int64 `json:"hi"`
}

// predictFlags are the question and the choice of a group.
type predictFlags struct {
	seqLen, batch int
	extrapolate   bool
	choice        groupChoice
}

func (a *app) fitPredictCommand() *cobra.Command {
	var f predictFlags
	c := &cobra.Command{Use: "predict COEFFICIENTS|-", Short: "Predict peaks from fitted coefficients", Args: cobra.ExactArgs(1),
		Long: `Predict adds up fitted terms for a length and batch, with the interval in which a
new run's peak lies. COEFFICIENTS is a document with a list "coefficients": what
fit runs, coefficients get and matrix status print with --json.

Where the document holds several groups, flags choose one. Outside the lengths
and batches that were fitted it refuses unless told to --extrapolate.`,
		Example: "  fleetctl fit predict coefficients.json --seq-len 500 --batch 1 --chunk-size 64",
		RunE: func(cmd *cobra.Command, args []string) error {
			f.choice.chunkGiven = cmd.Flags().Changed("chunk-size")
			if f.seqLen < 1 || f.batch < 1 || f.choice.chunk < 0 {
				return usagef("--seq-len and --batch are at least 1, --chunk-size at least 0")
			}
			all, err := a.readCoefficients(args[0])
			if err != nil {
				return err
			}
			group, err := f.choice.pick(all)
			if err != nil {
				return wrongInput(err)
			}
			d, err := predict(group, f)
			if err != nil {
				return wrongInput(err)
			}
			if !d.InDomain {
				fmt.Fprintf(a.err, "extrapolated: %s\n", outside(group, f))
			}
			if a.json {
				return writeJSON(a.out, d)
			}
			return d.write(a.out)
		}}
	c.Flags().IntVar(&f.seqLen, "seq-len", 0, "sequence length in residues (required)")
	c.Flags().IntVar(&f.batch, "batch", 1, "sequences at once")
	c.Flags().BoolVar(&f.extrapolate, "extrapolate", false, "answer outside the fitted lengths and batches too")
	f.choice.add(c)
	c.MarkFlagRequired("seq-len")
	return c
}

// maxCoefficients is more than any document of coefficients has.
const maxCoefficients = 256 << 20

// readCoefficients reads the list of any document that has one.
func (a *app) readCoefficients(path string) ([]proto.Coefficients, error) {
	in, name, err := a.input(path, "the coefficients")
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxCoefficients))
	if err != nil {
		return nil, wrongInput(fmt.Errorf("read the coefficients: %w", err))
	}
	var d coefficientsDocument
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, usagef("%s is no document with coefficients: give what fit runs, coefficients get or matrix status print with --json", name)
	}
	if len(d.Coefficients) == 0 {
		return nil, usagef("%s holds no coefficients: give what fit runs, coefficients get or matrix status print with --json", name)
	}
	return d.Coefficients, nil
}

// predict answers from the coefficients of one group.
func predict(group []proto.Coefficients, f predictFlags) (forecastDocument, error) {
	d := forecastDocument{InDomain: true}
	for _, c := range group {
		m, err := quota.ModelOf(c)
		if err != nil {
			return d, fmt.Errorf("the %s coefficients %w", c.Target, err)
		}
		at := map[string]**forecast{"allocated": &d.Allocated, "reserved": &d.Reserved, "process": &d.Process}[c.Target]
		if at == nil {
			return d, fmt.Errorf("target %q is not one of allocated, reserved, process", c.Target)
		}
		if *at != nil {
			return d, fmt.Errorf("the document has two sets of %s coefficients for one group", c.Target)
		}
		p := m.Predict(f.seqLen, f.batch)
		*at = &forecast{p.Value, p.Lo, p.Hi}
		d.InDomain = d.InDomain && p.InDomain
	}
	if !d.InDomain && !f.extrapolate {
		return d, fmt.Errorf("%s; --extrapolate answers all the same", outside(group, f))
	}
	return d, nil
}

// outside names the domain that a question leaves: the smallest of the targets'.
func outside(group []proto.Coefficients, f predictFlags) string {
	d := group[0].Domain
	for _, c := range group[1:] {
		d.SeqLen = proto.Range{max(d.SeqLen[0], c.Domain.SeqLen[0]), min(d.SeqLen[1], c.Domain.SeqLen[1])}
		d.Batch = proto.Range{max(d.Batch[0], c.Domain.Batch[0]), min(d.Batch[1], c.Domain.Batch[1])}
	}
	return fmt.Sprintf("length %d at batch %d is outside what was fitted (lengths %d to %d, batches %d to %d)",
		f.seqLen, f.batch, d.SeqLen[0], d.SeqLen[1], d.Batch[0], d.Batch[1])
}

func (d forecastDocument) write(w io.Writer) error {
	t := newTable(w, "PEAK", "EXPECTED", "INTERVAL")
	for _, row := range []struct {
		name string
		f    *forecast
	}{{"allocated", d.Allocated}, {"reserved", d.Reserved}, {"process", d.Process}} {
		if row.f != nil {
			t.row(row.name, wholeMiB(row.f.Value), wholeMiB(row.f.Lo)+" .. "+wholeMiB(row.f.Hi))
		}
	}
	return t.flush()
}

// wholeMiB is an amount to the MiB: a prediction has no decimals to show.
func wholeMiB(b int64) string { return fmt.Sprintf("%d MiB", (b+int64(proto.MiB)/2)/int64(proto.MiB)) }
