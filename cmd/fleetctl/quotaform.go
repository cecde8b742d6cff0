package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// The forms of an answer.
const (
	formatTable      = "table"
	formatJSON       = "json"
	formatSlurm      = "slurm"
	formatKubernetes = "kubernetes"
	formatHAMi       = "hami"
	formatMPS        = "mps"
	formatEnv        = "env"
)

func formats() []string {
	return []string{formatTable, formatJSON, formatSlurm, formatKubernetes, formatHAMi, formatMPS, formatEnv}
}

// maxShards is more than any card is divided into.
const maxShards = 1024

// formFlags say in which form an answer is wanted, and what a scheduler's form
// needs to know beside it.
type formFlags struct {
	format string
	card   string
	shards int
	total  proto.Bytes
}

func (f *formFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.format, "format", formatTable, strings.Join(formats(), ", "))
	fl.StringVar(&f.card, "card-memory", "", "total memory of the card that the job will run on, as torch reports it (default: the card that the evidence is of)")
	fl.IntVar(&f.shards, "shards-per-gpu", 0, "with --format slurm: ask for shards, of which gres.conf gives a GPU so many")
}

// check settles the format and the kind that it implies.
func (f *formFlags) check(q *quotaFlags, asJSON bool) error {
	if asJSON {
		if f.format != formatTable && f.format != formatJSON {
			return usagef("--json and --format %s exclude each other", f.format)
		}
		f.format = formatJSON
	}
	if !slices.Contains(formats(), f.format) {
		return usagef("--format is %q, and must be one of %s", f.format, strings.Join(formats(), ", "))
	}
	if f.shards < 0 || f.shards > maxShards {
		return usagef("--shards-per-gpu is %d, and must be between 1 and %d (0 for none)", f.shards, maxShards)
	}
	if f.format == formatHAMi || f.format == formatMPS {
		q.kind = cmp.Or(q.kind, string(proto.QuotaProcess))
	}
	var err error
	f.total, err = positive("--card-memory", f.card)
	return err
}

