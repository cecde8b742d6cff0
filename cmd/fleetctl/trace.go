package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

func (a *app) traceCommand() *cobra.Command {
	c := &cobra.Command{Use: "trace", Short: "Recorded allocator traces: list, fetch, replay"}
	a.serverFlag(c)
	c.AddCommand(a.traceListCommand(), a.traceGetCommand(), a.traceReplayCommand(), a.traceBoundaryCommand(), a.traceWhatIfCommand(), a.traceGCCommand())
	return c
}

func (a *app) traceListCommand() *cobra.Command {
	var sweep string
	c := &cobra.Command{Use: "list", Short: "List the recorded traces", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			id := proto.MatrixID(sweep)
			if sweep != "" {
				report, err := a.sweepNamed(cmd.Context(), client, sweep)
				if err != nil {
					return err
				}
				id = report.Matrix.ID
			}
			answer, err := client.Traces(cmd.Context(), id)
			if err != nil {
				return a.explain(err)
			}
			if a.json {
				return writeJSON(a.out, answer)
			}
			t := newTable(a.out, "TRACE", "CELL", "ORIGIN", "QUOTA", "OUTCOME", "EVENTS", "SIZE", "AGENT")
			for _, e := range answer.Traces {
				t.row(string(e.Ref.Digest), e.Cell.String(), string(e.Origin), tracedQuota(e), string(e.Outcome), fmt.Sprint(e.Ref.Events), e.Ref.Size.String(), string(e.Agent))
			}
			return t.flush()
		}}
	c.Flags().StringVar(&sweep, "sweep", "", "only traces of this sweep's cells; its id, or the name of its matrix")
	return c
}

// tracedQuota is the quota that a trace's run was given, with its kind.
func tracedQuota(e api.TraceEntry) string {
	if e.Quota == 0 {
		return "none"
	}
	return fmt.Sprintf("%s %s", e.QuotaKind, mib(e.Quota))
}

func (a *app) traceGetCommand() *cobra.Command {
	var out string
	var link bool
	c := &cobra.Command{Use: "get DIGEST", Short: "Fetch a trace file and check it against its digest", Args: cobra.ExactArgs(1),
		Long: `Get fetches a trace through a coordinator. With --url it prints an address of
the trace store instead, from which whoever has it can fetch this one file for
15 minutes, without a token: keep it out of logs and tickets, and compare what
comes (sha256sum) with DIGEST. That needs a store that clients can reach:
traces.public_url in the coordinators' configuration, or an S3 service that is
not on their own machine.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case link && out != "":
				return usagef("--url prints an address and --output writes a file: give one of them")
			case link:
				return a.traceURL(cmd.Context(), proto.Digest(args[0]))
			}
			if out == "" {
				out = args[0] + ".parquet"
			}
			size, err := a.fetchTrace(cmd.Context(), proto.Digest(args[0]), out)
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(a.out, map[string]any{"digest": args[0], "size_bytes": size, "file": out})
			}
			fmt.Fprintf(a.out, "%s: %s, content matches its digest\n", out, proto.Bytes(size))
			return nil
		}}
	c.Flags().StringVarP(&out, "output", "o", "", "file to write (default DIGEST.parquet)")
	c.Flags().BoolVar(&link, "url", false, "print an address of the store to fetch the file from, good for 15 minutes")
	return c
}

// traceURL prints an address that a trace can be fetched from.
func (a *app) traceURL(ctx context.Context, digest proto.Digest) error {
	if !trace.ValidDigest(digest) {
		return notADigest(digest)
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	link, err := client.TraceURL(ctx, digest)
	if err != nil {
		return a.explain(err)
	}
	if a.json {
		return writeJSON(a.out, link)
	}
	fmt.Fprintf(a.err, "good until %s, for everybody who has it\n", link.Expires.Local().Format("2006-01-02 15:04:05"))
	fmt.Fprintln(a.out, link.URL)
	return nil
}

func notADigest(digest proto.Digest) error {
	return usagef("%q is not a trace: it is named by 64 lower-case hexadecimal digits; trace list shows them", digest)
}

// replayFlags are what all commands that replay a trace file take.
type replayFlags struct {
	cap     string
	capKind string
	env     []string
}

func (f *replayFlags) add(c *cobra.Command, withCap bool) {
	if withCap {
		c.Flags().StringVar(&f.cap, "cap", "", "quota in bytes, or with MiB or GiB (default none)")
	}
	c.Flags().StringVar(&f.capKind, "cap-kind", "allocator", "what the quota limits: allocator, device or process")
	c.Flags().StringArrayVar(&f.env, "env", nil, "KEY=VALUE, an allocator variable to replay under; may be repeated")
}

// replayDocument is the document of trace replay.
type replayDocument struct {
	Outcome     string `json:"outcome"`
	PeakRes     int64  `json:"peak_reserved_bytes"`
	PeakAlloc   int64  `json:"peak_allocated_bytes"`
	Retries     int    `json:"num_alloc_retries"`
	OOMs        int    `json:"num_ooms"`
	SelfCheck   int    `json:"selfcheck_mismatches"`
	TriedBytes  int64  `json:"tried_bytes,omitempty"`
	MarginBytes int64  `json:"margin_bytes,omitempty"`
}

func (a *app) traceReplayCommand() *cobra.Command {
	var f replayFlags
	c := &cobra.Command{Use: "replay TRACE", Short: "Say what a recorded run does under another quota or setting", Args: cobra.ExactArgs(1),
		Long: `Replay runs a recorded trace through the model of PyTorch's caching allocator.

Only the allocator's own variables can be replayed; any other may change the
program and is refused. Under a device or process quota the bytes outside the
allocator are taken from the recording, and within 16 MiB of the edge the
outcome is "undetermined".`,
		Example: "  fleetctl trace replay L384_B1.parquet --cap 11014MiB --env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := openReplay(args[0], f)
			if err != nil {
				return err
			}
			r.stop = endsWith(cmd.Context())
			d, err := r.document()
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(a.out, d)
			}
			t := newTable(a.out, "outcome", d.Outcome)
			t.row("under", r.question(r.underText(), f.env))
			t.row("peak reserved", mib(proto.Bytes(d.PeakRes)))
			t.row("peak allocated", mib(proto.Bytes(d.PeakAlloc)))
			t.row("allocator retries", fmt.Sprint(d.Retries))
			t.row("refused request", mib(proto.Bytes(d.TriedBytes)))
			return t.flush()
		}}
	f.add(c, true)
	return c
}

// boundaryDocument is the document of trace boundary.
type boundaryDocument struct {
	proto.Boundary
	Replays   int  `json:"replays"`
	Layout    bool `json:"layout_sensitive"`
	SelfCheck int  `json:"selfcheck_mismatches"`
}

func (a *app) traceBoundaryCommand() *cobra.Command {
	var f replayFlags
	c := &cobra.Command{Use: "boundary TRACE", Short: "Map a recorded run's outcome over all quotas", Args: cobra.ExactArgs(1),
		Example: "  fleetctl trace boundary L512_B1_c64.parquet",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := openReplay(args[0], f)
			if err != nil {
				return err
			}
			r.stop = endsWith(cmd.Context())
			if _, err := r.checked(); err != nil {
				return err
			}
			d, _, err := r.boundary(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(a.out, d)
			}
			t := boundaryTable(a.out, d.Boundary)
			t.row("of", r.question(string(r.kind)+" quotas", f.env))
			t.row("replays", fmt.Sprint(d.Replays))
			if d.Layout {
				t.row("note", "depends on the addresses that the driver hands out")
			}
			return t.flush()
		}}
	f.add(c, false)
	return c
}
