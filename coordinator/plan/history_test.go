package plan

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
//	sweep ID [L=512,640] [kind=..] [strategy=..] [certify=..] [sample=..] [min=..] [max=..]
//	card TOTAL
//	meters allocated=.. reserved=.. [process=..]
//	notrace
//	next                      what Next wants; runs are issued, settlements committed
//	run L512 record|QUOTA OUTCOME [why]
//	predict L512 boundary=.. [lowest=..] [bands=a-b,c-d] | refused REASON
//	cancel ID
//	fitted                    commits coefficients for all that Next wants fitted
//
// Amounts are MiB.
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
	lengths := v["L"]
	if lengths == "" {
		lengths = "512"
	}
	var cells []proto.Cell
	for _, l := range strings.Split(lengths, ",") {
		c := testCell(kind)
		n, err := strconv.Atoi(l)
		if err != nil {
			return err
		}
		c.SeqLen = n
		cells = append(cells, c)
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
	name := func(k registry.Key) string { return fmt.Sprintf("L%d", v.Records[k].Cell.SeqLen) }
	for _, r := range a.Issue {
		fmt.Fprintf(out, "%s issue %s\n", name(r.Key), aim{r.Kind, r.Quota})
	}
	for _, p := range a.Predict {
		fmt.Fprintf(out, "%s replay overhead %s\n", name(p.Key), p.Overhead)
	}
	for _, s := range a.Settle {
		b := s.Settlement.Boundary
		fmt.Fprintf(out, "%s settle %s %s bands_known=%v lowest=%s bands=%v\n", name(s.Key), s.Settlement.State, b.Boundary, b.BandsKnown, b.LowestPass, b.FailBands)
		if s.Settlement.Reason != "" {
			fmt.Fprintf(out, "  %s\n", s.Settlement.Reason)
		}
	}
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

// find makes the named cell the current one.
func (h *history) find(name string) error {
	for k, rec := range h.machine.View().Records {
		if fmt.Sprintf("L%d", rec.Cell.SeqLen) == name {
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
	if err := h.find(args[0]); err != nil {
		return err
	}
	p := proto.Prediction{Trace: "d"}
	if args[1] == "refused" {
		p.Refused = strings.Join(args[2:], " ")
	} else {
		v := values(args[1:])
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
