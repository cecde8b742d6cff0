package registry

import (
	"fmt"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

func coefficients(l *log, weights float64, evidence ...proto.TaskID) Command {
	l.t.Helper()
	r := l.View().Records[keyOf(64)]
	return Command{SetCoefficients: &SetCoefficients{Key: GroupOf(r), Evidence: evidence, Models: []proto.Coefficients{{
		Group: r.Group(), QuotaKind: proto.QuotaAllocator, Origin: proto.OriginMeasured, Target: "allocated",
		Terms: []proto.Term{{Name: "weights", Value: weights, Unit: "bytes", Lo: weights - 0.1, Hi: weights + 0.1}}, Model: []byte(`{"k":[1,2]}`)}}}}
}

func recordedLog(t *testing.T) *log {
	l := newLog(t)
	l.apply(sweep("s", 64))
	l.apply(take(result(l.issue(record(64))[0], proto.OutcomePass)))
	return l
}

func TestCoefficientRevisions(t *testing.T) {
	l := recordedLog(t)
	key := GroupOf(l.View().Records[keyOf(64)])
	if r := l.apply(coefficients(l, 1, "m-b", "m-a", "m-b")); !r.Accepted {
		t.Fatalf("%+v", r)
	}
	if set := l.View().Coefficients[key]; set.Revision != 1 || fmt.Sprint(set.Evidence) != "[m-a m-b]" {
		t.Fatalf("%+v", set)
	}
	if r := l.apply(coefficients(l, 1, "m-a", "m-b")); r.Accepted || r.Refused != "" {
		t.Fatalf("the same fit again: %+v", r)
	}
	for i := range HistoryLimit + 4 {
		l.apply(coefficients(l, float64(i+2), "m-a"))
	}
	view := l.View()
	history := view.History[key]
	if got := view.Coefficients[key].Revision; got != HistoryLimit+5 || len(history) != HistoryLimit {
		t.Fatalf("revision %d with %d before it", got, len(history))
	}
	for i, set := range history {
		if want := view.Coefficients[key].Revision - HistoryLimit + i; set.Revision != want {
			t.Fatalf("history[%d] is revision %d, want %d", i, set.Revision, want)
		}
	}
}

func TestCoefficientsOfDifferentOriginsNeverMix(t *testing.T) {
	for name, change := range map[string]func(*SetCoefficients){
		"model of another origin":       func(s *SetCoefficients) { s.Models[0].Origin = proto.OriginSimulated },
		"model of another quota kind":   func(s *SetCoefficients) { s.Models[0].QuotaKind = proto.QuotaDevice },
		"model of another group":        func(s *SetCoefficients) { s.Models[0].Group.ChunkSize = 64 },
		"evidence of another origin":    func(s *SetCoefficients) { s.Evidence = []proto.TaskID{"m-a", "s-b"} },
		"no models":                     func(s *SetCoefficients) { s.Models = nil },
		"an origin that is not of ours": func(s *SetCoefficients) { s.Key.Origin = "guessed" },
	} {
		t.Run(name, func(t *testing.T) {
			l := recordedLog(t)
			c := coefficients(l, 1, "m-a")
			change(c.SetCoefficients)
			if r := l.apply(c); r.Accepted || r.Refused == "" {
				t.Fatalf("%+v", r)
			}
		})
	}
}

func TestPredictionOfATraceIsSetOnce(t *testing.T) {
	l := recordedLog(t)
	set := func(trace proto.Digest, boundary proto.Bytes) Reply {
		return l.apply(Command{SetPrediction: &SetPrediction{Key: keyOf(64), Prediction: proto.Prediction{
			Trace: trace, Boundary: proto.Boundary{Boundary: boundary}}}})
	}
	set("d0", 10)
	if r := set("d0", 20); r.Accepted || l.View().Records[keyOf(64)].Prediction.Boundary.Boundary != 10 {
		t.Fatalf("a second prediction of the same trace won: %+v", r)
	}
	if r := set("d1", 20); !r.Accepted || l.View().Records[keyOf(64)].Prediction.Boundary.Boundary != 20 {
		t.Fatalf("the prediction of a newer trace was not kept: %+v", r)
	}
	if r := set("", 30); r.Accepted {
		t.Fatal("a prediction without a trace was kept")
	}
}
