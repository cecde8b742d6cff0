package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// programFile is what `program build` writes: a workload's allocation programs
// and what of its runs they came from.
type programFile struct {
	Version  int            `json:"version"`
	Workload proto.Workload `json:"workload"`
	Stack    proto.Stack    `json:"stack"`
	Origin   proto.Origin   `json:"origin,omitempty"`
	// Outside is what the process held beside the allocator, the most of any
	// recording; 0 when no recording says. Total is the card's.
	Outside proto.Bytes       `json:"outside_allocator_bytes,omitempty"`
	Total   proto.Bytes       `json:"device_total_bytes,omitempty"`
	Family  *allocator.Family `json:"programs"`
}

const programVersion = 1

// maxProgramFile is how long a program file may be; that of three ESMFold
// recordings takes 9 kB.
const maxProgramFile = 16 << 20

func (a *app) programCommand() *cobra.Command {
	c := &cobra.Command{Use: "program", Short: "Allocation programs: a few recordings say what every longer run allocates"}
	c.AddCommand(a.programBuildCommand(), a.programPredictCommand())
	return c
}

func (a *app) programBuildCommand() *cobra.Command {
	var out string
	c := &cobra.Command{Use: "build TRACE...", Short: "Build a workload's programs from its recordings", Args: cobra.MinimumNArgs(1),
		Long: `Build finds, for one workload, the sequence of allocations with each size as an
exact polynomial in the sequence length, affine in the batch. Recordings that do
different things, or too few of them, are refused with what is missing.`,
		Example: "  fleetctl program build L128_B1.parquet L192_B1.parquet L256_B1.parquet L320_B1.parquet -o esmfold.program",
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" {
				return usagef("name the file to write with -o")
			}
			p, err := buildProgram(args)
			if err != nil {
				return wrongInput(err)
			}
			text, err := json.Marshal(p)
			if err != nil {
				return fmt.Errorf("encode the program: %w", err)
			}
			if err := os.WriteFile(out, append(text, '\n'), 0o644); err != nil {
				return fmt.Errorf("write %s: %w", out, err)
			}
			if a.json {
				return writeJSON(a.out, map[string]any{"file": out, "domains": domainsOf(p.Family), "recordings": len(args)})
			}
			fmt.Fprintf(a.out, "%s: %d recordings of %s\n", out, len(args), p.Workload)
			for _, d := range domainsOf(p.Family) {
				fmt.Fprintln(a.out, "  "+d)
			}
			return nil
		}}
	c.Flags().StringVarP(&out, "output", "o", "", "file to write (required)")
	return c
}

func domainsOf(f *allocator.Family) []string {
	out := []string{}
	for _, d := range f.Domains() {
		out = append(out, d.String())
	}
	return out
}

// buildProgram reads and checks recordings of one workload and builds from them.
func buildProgram(paths []string) (*programFile, error) {
	p := &programFile{Version: programVersion}
	var recordings []allocator.Recording
	var kinds mixture
	for i, path := range paths {
		events, meta, err := trace.ReadFile(path)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(path)
		if meta.Cell.SeqLen == 0 || meta.Cell.Batch == 0 {
			return nil, fmt.Errorf("%s does not say its sequence length and batch", name)
		}
		settings, err := allocator.ParseSettings(meta.Settings[allocator.EnvConf])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		check, err := allocator.SelfCheck(events, settings)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if check.Mismatches > 0 {
			return nil, fmt.Errorf("%s fails its self-check (%s): nothing is built from it", name, check.First)
		}
		kinds.add(name, meta)
		if i == 0 {
			p.Workload, p.Stack, p.Origin, p.Total = meta.Cell.Workload, meta.Stack, meta.Origin, meta.DeviceTotal
		}
		if outside, known := meta.OutsideAllocator(); known {
			p.Outside = max(p.Outside, outside)
		}
		recordings = append(recordings, allocator.Recording{SeqLen: meta.Cell.SeqLen, Batch: meta.Cell.Batch, Chunk: meta.Cell.ChunkSize, Events: events})
	}
	if err := kinds.check(); err != nil {
		return nil, err
	}
	var err error
	if p.Family, err = allocator.BuildFamily(recordings); err != nil {
		return nil, fmt.Errorf("no program: %w%s", err, parts(paths, recordings))
	}
	return p, nil
}