// write prints the answer in a scheduler's form. The error says which kind of
// quota the form can carry.
func (f *formFlags) write(w io.Writer, r api.Recommendation) error {
	if r.Quota <= 0 {
		return fmt.Errorf("the answer is a quota of %d bytes, which is none", int64(r.Quota))
	}
	f.total = cmp.Or(f.total, r.CardTotal)
	if f.total > 0 && r.Quota > f.total {
		return fmt.Errorf("the run needs %s, and the card has %s: it does not fit", r.Quota, f.total)
	}
	forms := map[string]func(api.Recommendation) (string, error){formatSlurm: f.slurm, formatKubernetes: f.kubernetes, formatHAMi: f.hami, formatMPS: f.mps, formatEnv: f.env}
	text, err := forms[f.format](r)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// summary is the answer in a line, for a comment.
func summary(r api.Recommendation) string {
	text := fmt.Sprintf("%s quota %s for %s (%s, %s, index %d)", r.QuotaKind, mib(r.Quota), runOf(r), r.Basis, r.Origin, r.AppliedIndex)
	if r.Extrapolated {
		text += " EXTRAPOLATED"
	}
	return oneLine(text)
}

// oneLine shows what cannot be printed as an escape: a comment ends with its line,
// and what follows would be run.
func oneLine(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// fraction is the share of the card whose bytes, cut off as torch does, are at
// least the quota: the smallest such double, in digits that read back to it.
func (f *formFlags) fraction(quota proto.Bytes) (string, error) {
	if f.total == 0 {
		return "", errors.New("the card's total is not known from any run, and a fraction is of it: give --card-memory")
	}
	x := float64(quota) / float64(f.total)
	for proto.Bytes(x*float64(f.total)) < quota {
		x = math.Nextafter(x, 2)
	}
	if x >= 1 {
		return "", errors.New("the quota is the whole card, which is no limit: leave the fraction out")
	}
	return strconv.FormatFloat(x, 'f', -1, 64), nil
}

// variables are the environment that the answer holds under: the question's own,
// and what sets the quota. notes are comments on them.
func (f *formFlags) variables(r api.Recommendation) (vars map[string]string, notes []string, err error) {
	vars = maps.Clone(r.Env)
	if vars == nil {
		vars = map[string]string{}
	}
	switch r.QuotaKind {
	case proto.QuotaProcess:
		vars["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = fmt.Sprintf("0=%dM", wholeMiBUp(r.Quota))
		return vars, []string{"the MPS control daemon enforces this for its clients; without the daemon it does nothing"}, nil
	case proto.QuotaDevice:
		return nil, nil, errors.New("no variable sets a device quota, which is what the card has left: ask with --kind allocator or process")
	}
	share, err := f.fraction(r.Quota)
	if err != nil {
		return nil, nil, err
	}
	if old := olderTorch(r.Torch); old {
		vars["OOMFLEET_MEMORY_FRACTION"] = share
		return vars, []string{fmt.Sprintf("torch %s has no variable for it; call in the job, before the first tensor:", r.Torch),
			`torch.cuda.set_per_process_memory_fraction(float(os.environ["OOMFLEET_MEMORY_FRACTION"]), 0)`}, nil
	}
	name := allocator.EnvConf
	if _, given := vars[allocator.EnvConfNew]; given && vars[allocator.EnvConf] == "" {
		name = allocator.EnvConfNew
	}
	if strings.Contains(vars[name], "per_process_memory_fraction") {
		return nil, nil, fmt.Errorf("%s sets a memory fraction already, and a limit that is set twice is a mistake: leave it out of --env", name)
	}
	parts := []string{"per_process_memory_fraction:" + share}
	if vars[name] != "" {
		parts = []string{vars[name], parts[0]}
	}
	vars[name] = strings.Join(parts, ",")
	if _, both := vars[allocator.EnvConfNew]; both {
		vars[allocator.EnvConfNew] = vars[name] // versions of torch disagree on which one wins
	}
	return vars, []string{"the key per_process_memory_fraction is known to torch from 2.10 on; an older one refuses it"}, nil
}

// olderTorch is whether a version is known and before 2.10.
func olderTorch(version string) bool {
	major, rest, ok := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, errX := strconv.Atoi(major)
	y, errY := strconv.Atoi(minor)
	return ok && errX == nil && errY == nil && (x < 2 || x == 2 && y < 10)
}

// wholeMiBUp never rounds down: a limit below the quota would fail.
func wholeMiBUp(b proto.Bytes) int64 { return int64(b.RoundUp(proto.MiB) / proto.MiB) }

// env are shell exports.
func (f *formFlags) env(r api.Recommendation) (string, error) {
	vars, notes, err := f.variables(r)
	if err != nil {
		return "", err
	}
	return "# " + summary(r) + "\n" + comments(notes) + exports(vars), nil
}

func comments(notes []string) string {
	text := ""
	for _, n := range notes {
		text += "# " + oneLine(n) + "\n"
	}
	return text
}

func exports(vars map[string]string) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		text += "export " + name + "=" + quoted(vars[name]) + "\n"
	}
	return text
}

// share is what the run takes of the card: what a scheduler that counts memory
// must count.
func share(r api.Recommendation) (proto.Bytes, error) {
	if r.QuotaKind != proto.QuotaAllocator {
		return r.Quota, nil
	}
	if r.Outside == 0 {
		return 0, errors.New("no recording says what a process holds outside the allocator, so its share of the card is not known: record one, or leave shards out")
	}
	return r.Quota + r.Outside + 16*proto.MiB, nil
}

// slurm are the lines of a batch script.
func (f *formFlags) slurm(r api.Recommendation) (string, error) {
	text := "# " + summary(r) + "\n"
	switch {
	case f.shards > 0:
		bytes, err := share(r)
		if err != nil {
			return "", err
		}
		if f.total == 0 {
			return "", errors.New("the card's total is not known from any run: give --card-memory")
		}
		n := upTo(bytes, f.total, f.shards)
		text += fmt.Sprintf("# %s of the card's %s, context and modules included; Slurm counts shards and limits nothing\n#SBATCH --gres=shard:%d\n", mib(bytes), mib(f.total), n)
	case r.QuotaKind == proto.QuotaProcess:
		if f.total == 0 {
			return "", errors.New("the card's total is not known from any run: give --card-memory")
		}
		text += fmt.Sprintf("# of 100 that gres.conf gives a GPU; Slurm turns it into a share of threads, not of memory\n#SBATCH --gres=mps:%d\n", upTo(r.Quota, f.total, 100))
	default:
		text += "#SBATCH --gres=gpu:1\n"
	}
	if r.QuotaKind == proto.QuotaDevice {
		return text + "# nothing in Slurm limits memory on the card (--mem-per-gpu is host memory): a device quota needs a slice or card of its own\n" + exports(r.Env), nil
	}
	vars, notes, err := f.variables(r)
	if err != nil {
		return "", err
	}
	return text + "# --mem-per-gpu is host memory and limits nothing on the card; this does:\n" + comments(notes) + exports(vars), nil
}

// upTo is how many of n parts of a whole hold some bytes.
func upTo(bytes, whole proto.Bytes, n int) int64 {
	return int64((bytes*proto.Bytes(n) + whole - 1) / whole)
}

// text is a YAML string: JSON's, which YAML reads as it is.
func text(s string) string {
	out, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("a string always marshals: %v", err))
	}
	return string(out)
}
