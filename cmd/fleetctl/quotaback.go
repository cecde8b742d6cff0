package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// positive reads an amount that a flag gives; an empty one is 0.
func positive(flag, text string) (proto.Bytes, error) {
	if text == "" {
		return 0, nil
	}
	b, err := proto.ParseBytes(text)
	if err != nil {
		return 0, usagef("%s %w", flag, err)
	}
	switch {
	case b <= 0:
		return 0, usagef("%s is %d bytes, and must be more than 0", flag, int64(b))
	case b < proto.MiB:
		return 0, usagef("%s is %d bytes, less than any run takes: amounts are bytes, or a number with MiB or GiB", flag, int64(b))
	}
	return b, nil
}

// quotaMaxCommand is max-seq-len or max-batch.
func (a *app) quotaMaxCommand(axis string) *cobra.Command {
	var f quotaFlags
	var given string
	length := axis == "batch" // what is not looked for is given
	what := strings.ReplaceAll(axis, "seq-len", "length")
	c := &cobra.Command{Use: "max-" + axis, Short: "The largest " + what + " that fits a quota", Args: cobra.NoArgs,
		Long: `The largest ` + what + ` whose own recommendation, margin and risk included, is at most the
quota: its boundary lies at or below it, so no fail band is in the way. Only where
evidence is; where that ends before the quota does, the answer says so.`,
		Example: map[string]string{"seq-len": "  fleetctl quota max-seq-len --quota 24GiB --batch 1 --driver 580.159.04",
			"batch": "  fleetctl quota max-batch --quota 24GiB --seq-len 256 --driver 580.159.04"}[axis],
		RunE: func(cmd *cobra.Command, _ []string) error {
			if given == "" {
				return usagef("name the quota with --quota, like --quota 24GiB")
			}
			quota, err := positive("--quota", given)
			if err := errors.Join(err, f.check(length, !length)); err != nil {
				return err
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			q := f.values()
			q.Set("quota_bytes", fmt.Sprint(int64(quota)))
			ask := client.MaxSeqLen
			if axis == "batch" {
				ask = client.MaxBatch
			}
			r, err := ask(cmd.Context(), q)
			if err != nil {
				return a.explainQuota(err)
			}
			if a.json {
				return writeJSON(a.out, r)
			}
			return writeLargest(a.out, r)
		}}
	f.add(c, length, !length)
	c.Flags().StringVar(&given, "quota", "", "the quota, in bytes or with MiB or GiB (required)")
	return c
}

func writeLargest(w io.Writer, r api.Largest) error {
	name := strings.ReplaceAll(r.Axis, "seq_len", "length")
	largest := fmt.Sprint(r.Value)
	if r.Next == nil {
		largest += fmt.Sprintf(" of those that are known; %s of the quota are left", mib(r.Quota-r.At.Quota))
	}
	t := newTable(w, "largest "+name, largest)
	t.field("of", titleOf(r.At))
	t.row("needs", fmt.Sprintf("%s of %s", mib(r.At.Quota), mib(r.Quota)))
	t.row("evidence", basisText(r.At))
	if r.At.Risk != nil {
		t.row("risk", fmt.Sprintf("%g: the probability that one run needs more", *r.At.Risk))
	}
	switch {
	case r.Next != nil && r.Axis == "batch":
		t.row("next", fmt.Sprintf("batch %d needs %s", r.Next.Batch, mib(r.Next.Quota)))
	case r.Next != nil:
		t.row("next", fmt.Sprintf("length %d needs %s", r.Next.SeqLen, mib(r.Next.Quota)))
	default:
		t.row("next", "nothing is known of a larger one: add it to the matrix")
	}
	if r.At.QuotaKind == proto.QuotaAllocator {
		t.row("note", "PyTorch's memory alone; what a whole card of that size holds, --kind device says")
	}
	return t.flush()
}

func (a *app) quotaReplicasCommand() *cobra.Command {
	var f quotaFlags
	var given string
	c := &cobra.Command{Use: "replicas", Short: "How many runs one card holds at once", Args: cobra.NoArgs,
		Long: `How many runs of one kind a card holds at once. Each is a process of its own and
pays for its own CUDA context and modules, which an allocator quota does not count.`,
		Example: "  fleetctl quota replicas --card-memory 80GiB --seq-len 384 --batch 1 --kind process --driver 580.159.04",
		RunE: func(cmd *cobra.Command, _ []string) error {
			card, err := positive("--card-memory", given)
			if err := errors.Join(err, f.check(true, true)); err != nil {
				return err
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			q := f.values()
			q.Set("card_memory_bytes", fmt.Sprint(int64(card)))
			r, err := client.Replicas(cmd.Context(), q)
			if err != nil {
				return a.explainQuota(err)
			}
			if a.json {
				return writeJSON(a.out, r)
			}
			t := newTable(a.out, "replicas", fmt.Sprint(r.Replicas))
			t.field("of", titleOf(r.At))
			t.row("each takes", fmt.Sprintf("%s of the card", mib(r.Each)))
			t.row("quota of each", fmt.Sprintf("%s (%s)", mib(r.At.Quota), r.At.QuotaKind))
			t.row("card", mib(r.Card))
			if r.Taken > 0 {
				t.row("taken before", mib(r.Taken))
			}
			t.row("left", mib(r.Left))
			if r.WithoutContext > r.Replicas {
				t.row("note", fmt.Sprintf("counting the allocator's memory alone there would seem to be room for %d", r.WithoutContext))
			}
			t.row("evidence", basisText(r.At))
			return t.flush()
		}}
	f.add(c, true, true)
	c.Flags().StringVar(&given, "card-memory", "", "the card's memory, in bytes or with MiB or GiB (default: the card that the evidence is of)")
	c.Flags().BoolVar(&f.extrapolate, "extrapolate", false, "answer outside the fitted lengths and batches too, marked")
	return c
}

func (a *app) quotaCompareCommand() *cobra.Command {
	var f quotaFlags
	var with []string
	c := &cobra.Command{Use: "compare", Short: "Two quotas side by side", Args: cobra.NoArgs,
		Long: `Two recommendations side by side: the one that the flags ask for, and the same with
the fields changed that --with names: seq_len, batch, chunk_size, gpu, driver,
workload, param=KEY=VALUE, env=KEY=VALUE (env= for none). Numbers of two origins
are never subtracted. It judges nothing: whether a difference is more than noise,
matrix diff says.`,
		Example: "  fleetctl quota compare --seq-len 384 --driver 580.159.04 --with driver=590.48.01",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(with) == 0 {
				return usagef("say with --with FIELD=VALUE in what the second differs")
			}
			if err := f.check(true, true); err != nil {
				return err
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			q := f.values()
			q["with"] = with
			r, err := client.CompareQuotas(cmd.Context(), q)
			if err != nil {
				return a.explainQuota(err)
			}
			if a.json {
				return writeJSON(a.out, r)
			}
			return writeComparison(a.out, r)
		}}
	f.add(c, true, true)
	c.Flags().StringArrayVar(&with, "with", nil, "FIELD=VALUE in which the second question differs, may be repeated (required)")
	c.Flags().BoolVar(&f.extrapolate, "extrapolate", false, "answer outside the fitted lengths and batches too, marked")
	return c
}

func writeComparison(w io.Writer, r api.QuotaComparison) error {
	sides := newTable(w)
	sides.field("A", titleOf(r.A))
	sides.field("B", titleOf(r.B))
	if err := sides.flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t := newTable(w, " ", "A", "B", "B - A")
	t.row("ask for", mib(r.A.Quota), mib(r.B.Quota), moved(r.Difference))
	t.row("survive", mib(r.A.Survive), mib(r.B.Survive), moved(r.Survive))
	if r.A.Outside > 0 && r.B.Outside > 0 {
		t.row("outside the allocator", mib(r.A.Outside), mib(r.B.Outside), moved(r.Outside))
	}
	t.row("evidence", string(r.A.Basis), string(r.B.Basis), " ")
	for _, term := range r.Terms {
		if term.A == 0 && term.B == 0 {
			continue
		}
		note := moved(term.B - term.A)
		if term.Apart {
			note += " (intervals apart)"
		}
		t.row(term.Target+" "+term.Name, mib(term.A), mib(term.B), note)
	}
	return t.flush()
}

// moved is a difference with its sign.
func moved(b proto.Bytes) string {
	switch {
	case b == 0:
		return "0"
	case b < 0:
		return "-" + mib(-b)
	}
	return "+" + mib(b)
}
