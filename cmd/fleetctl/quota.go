package main

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// quotaFlags are what every question for a quota has.
type quotaFlags struct {
	seqLen, batch, chunk int
	gpu, driver          string
	workload             string
	kind, origin         string
	env, params          []string
	risk                 float64
	extrapolate          bool
}

func (a *app) quotaCommand() *cobra.Command {
	c := &cobra.Command{Use: "quota", Short: "Quotas for jobs, forwards and backwards"}
	a.serverFlag(c)
	c.AddCommand(a.quotaRecommendCommand(), a.quotaMaxCommand("seq-len"), a.quotaMaxCommand("batch"), a.quotaReplicasCommand(), a.quotaCompareCommand())
	return c
}

// add adds the flags of the subject, and of length and batch where they are asked.
func (f *quotaFlags) add(c *cobra.Command, length, batch bool) {
	fl := c.Flags()
	if length {
		fl.IntVar(&f.seqLen, "seq-len", 0, "sequence length in residues (required)")
		c.MarkFlagRequired("seq-len")
	}
	if batch {
		fl.IntVar(&f.batch, "batch", 1, "sequences at once")
	}
	fl.IntVar(&f.chunk, "chunk-size", 0, "trunk chunk size, 0 for none")
	fl.StringVar(&f.gpu, "gpu", "", "GPU model (needed when several are known)")
	fl.StringVar(&f.driver, "driver", "", "driver version (needed when several are known)")
	fl.StringVar(&f.workload, "workload", "esmfold", "workload")
	fl.StringArrayVar(&f.params, "param", nil, "KEY=VALUE of the workload, like stem=bfloat16, may be repeated")
	fl.StringVar(&f.kind, "kind", "", "kind of quota: allocator, process or device (default allocator)")
	fl.StringVar(&f.kind, "quota-kind", "", "")
	fl.MarkHidden("quota-kind")
	fl.StringVar(&f.origin, "origin", "measured", "measured, simulated or imported")
	fl.StringArrayVar(&f.env, "env", nil, "KEY=VALUE of the job's environment, may be repeated")
	fl.Float64Var(&f.risk, "risk", 0.01, "how probable an out-of-memory may be, where the answer is a fit's bound")
}

// check refuses what is wrong in itself, before anybody is asked.
func (f *quotaFlags) check(length, batch bool) error {
	switch {
	case length && f.seqLen < 1:
		return usagef("--seq-len is %d, and must be at least 1", f.seqLen)
	case batch && f.batch < 1:
		return usagef("--batch is %d, and must be at least 1", f.batch)
	case f.chunk < 0:
		return usagef("--chunk-size is %d, and must be at least 0", f.chunk)
	case !(f.risk >= 0.0001 && f.risk <= 0.5):
		return usagef("--risk is %g, and must be a probability between 0.0001 and 0.5", f.risk)
	}
	if f.kind != "" {
		if _, err := proto.ParseQuotaKind(f.kind); err != nil {
			return usagef("--kind: %w", err)
		}
	}
	if _, err := proto.ParseOrigin(f.origin); err != nil {
		return usagef("--origin: %w", err)
	}
	return errors.Join(wrongInput(pairs("--env", f.env, map[string]string{})), wrongInput(pairs("--param", f.params, map[string]string{})))
}

// values is the question as the API takes it.
func (f *quotaFlags) values() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"gpu": f.gpu, "driver": f.driver, "workload": f.workload, "origin": f.origin,
		"quota_kind": cmp.Or(f.kind, string(proto.QuotaAllocator)), "risk": strconv.FormatFloat(f.risk, 'g', -1, 64)} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, n := range map[string]int{"seq_len": f.seqLen, "batch": f.batch, "chunk_size": f.chunk} {
		if n != 0 {
			q.Set(name, strconv.Itoa(n))
		}
	}
	if f.extrapolate {
		q.Set("extrapolate", "true")
	}
	q["env"], q["param"] = slices.Clone(f.env), slices.Clone(f.params)
	return q
}

// explainQuota turns a refused question into the command's error: wrong
// questions and those that nothing answers exit with 2.
func (a *app) explainQuota(err error) error {
	var p *api.Problem
	if !errors.As(err, &p) {
		return a.explain(err)
	}
	switch p.GetStatus() {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity:
		// The API speaks of parameters; here they are flags.
		return usagef("%s", strings.NewReplacer(": ask with origin ", ": --origin ", "or ask to extrapolate", "or --extrapolate",
			"name one with gpu and driver", "name one with --gpu and --driver", "name one with param", "name one with --param",
			"give card_memory_bytes", "give --card-memory", "with takes FIELD=VALUE", "--with takes FIELD=VALUE").Replace(p.Message))
	}
	return a.explain(err)
}

func (a *app) quotaRecommendCommand() *cobra.Command {
	var f quotaFlags
	var form formFlags
	c := &cobra.Command{Use: "recommend", Short: "Say which quota a job needs, and on what evidence", Args: cobra.NoArgs,
		Long: `Recommend answers with the best evidence there is and says which: a boundary that
real probes hold, a replay of recordings or programs, or the upper bound of the
fitted coefficients at the risk. Beside it stands what rules of thumb would have
asked for. It refuses to extrapolate unless told to --extrapolate, and marks that.

--format prints the answer in the form that a scheduler takes.`,
		Example: "  fleetctl quota recommend --seq-len 384 --batch 1 --driver 580.159.04\n  fleetctl quota recommend --seq-len 384 --driver 580.159.04 --format slurm",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(f.check(true, true), form.check(&f, a.json)); err != nil {
				return err
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			r, err := client.Quota(cmd.Context(), f.values())
			if err != nil {
				return a.explainQuota(err)
			}
			if form.format == formatJSON {
				return writeJSON(a.out, r)
			}
			if form.format == formatTable {
				return writeRecommendation(a.out, r)
			}
			return wrongInput(form.write(a.out, r))
		}}
	f.add(c, true, true)
	c.Flags().Lookup("kind").Usage = "kind of quota: allocator, process or device (default allocator; process for --format hami and mps)"
	c.Flags().BoolVar(&f.extrapolate, "extrapolate", false, "answer outside the fitted lengths and batches too, marked")
	form.add(c)
	return c
}
