package quota_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator/quota"
	"github.com/oomfleet/oomfleet/coordinator/quota/quotatest"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// stored is an adviser that knows one set of coefficients, as an earlier build
// may have stored it.
func stored(value float64, model string) (quota.Adviser, quota.Question) {
	c := proto.Coefficients{Group: proto.Group{Workload: proto.Workload{Name: "w"}, Env: map[string]string{}}, QuotaKind: proto.QuotaAllocator,
		Origin: proto.OriginImported, Target: "reserved", Terms: []proto.Term{{Name: "BL3", Value: value, Lo: value, Hi: value}},
		Domain: proto.Domain{SeqLen: proto.Range{1, 100_000}, Batch: proto.Range{1, 1}}, Model: []byte(model)}
	set := &registry.CoefficientSet{Key: registry.KeyOf(c), Models: []proto.Coefficients{c}}
	a := quota.Adviser{View: registry.View{Coefficients: map[registry.GroupKey]*registry.CoefficientSet{set.Key: set}}}
	return a, quota.Question{Subject: quota.Subject{Workload: "w"}, SeqLen: 50_000, Batch: 1, Kind: proto.QuotaAllocator, Origin: proto.OriginImported, Risk: 0.1}
}

// TestStoredModelsThatCannotAnswer: each is refused with a sentence, by every
// question, and none panics.
func TestStoredModelsThatCannotAnswer(t *testing.T) {
	model := func(component string) string {
		return `{"target":"reserved","terms":[{"name":"BL3","value":1,"unit":"","lo":1,"hi":1}],"domain":{"seq_len":[1,100000],"batch":[1,1]},"components":[` + component + `]}`
	}
	for name, c := range map[string]struct {
		value float64
		model string
		says  string
	}{
		"ragged covariance":   {1, model(`{"sets":[{"names":["BL3"],"values":[1],"cov":[],"dof":3}]}`), "rows of covariance"},
		"fewer values":        {1, model(`{"sets":[{"names":["BL3","BL"],"values":[1],"cov":[[1,0],[0,1]],"dof":3}]}`), "1 values"},
		"no freedom":          {1, model(`{"sets":[{"names":["BL3"],"values":[1],"cov":[[1]],"dof":-3}]}`), "degrees of freedom"},
		"of another document": {2, model(`{"sets":[{"names":["BL3"],"values":[1],"cov":[[1]],"dof":3}]}`), "disagree with their model"},
		"negative":            {-5, "", "0 <= lo"},
		"nothing":             {0, "", "comes to 0 bytes"},
		"beyond any card":     {1e9, "", "more than any card has"},
	} {
		a, q := stored(c.value, c.model)
		_, recommend := a.Recommend(q)
		_, replicas := a.ReplicasOn(q, 80*proto.GiB)
		_, longest := a.MaxSeqLen(q, 80*proto.GiB)
		for question, err := range map[string]error{"recommend": recommend, "replicas": replicas, "max-seq-len": longest} {
			var refused *quota.Refusal
			if !errors.As(err, &refused) || question != "max-seq-len" && !strings.Contains(refused.Why, c.says) {
				if question == "max-seq-len" && err == nil && name == "beyond any card" {
					continue // short ones fit
				}
				t.Errorf("%s, %s: %v", name, question, err)
			}
		}
	}
	a, q := stored(1, "")
	if r, err := a.Recommend(q); err != nil || r.Quota < 100*proto.GiB {
		t.Errorf("a good one: %+v, %v", r, err)
	}
}

// TestSettingsThatNoQuotaHolds: the fraction is the quota's own, and a setting
// that torch would refuse is the question's mistake.
func TestSettingsThatNoQuotaHolds(t *testing.T) {
	a := adviser(quotatest.New(t, traces))
	for conf, says := range map[string]string{
		"per_process_memory_fraction:0.5":                            "per_process_memory_fraction",
		"expandable_segments:True,per_process_memory_fraction : 0.5": "per_process_memory_fraction",
		"garbage:1": `unknown key "garbage"`,
	} {
		q := question(384, 1, func(q *quota.Question) { setEnv(q, conf) })
		_, one := a.Recommend(q)
		_, longest := a.MaxSeqLen(q, 80*proto.GiB)
		_, compared := a.Compare(question(384, 1), q)
		for _, err := range []error{one, longest, compared} {
			var refused *quota.Refusal
			if !errors.As(err, &refused) || refused.Code != quota.BadQuestion || !strings.Contains(refused.Why, says) {
				t.Errorf("%s: %v", conf, err)
			}
		}
	}
	q := question(384, 1)
	q.Env = map[string]string{allocator.EnvConf: "max_split_size_mb:128", allocator.EnvConfNew: "max_split_size_mb:64"}
	if _, err := a.Recommend(q); err == nil || !strings.Contains(err.Error(), allocator.EnvConf) {
		t.Errorf("two that disagree: %v", err)
	}
	var refused *quota.Refusal
	q = question(384, 1, func(q *quota.Question) { setEnv(q, "backend:cudaMallocAsync") })
	if _, err := a.Recommend(q); errors.As(err, &refused) && refused.Code == quota.BadQuestion {
		t.Errorf("another backend, whose cells are probed: %v", err)
	}
}

// TestOriginsAreNotSubtracted: what was simulated less what was measured is no
// difference between runs.
func TestOriginsAreNotSubtracted(t *testing.T) {
	a := adviser(quotatest.New(t, traces))
	_, err := a.Compare(question(384, 1), question(384, 1, func(q *quota.Question) { q.Origin = proto.OriginMeasured }))
	var refused *quota.Refusal
	if !errors.As(err, &refused) || refused.Code != quota.BadQuestion || !strings.Contains(refused.Why, "simulated") || !strings.Contains(refused.Why, "measured") {
		t.Errorf("%v", err)
	}
}
