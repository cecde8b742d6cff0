package api

import (
	"math"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/oomfleet/oomfleet/storage/registry"
)

// TestNothingIsAboveTheLastPosition: a watcher that names the largest number there
// is has everything; it was once sent all that there is, at each change.
func TestNothingIsAboveTheLastPosition(t *testing.T) {
	w := httptest.NewRecorder()
	to := &stream{w: w, control: http.NewResponseController(w)}
	all := []registry.Change{{Index: 3, Kind: registry.ChangeKinds()[0]}}
	if err := to.changes(t.Context(), all, math.MaxUint64, registry.View{}, registry.ChangeKinds()); err != nil || w.Body.Len() > 0 {
		t.Errorf("%v, %q", err, w.Body)
	}
}
