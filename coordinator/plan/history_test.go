package plan

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

var rewrite = flag.Bool("rewrite", false, "write what the histories give into their files")

// TestHistories plays testdata/*.txt: commands, a line "----", and what came
// of them. Commands:
//
//	sweep ID [L=512,640] [B=1,2] [env=-,exp,gc,async] [kind=..] [strategy=..] [certify=..] [sample=..] [min=..] [max=..]
//	card TOTAL
//	meters allocated=.. reserved=.. [process=..]
//	notrace
//	traces                    agents keep the traces of probes that do otherwise
//	peak ALLOCATED            of probes from here on
//	caught on|off             of probes that pass from here on
//	next                      what Next wants; runs are issued, settlements committed
//	run L512 record|QUOTA OUTCOME [why]
//	torch VERSION             of the runs from here on
//	build L=from-to [B=from-to] [partial] | more REASON | refused REASON
//	predict L512 boundary=.. [lowest=..] [bands=a-b,c-d] [peak=..] [lesson=KIND] [varies] | refused REASON
//	                          answers the replay that Next wants of this cell
//	stale L512 REASON         what its recording shows is not what the program says
//	cancel ID
//	fitted                    commits coefficients for all that Next wants fitted
//
// A cell is L512, with its batch above 1 L512B2, with allocator settings
// L512+exp, with another quota kind L512/device. Amounts are MiB.
func TestHistories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d histories, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := play(string(text))
			if err != nil {
				t.Fatal(err)
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("got:\n%s\nwant:\n%s", got, text)
			}
		})
	}
}

// play runs a history's commands and returns the history with what they gave.
func play(text string) (string, error) {
	h := &history{world: newWorld(testCell(proto.QuotaAllocator), proto.Search{})}
	h.machine, h.index = registry.New(), 0
	var out bytes.Buffer
	for _, block := range strings.Split(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(block, "----")
		var said bytes.Buffer
		for _, line := range strings.Split(strings.TrimSpace(commands), "\n") {
			if strings.HasPrefix(line, "#") {
				continue
			}
			if err := h.do(&said, strings.Fields(line)); err != nil {
				return "", fmt.Errorf("%q: %w", line, err)
			}
		}
		fmt.Fprintf(&out, "%s\n----\n%s\n", strings.TrimSpace(commands), said.String())
	}
	return strings.TrimSpace(out.String()) + "\n", nil
}

type history struct{ *world }

func (h *history) do(out *bytes.Buffer, words []string) error {
	args := words[1:]
	switch words[0] {
	case "sweep":
		return h.sweep(args)
	case "cancel":
		h.apply(registry.Command{CancelSweep: &registry.CancelSweep{ID: proto.MatrixID(args[0])}})
	case "card":
		h.card.Total = mib(args[0])
	case "notrace":
		h.noTrace = true
	case "traces":
		h.traces = true
	case "peak":
		h.peak = mib(args[0])
	case "caught":
		h.caught = args[0] == "on"
	case "meters":
		v := values(args)
		h.meters = proto.Meters{PeakAllocated: ptr(mib(v["allocated"])), PeakReserved: ptr(mib(v["reserved"]))}
		if p, ok := v["process"]; ok {
			h.meters.ProcessPeak = ptr(mib(p))
		}
	case "next":
		return h.show(out)
	case "run":
		return h.run(args)
	case "torch":
		h.torch = args[0]
	case "build":
		return h.build(args)
	case "stale":
		return h.stale(args)
	case "predict":
		return h.predict(args)
	case "fitted":
		return h.fitted()
	default:
		return errors.New("no such command")
	}
	return nil
}

func (h *history) sweep(args []string) error {
	v := values(args[1:])
	search := proto.Search{Strategy: proto.Strategy(v["strategy"]), Certify: proto.Certify(v["certify"]), Min: mib(v["min"]), Max: mib(v["max"])}
	search.SamplePercent, _ = strconv.Atoi(v["sample"])
	kind := proto.QuotaAllocator
	if k := v["kind"]; k != "" {
		kind = proto.QuotaKind(k)
	}
	list := func(key, none string) []string { return strings.Split(cmp.Or(v[key], none), ",") }
	var cells []proto.Cell
	for _, l := range list("L", "512") {
		for _, b := range list("B", "1") {
			for _, e := range list("env", "-") {
				c := testCell(kind)
				var err error
				if c.SeqLen, err = strconv.Atoi(l); err != nil {
					return err
				}
				if c.Batch, err = strconv.Atoi(b); err != nil {
					return err
				}
				if e != "-" {
					c.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": settings[e]}
				}
				cells = append(cells, c)
			}
		}
	}
	h.submit(proto.MatrixID(args[0]), search, cells...)
	return nil
}

