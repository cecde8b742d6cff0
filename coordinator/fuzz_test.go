package coordinator

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator/quota"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// FuzzImport: coefficients of elsewhere are refused with one short sentence, or
// can be asked afterwards.
func FuzzImport(f *testing.F) {
	good, err := json.Marshal(elsewhere())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"group":{"workload":{"name":"w"}},"quota_kind":"allocator","origin":"imported","target":"reserved","terms":[{"name":"BL","value":5,"lo":4,"hi":6}],` +
		`"domain":{"seq_len":[1,9],"batch":[1,1]},"model":{"target":"reserved","terms":[{"name":"BL","value":5,"lo":4,"hi":6}],"domain":{"seq_len":[1,9],"batch":[1,1]}}}`))
	f.Add([]byte(`{"origin":"imported","target":"process","model":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var c proto.Coefficients
		if json.Unmarshal(text, &c) != nil {
			return
		}
		// A fleet costs more than all the rest; most inputs need none.
		if why := refuseImport(c); why != "" {
			if len(why) > 4000 || strings.ContainsAny(why, "\n\r") {
				t.Errorf("refused with %d bytes: %.300q", len(why), why)
			}
			return
		}
		set := registry.CoefficientSet{Key: registry.KeyOf(c), Models: []proto.Coefficients{c}, Revision: 1}
		view := registry.View{Coefficients: map[registry.GroupKey]*registry.CoefficientSet{set.Key: &set}}
		for _, at := range [][2]int{{c.Domain.SeqLen[0], c.Domain.Batch[0]}, {c.Domain.SeqLen[1], c.Domain.Batch[1]}} {
			q := quota.Question{Subject: quota.Subject{Workload: c.Group.Workload.Name, Params: c.Group.Workload.Params, ChunkSize: c.Group.ChunkSize, Env: c.Group.Env},
				SeqLen: at[0], Batch: at[1], Kind: c.QuotaKind, Origin: c.Origin}
			if r, err := (quota.Adviser{View: view}).Recommend(q); err == nil && r.Quota <= 0 {
				t.Errorf("imported, and answers %+v", r)
			}
		}
	})
}

// TestImportOfSeeds: what the fuzz target takes for imported, a fleet imports.
func TestImportOfSeeds(t *testing.T) {
	fl := newFleet(t)
	service, err := New(fl.cfg, Deps{Registry: fl.registry, Queue: fl.queue, Traces: fl.traces})
	if err != nil {
		t.Fatal(err)
	}
	good, bad := elsewhere(), elsewhere()
	bad.Target = "used"
	if reply, err := service.Import(fl.ctx, []proto.Coefficients{good}); err != nil || len(reply.Groups) != 1 || refuseImport(good) != "" {
		t.Errorf("%+v, %v", reply, err)
	}
	var refused *RefusedError
	if _, err := service.Import(fl.ctx, []proto.Coefficients{bad}); !errors.As(err, &refused) || refuseImport(bad) == "" {
		t.Errorf("%v", err)
	}
}
