package main

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/proto"
)

func (a *app) quotaCommand() *cobra.Command {
	c := &cobra.Command{Use: "quota", Short: "Quotas for jobs"}
	a.serverFlag(c)
	var seqLen, batch, chunk int
	var gpu, driver, workload, kind, origin string
	var env []string
	recommend := &cobra.Command{Use: "recommend", Short: "Say which quota a job needs, and on what evidence", Args: cobra.NoArgs,
		Example: "  fleetctl quota recommend --seq-len 384 --batch 1 --driver 580.159.04",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if seqLen < 1 || batch < 1 || chunk < 0 {
				return usagef("--seq-len and --batch are at least 1, --chunk-size at least 0")
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			q := url.Values{"seq_len": {strconv.Itoa(seqLen)}, "batch": {strconv.Itoa(batch)}, "chunk_size": {strconv.Itoa(chunk)},
				"gpu": {gpu}, "driver": {driver}, "workload": {workload}, "quota_kind": {kind}, "origin": {origin}, "env": env}
			r, err := client.Quota(cmd.Context(), q)
			if err != nil {
				return a.explain(err)
			}
			if a.json {
				return writeJSON(a.out, r)
			}
			fmt.Fprintf(a.out, "%s quota for length %d, batch %d on %s, driver %s (%s):\n", r.QuotaKind, seqLen, batch, r.GPU, r.Driver, r.Origin)
			t := newTable(a.out, "survive", mib(r.Survive))
			if r.NoRetry > 0 {
				t.row("no-retry", mib(r.NoRetry)+" (from here on the allocator never flushes and tries again)")
			}
			t.row("evidence", evidence(r.Basis, r.CellState, r.Predicted))
			return t.flush()
		}}
	f := recommend.Flags()
	f.IntVar(&seqLen, "seq-len", 0, "sequence length in residues (required)")
	f.IntVar(&batch, "batch", 1, "sequences at once")
	f.IntVar(&chunk, "chunk-size", 0, "trunk chunk size, 0 for none")
	f.StringVar(&gpu, "gpu", "", "GPU model (needed when several are known)")
	f.StringVar(&driver, "driver", "", "driver version (needed when several are known)")
	f.StringVar(&workload, "workload", "esmfold", "workload")
	f.StringVar(&kind, "quota-kind", "allocator", "allocator, process or device")
	f.StringVar(&origin, "origin", "measured", "measured, simulated or imported")
	f.StringArrayVar(&env, "env", nil, "KEY=VALUE of the job's environment, may be repeated")
	recommend.MarkFlagRequired("seq-len")
	c.AddCommand(recommend)
	return c
}

func evidence(basis string, state proto.CellState, predicted proto.Bytes) string {
	if basis == "boundary" {
		return "this very cell is " + string(state)
	}
	return "fitted coefficients: " + mib(predicted) + " expected, the upper end of the interval recommended"
}
