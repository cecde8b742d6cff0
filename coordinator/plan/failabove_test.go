package plan

import (
	"testing"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// TestCertifyLooksAbove: a boundary under a quota that real probes refused is no
// boundary, however its own two claims came out.
func TestCertifyLooksAbove(t *testing.T) {
	const MiB = proto.MiB
	probe := func(quota proto.Bytes, o proto.Outcome) registry.Run {
		return registry.Run{Kind: proto.TaskProbe, Quota: quota, Outcome: o}
	}
	rec := &registry.Record{
		Cell:       proto.Cell{QuotaKind: proto.QuotaAllocator, Step: 2 * MiB},
		Search:     proto.Search{Certify: proto.CertifyEdges},
		Prediction: &proto.Prediction{Boundary: proto.Boundary{Boundary: 9996 * MiB, LowestPass: 9996 * MiB, BandsKnown: true}},
		Runs: []registry.Run{probe(9996*MiB, proto.OutcomePass), probe(9994*MiB, proto.OutcomeOOMQuota),
			probe(10000*MiB, proto.OutcomeOOMQuota)},
	}
	lim := limits{min: 2 * MiB, max: 20000 * MiB, step: 2 * MiB}
	s, missed := certify(rec, readLedger(rec), lim)
	if s.settle != nil || missed.why == "" || missed.at.quota != 10000*MiB {
		t.Errorf("settled %+v, missed %+v; want a miss at 10000 MiB", s.settle, missed)
	}
	rec.Runs = rec.Runs[:2]
	if s, missed := certify(rec, readLedger(rec), lim); s.settle == nil || missed.why != "" {
		t.Errorf("without the fail above: settled %+v, missed %+v", s.settle, missed)
	}
}