// readProgram reads a file of `program build`, or stdin for "-".
func (a *app) readProgram(path string) (*programFile, error) {
	in, name, err := a.input(path, "the program")
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxProgramFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	if len(text) > maxProgramFile {
		return nil, fmt.Errorf("%s is not a program file: it is larger than %s, which no program is", name, proto.Bytes(maxProgramFile))
	}
	p := &programFile{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("%s is not a program file: %w", name, err)
	}
	switch {
	case p.Version == 0:
		return nil, fmt.Errorf("%s is not a program file: it names no program version; `fleetctl program build` writes one", name)
	case p.Version != programVersion:
		return nil, fmt.Errorf("%s is of program version %d, and this build reads version %d: build it again from the recordings with this build", name, p.Version, programVersion)
	case p.Family == nil:
		return nil, fmt.Errorf("%s is not a whole program file: it holds no programs; build it again from the recordings", name)
	}
	return p, nil
}

// predictionDocument is the document of program predict.
type predictionDocument struct {
	boundaryDocument
	PeakReserved  int64  `json:"peak_reserved_bytes"`
	PeakAllocated int64  `json:"peak_allocated_bytes"`
	InDomain      bool   `json:"in_domain"`
	Tested        string `json:"tested"`
}

func (a *app) programPredictCommand() *cobra.Command {
	var f replayFlags
	var seqLen, batch, chunk int
	c := &cobra.Command{Use: "predict FILE|-", Short: "Say which quotas a run that was never made needs", Args: cobra.ExactArgs(1),
		Example: "  fleetctl program predict esmfold.program --seq-len 640 --batch 1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if seqLen < 1 || batch < 1 || chunk < 0 {
				return usagef("--seq-len and --batch are at least 1, --chunk-size at least 0")
			}
			p, err := a.readProgram(args[0])
			if err != nil {
				return wrongInput(err)
			}
			d, err := p.predict(cmd.Context(), f, seqLen, batch, chunk)
			if err != nil {
				return wrongInput(err)
			}
			if a.json {
				return writeJSON(a.out, d)
			}
			t := boundaryTable(a.out, d.Boundary)
			t.row("peak reserved", mib(proto.Bytes(d.PeakReserved)))
			t.row("peak allocated", mib(proto.Bytes(d.PeakAllocated)))
			t.row("of", p.question(f, seqLen, batch, chunk))
			t.row("program", testedText(d.Tested))
			if d.Layout {
				t.row("note", "depends on the addresses that the driver hands out: some MiB either way")
			}
			return t.flush()
		}}
	fl := c.Flags()
	fl.IntVar(&seqLen, "seq-len", 0, "sequence length in residues (required)")
	fl.IntVar(&batch, "batch", 1, "sequences at once")
	fl.IntVar(&chunk, "chunk-size", 0, "trunk chunk size, 0 for none")
	f.add(c, false)
	c.MarkFlagRequired("seq-len")
	return c
}

// question is what a prediction is for.
func (p *programFile) question(f replayFlags, seqLen, batch, chunk int) string {
	r := recorded{run: runText(trace.Meta{Stack: p.Stack, Cell: proto.Cell{Workload: p.Workload, SeqLen: seqLen, Batch: batch, ChunkSize: chunk}})}
	return r.question(f.capKind+" quotas", f.env)
}

// testedText says what stands behind a program.
func testedText(tested string) string {
	if tested == string(allocator.LeftOneOut) {
		return tested + ": each of its recordings was predicted from the others"
	}
	return tested + ": it has no more recordings than it needs"
}

func (p *programFile) predict(ctx context.Context, f replayFlags, seqLen, batch, chunk int) (predictionDocument, error) {
	r := &recorded{total: int64(p.Total), overhead: int64(p.Outside)}
	var err error
	if r.kind, err = proto.ParseQuotaKind(f.capKind); err != nil {
		return predictionDocument{}, err
	}
	if r.kind != proto.QuotaAllocator && p.Outside == 0 {
		return predictionDocument{}, errors.New("no recording of this program says what the process held outside the allocator: only --cap-kind allocator can be predicted")
	}
	if r.wanted, err = settingsOf(f.env, allocator.Settings{}); err != nil {
		return predictionDocument{}, err
	}
	domain, err := p.Family.Domain(seqLen, batch, chunk)
	if err != nil {
		return predictionDocument{}, fmt.Errorf("%w; this program holds for %s", err, strings.Join(domainsOf(p.Family), "; "))
	}
	if r.program, err = p.Family.At(seqLen, batch, chunk); err != nil {
		return predictionDocument{}, err
	}
	b, uncapped, err := r.boundary(ctx)
	if err != nil {
		return predictionDocument{}, err
	}
	return predictionDocument{boundaryDocument: b, PeakReserved: uncapped.PeakReserved, PeakAllocated: uncapped.PeakAllocated,
		InDomain: true, Tested: string(domain.Tested)}, nil
}