// show prints and carries out what the plan wants.
func (h *history) show(out *bytes.Buffer) error {
	a, err := h.next()
	if err != nil {
		return err
	}
	v := h.machine.View()
	lines := func(rows []string) { // by length, which says more than the order of the ids
		slices.SortStableFunc(rows, func(a, b string) int {
			at := func(row string) (n int, name string) {
				fmt.Sscanf(row, "L%d", &n)
				name, _, _ = strings.Cut(row, " ")
				return n, name
			}
			la, na := at(a)
			lb, nb := at(b)
			return cmp.Or(la-lb, strings.Compare(na, nb))
		})
		for _, row := range rows {
			fmt.Fprintln(out, row)
		}
	}
	name := func(k registry.Key) string { return nameOf(v.Records[k].Cell) }
	var issues, replays, settles []string
	for _, r := range a.Issue {
		row := fmt.Sprintf("%s issue %s", name(r.Key), aim{r.Kind, r.Quota})
		if r.ExpectPeak > 0 {
			row += fmt.Sprintf(", refused at a peak of %s", r.ExpectPeak)
		}
		if p := v.Records[r.Key].Prediction; r.Kind == proto.TaskProbe && r.Expect == "" && p != nil && p.RefusedPeak > 0 {
			row += ", without a trace"
		}
		issues = append(issues, row)
	}
	for _, p := range a.Predict {
		replays = append(replays, fmt.Sprintf("%s replay %s", name(p.Key), h.sourceOf(p)))
	}
	for _, s := range a.Settle {
		b := s.Settlement.Boundary
		row := fmt.Sprintf("%s settle %s %s bands_known=%v lowest=%s bands=%v", name(s.Key), s.Settlement.State, b.Boundary, b.BandsKnown, b.LowestPass, b.FailBands)
		if s.Settlement.Reason != "" {
			row += "\n  " + s.Settlement.Reason
		}
		settles = append(settles, row)
	}
	lines(issues)
	for _, b := range a.Build {
		fmt.Fprintf(out, "build from %s\n", strings.Join(inputNames(b), ", "))
	}
	lines(replays)
	lines(settles)
	for _, f := range a.Fit {
		fmt.Fprintf(out, "fit %s %s, recordings:", f.Key.Origin, f.Key.QuotaKind)
		for _, rec := range f.Records {
			fmt.Fprintf(out, " L%d", rec.Cell.SeqLen)
		}
		fmt.Fprintln(out)
	}
	if a.Empty() {
		fmt.Fprintln(out, "nothing")
	}
	if len(a.Issue) > 0 {
		h.apply(registry.Command{Issue: &registry.Issue{Seen: v.AppliedIndex, Requests: a.Issue}})
	}
	for _, s := range a.Settle {
		h.apply(registry.Command{Settle: &s})
	}
	return nil
}

// sourceOf is what a replay replays.
func (h *history) sourceOf(r Replay) string {
	source := fmt.Sprintf("%s, overhead %s", r.Trace.Digest, r.Overhead)
	if r.Trace.Digest == traceOf(r.Cell) {
		source = "overhead " + r.Overhead.String()
	}
	if r.Program != "" {
		source = string(r.Program)
	}
	if l := r.Lesson; l.Number > 0 {
		source = fmt.Sprintf("%s, lesson %d on %s", r.Trace.Digest, l.Number, cmp.Or(l.Trace, l.Program))
		if l.Before != "" {
			source += ", before it " + string(l.Before)
		}
	}
	if r.Against != "" {
		source += ", against " + string(r.Against)
	}
	if r.Check != "" {
		source += ", check against " + string(r.Check)
	}
	return source
}

func inputNames(b Build) []string {
	var names []string
	for _, in := range b.Inputs {
		names = append(names, strings.TrimPrefix(string(in.Trace.Digest), "trace of "))
	}
	return names
}

// build answers the program that the plan wants built.
func (h *history) build(args []string) error {
	a, err := h.next()
	if err != nil || len(a.Build) != 1 {
		return fmt.Errorf("%d builds are wanted, %w", len(a.Build), err)
	}
	set := &registry.SetProgram{Family: a.Build[0].Family, Inputs: digestsOf(a.Build[0].Inputs)}
	switch args[0] {
	case "more", "refused":
		set.Refused, set.NeedMore = strings.Join(args[1:], " "), args[0] == "more"
	default:
		v := values(args)
		d := registry.ProgramDomain{Batch: proto.Range{1, 1}, Partial: slices.Contains(args, "partial")}
		if _, err := fmt.Sscanf(v["L"], "%d-%d", &d.SeqLen[0], &d.SeqLen[1]); err != nil {
			return err
		}
		if b := v["B"]; b != "" {
			if _, err := fmt.Sscanf(b, "%d-%d", &d.Batch[0], &d.Batch[1]); err != nil {
				return err
			}
		}
		set.Program, set.Domains = proto.Digest("program of "+strings.Join(inputNames(a.Build[0]), " ")), []registry.ProgramDomain{d}
	}
	h.apply(registry.Command{SetProgram: set})
	return nil
}

