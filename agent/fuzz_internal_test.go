package agent

import (
	"log/slog"
	"os"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// FuzzOutbox: whatever lies in the outbox, a parcel that says whose it is, or an
// error that puts it aside.
func FuzzOutbox(f *testing.F) {
	f.Add([]byte(`{"result":{"task":"s-1-1","protocol":1,"fence":7,"agent":"gpu-1","outcome":"pass"},"trace":false}`), []byte{})
	f.Add([]byte(`{"result":{"task":"s-1-1","protocol":1,"fence":7,"agent":"gpu-1"},"trace":true}`), []byte("PAR1"))
	f.Fuzz(func(t *testing.T, result, trace []byte) {
		box, err := openOutbox(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		const name = "s-1-1-7"
		for suffix, text := range map[string][]byte{resultSuffix: result, traceSuffix: trace} {
			if err := os.WriteFile(box.path(name, suffix), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, found := range box.tidy(slog.New(slog.DiscardHandler)) {
			if p, err := box.read(found); err != nil {
				box.putAside(found)
			} else if p.Result.Agent == "" || p.Result.Protocol != proto.Version || nameOf(p.Result) != name {
				t.Errorf("read as %+v", p.Result)
			}
		}
	})
}
