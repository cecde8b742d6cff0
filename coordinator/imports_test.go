package coordinator

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// elsewhere are coefficients that can be imported.
func elsewhere() proto.Coefficients {
	return proto.Coefficients{Group: proto.Group{Workload: proto.Workload{Name: "w", Params: map[string]string{"stem": "bfloat16"}}, GPU: "card", Driver: "580", Torch: "2.11", Env: map[string]string{"A": "b"}},
		QuotaKind: proto.QuotaAllocator, Origin: proto.OriginImported, Target: "reserved", Terms: []proto.Term{{Name: "BL", Value: 5, Lo: 4, Hi: 6}},
		Domain: proto.Domain{SeqLen: proto.Range{1, 9}, Batch: proto.Range{1, 1}},
		Model: []byte(`{"target":"reserved","terms":[{"name":"BL","value":5,"unit":"","lo":4,"hi":6}],"domain":{"seq_len":[1,9],"batch":[1,1]},` +
			`"components":[{"sets":[{"names":["BL"],"values":[5],"cov":[[1]],"dof":2}]}]}`)}
}

// TestImportsThatCannotBeAsked: each is refused with one sentence, and nothing of
// it is kept.
func TestImportsThatCannotBeAsked(t *testing.T) {
	fl := newFleet(t)
	service, err := New(fl.cfg, Deps{Registry: fl.registry, Queue: fl.queue, Traces: fl.traces})
	if err != nil {
		t.Fatal(err)
	}
	model := func(old, to string) func(*proto.Coefficients) {
		return func(c *proto.Coefficients) {
			text := strings.ReplaceAll(string(c.Model), old, to)
			if text == string(c.Model) {
				t.Fatalf("no %q in the model", old)
			}
			c.Model = []byte(text)
		}
	}
	const line = "x\nrm -rf /"
	for name, c := range map[string]struct {
		edit func(*proto.Coefficients)
		says string
	}{
		"dimensions":     {model(`"cov":[[1]]`, `"cov":[]`), "rows of covariance"},
		"freedom":        {model(`"dof":2`, `"dof":-2`), "degrees of freedom"},
		"too large":      {model(`"names":["BL"],"values":[5],"cov":[[1]]`, `"names":["BL","weights"],"values":[5,1],"cov":[[1,3],[3,4]]`), "component 1: set 1: the covariance of BL and weights is 3"},
		"lopsided":       {model(`"names":["BL"],"values":[5],"cov":[[1]]`, `"names":["BL","weights"],"values":[5,1],"cov":[[1,1],[0.5,4]]`), "1 in row 1 and 0.5 in row 2"},
		"set's term":     {model(`"names":["BL"]`, `"names":["ballast"]`), "ballast"},
		"model's terms":  {model(`"value":5`, `"value":4.5`), "disagree with their model"},
		"model's domain": {model(`[1,9]`, `[1,8]`), "disagree with their model"},
		"no model":       {func(c *proto.Coefficients) { c.Model = []byte("null") }, "no model"},
		"negative":       {func(c *proto.Coefficients) { c.Terms[0].Lo = -1; model(`"lo":4`, `"lo":-1`)(c) }, "0 <= lo"},
		"workload":       {func(c *proto.Coefficients) { c.Group.Workload.Name = line }, "control character in workload"},
		"params":         {func(c *proto.Coefficients) { c.Group.Workload.Params["stem"] = line }, "control character in params"},
		"gpu":            {func(c *proto.Coefficients) { c.Group.GPU = line }, "control character in gpu"},
		"driver":         {func(c *proto.Coefficients) { c.Group.Driver = "580\r" }, "control character in driver"},
		"cuda":           {func(c *proto.Coefficients) { c.Group.CUDA = line }, "control character in cuda"},
		"torch":          {func(c *proto.Coefficients) { c.Group.Torch = line }, "control character in torch"},
		"env":            {func(c *proto.Coefficients) { c.Group.Env = map[string]string{line: ""} }, "control character in env"},
	} {
		bad := elsewhere()
		bad.Group.Workload.Params = maps.Clone(bad.Group.Workload.Params)
		c.edit(&bad)
		_, err := service.Import(fl.ctx, []proto.Coefficients{bad})
		var refused *RefusedError
		if !errors.As(err, &refused) || !strings.Contains(refused.Why, c.says) || strings.ContainsAny(refused.Why, "\n\r") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(fl.registry.View().Coefficients); n != 0 {
		t.Errorf("%d sets were committed", n)
	}
	if _, err := service.Import(fl.ctx, []proto.Coefficients{elsewhere()}); err != nil {
		t.Errorf("good ones: %v", err)
	}
}
