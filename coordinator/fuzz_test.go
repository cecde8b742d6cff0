package coordinator

import (
	"encoding/json"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// FuzzImport: coefficients of elsewhere are refused with a sentence, or can be
// asked afterwards.
func FuzzImport(f *testing.F) {
	f.Add([]byte(`{"group":{"workload":{"name":"w"}},"quota_kind":"allocator","origin":"imported","target":"reserved","terms":[{"name":"BL","value":5,"lo":4,"hi":6}],` +
		`"domain":{"seq_len":[1,9],"batch":[1,1]},"model":{"target":"reserved","terms":[{"name":"BL","value":5,"lo":4,"hi":6}]}}`))
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
	})
}
