package plan

import (
	"testing"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// TestClaimsOfRange: where runs differ, a fail is looked for ever deeper below the
// boundary, and nowhere where the search may not go.
func TestClaimsOfRange(t *testing.T) {
	at := func(mib int64, o proto.Outcome) registry.Run {
		return registry.Run{Kind: proto.TaskProbe, Quota: proto.Bytes(mib) * proto.MiB, Outcome: o}
	}
	const pass, fail = proto.OutcomePass, proto.OutcomeOOMQuota
	for _, tt := range []struct {
		name string
		runs []registry.Run
		min  int64
		want int64 // the fail that is asked for, 0 for none
	}{
		{"nothing seen", nil, 2, 936},
		{"a fail near by", []registry.Run{at(940, fail)}, 2, 0},
		{"a fail far off", []registry.Run{at(900, fail)}, 2, 936},
		{"a pass there", []registry.Run{at(936, pass)}, 2, 872},
		{"passes further down", []registry.Run{at(936, pass), at(872, pass)}, 2, 744},
		{"passes and a fail below them", []registry.Run{at(936, pass), at(872, pass), at(600, fail)}, 2, 0},
		{"a range that begins above", nil, 980, 980},
		{"a range that begins at the boundary", nil, 1000, 0},
		{"passes down to where the range begins", []registry.Run{at(980, pass)}, 980, 980},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lim := limits{min: proto.Bytes(tt.min) * proto.MiB, max: proto.GiB * 2, step: proto.DefaultStep}
			p := proto.Prediction{Varies: true, Boundary: proto.Boundary{Boundary: 1000 * proto.MiB, LowestPass: 1000 * proto.MiB}}
			var got proto.Bytes
			claims := readLedger(&registry.Record{Runs: tt.runs}).claimsOfRange(p, lim)
			for _, c := range claims {
				if c.says == fails {
					got = c.quota
				}
			}
			if got != proto.Bytes(tt.want)*proto.MiB || claims[len(claims)-1] != (claim{1000 * proto.MiB, passes}) {
				t.Errorf("%+v, want a fail at %d MiB and a pass at 1000", claims, tt.want)
			}
		})
	}
}