// wanted is the replay that the plan wants of a cell.
func (h *history) wanted(name string) (Replay, error) {
	if err := h.find(name); err != nil {
		return Replay{}, err
	}
	a, err := h.next()
	if err != nil {
		return Replay{}, err
	}
	for _, r := range a.Predict {
		if r.Key == h.key {
			return r, nil
		}
	}
	return Replay{}, fmt.Errorf("no replay of %s is wanted", name)
}

func (h *history) stale(args []string) error {
	r, err := h.wanted(args[0])
	if err != nil {
		return err
	}
	p := h.machine.View().Programs[registry.FamilyOf(r.Key.Origin, r.Cell)]
	if r.Check == "" || p == nil {
		return fmt.Errorf("%+v is to be held against no program", r)
	}
	h.apply(registry.Command{SetProgram: &registry.SetProgram{Family: p.Family, Inputs: p.Inputs, Program: r.Check, Domains: p.Domains,
		Stale: strings.Join(args[1:], " ")}})
	return nil
}

// find makes the named cell the current one.
func (h *history) find(name string) error {
	for k, rec := range h.machine.View().Records {
		if nameOf(rec.Cell) == name {
			h.key = k
			return nil
		}
	}
	return fmt.Errorf("no cell %s", name)
}

func (h *history) run(args []string) error {
	if err := h.find(args[0]); err != nil {
		return err
	}
	want := aim{kind: proto.TaskRecord}
	if args[1] != "record" {
		want = aim{proto.TaskProbe, mib(args[1])}
	}
	for i, o := range h.rec().Open {
		if (aim{o.Task.Kind, o.Task.Quota}) == want {
			h.answer(i, proto.Outcome(args[2]), strings.Join(args[3:], " "))
			return nil
		}
	}
	return fmt.Errorf("no such task is open: %+v", h.rec().Open)
}

func (h *history) predict(args []string) error {
	r, err := h.wanted(args[0])
	if err != nil {
		return err
	}
	p := proto.Prediction{Trace: r.Trace.Digest, Program: r.Program, Varies: r.Varies || slices.Contains(args, "varies")}
	if r.Lesson.Number > 0 {
		p.Lesson = lessonOf(r, proto.LessonKind(values(args[1:])["lesson"]))
	}
	if args[1] == "refused" {
		p.Refused = strings.Join(args[2:], " ")
	} else {
		v := values(args[1:])
		p.RefusedPeak = mib(v["peak"])
		p.Boundary = proto.Boundary{Boundary: mib(v["boundary"]), LowestPass: mib(v["boundary"]), BandsKnown: true}
		if low := v["lowest"]; low != "" {
			p.LowestPass = mib(low)
		}
		for _, b := range strings.FieldsFunc(v["bands"], func(r rune) bool { return r == ',' }) {
			from, to, _ := strings.Cut(b, "-")
			p.FailBands = append(p.FailBands, proto.Band{From: mib(from), To: mib(to)})
		}
	}
	h.apply(registry.Command{SetPrediction: &registry.SetPrediction{Key: h.key, Prediction: p}})
	return nil
}

func (h *history) fitted() error {
	a, err := h.next()
	if err != nil {
		return err
	}
	for _, f := range a.Fit {
		key := f.Key
		set := registry.SetCoefficients{Key: key}
		for _, rec := range f.Records {
			set.Evidence = append(set.Evidence, rec.Recording().Task)
			set.Models = []proto.Coefficients{{Group: rec.Group(), QuotaKind: key.QuotaKind, Origin: key.Origin, Target: "reserved"}}
		}
		h.apply(registry.Command{SetCoefficients: &set})
	}
	return nil
}

func values(args []string) map[string]string {
	m := make(map[string]string)
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		m[k] = v
	}
	return m
}

// mib reads a whole number of MiB; the empty string is 0.
func mib(text string) proto.Bytes {
	n, err := strconv.ParseInt(text, 10, 64)
	if text != "" && err != nil {
		panic(err)
	}
	return proto.Bytes(n) * proto.MiB
}
