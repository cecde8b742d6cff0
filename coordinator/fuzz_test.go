package coordinator

import (
	"encoding/json"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator/quota"
	"github.com/oomfleet/oomfleet/proto"
)

// FuzzImport: coefficients of elsewhere are refused with a sentence, or can be
// asked afterwards.
func FuzzImport(f *testing.F) {
	f.Add([]byte(`{"group":{"workload":{"name":"w"}},"quota_kind":"allocator","origin":"imported","target":"reserved","terms":[{"name":"BL","value":5,"lo":4,"hi":6}],` +
		`"domain":{"seq_len":[1,9],"batch":[1,1]},"model":{"target":"reserved","terms":[{"name":"BL","value":5,"lo":4,"hi":6}],"domain":{"seq_len":[1,9],"batch":[1,1]}}}`))
	f.Add([]byte(`{"origin":"imported","target":"process","model":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var c proto.Coefficients
		if json.Unmarshal(text, &c) != nil {
			return
		}
		fl := newFleet(t)
		service, err := New(fl.cfg, Deps{Registry: fl.registry, Queue: fl.queue, Traces: fl.traces})
		if err != nil {
			t.Fatal(err)
		}
		reply, err := service.Import(fl.ctx, []proto.Coefficients{c})
		if err == nil && (len(reply.Groups) != 1 || len(fl.registry.View().Coefficients) != 1) {
			t.Errorf("imported as %+v", reply)
		}
		if err != nil {
			return
		}
		a := quota.Adviser{View: fl.registry.View()}
		q := quota.Question{Subject: quota.Subject{Workload: c.Group.Workload.Name, Params: c.Group.Workload.Params, ChunkSize: c.Group.ChunkSize, Env: c.Group.Env},
			SeqLen: c.Domain.SeqLen[0], Batch: c.Domain.Batch[0], Kind: c.QuotaKind, Origin: c.Origin}
		if r, err := a.Recommend(q); err == nil && r.Quota <= 0 {
			t.Errorf("imported, and answers %+v", r)
		}
	})
}
