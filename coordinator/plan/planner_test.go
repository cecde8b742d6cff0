package plan

import (
	"fmt"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// many are n records with a recording and a prediction each, nothing open.
func many(n int) registry.View {
	w := newWorld(testCell(proto.QuotaAllocator), proto.Search{})
	w.machine, w.index = registry.New(), 0
	var cells []proto.Cell
	for i := range n {
		c := testCell(proto.QuotaAllocator)
		c.SeqLen = i + 1
		cells = append(cells, c)
	}
	w.submit("many", proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges}, cells...)
	return w.machine.View()
}

// TestPlannerForgets: a view that is no successor of the last one (a node that
// took a snapshot from elsewhere) is planned from nothing.
func TestPlannerForgets(t *testing.T) {
	big, small := many(40), many(3)
	var other registry.View
	other.Records = make(map[registry.Key]*registry.Record)
	for _, rec := range many(40).Records {
		c := *rec
		c.Key.Origin = proto.OriginSimulated
		other.Records[c.Key] = &c
	}
	var p Planner
	for _, v := range []registry.View{big, small, big, other, big} {
		if got, want := fmt.Sprint(p.Next(v)), fmt.Sprint(Next(v)); got != want {
			t.Fatalf("got %s\nwant %s", got, want)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	v := many(20_000)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			Next(v)
		}
	})
	b.Run("again", func(b *testing.B) {
		var p Planner
		for b.Loop() {
			p.Next(v)
		}
	})
}

func TestTimeoutSeconds(t *testing.T) {
	for _, c := range []struct{ length, batch, want int }{
		{64, 1, 600}, {1024, 1, 600}, {1024, 4, 2400}, {2048, 1, 4800}, {4096, 8, 14400},
	} {
		if got := TimeoutSeconds(proto.Cell{SeqLen: c.length, Batch: c.batch}); got != c.want {
			t.Errorf("L%d B%d: %d s, want %d", c.length, c.batch, got, c.want)
		}
	}
}
