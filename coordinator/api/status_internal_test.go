package api

import (
	"testing"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// TestDigestsAreTakenOnce: the hashes of a state are taken when it is asked for
// first, those of the next state anew.
func TestDigestsAreTakenOnce(t *testing.T) {
	d := &digests{}
	one := registry.View{AppliedIndex: 7}
	hash, content := d.of(one)
	if hash != one.Hash() || content != one.Content() {
		t.Errorf("%s and %s", hash, content)
	}
	beside := registry.View{AppliedIndex: 7, Sweeps: map[proto.MatrixID]*registry.Sweep{"a": {ID: "a"}}} // no log comes to two states at one entry
	if again, _ := d.of(beside); again != hash {
		t.Error("they were taken again at the same entry")
	}
	beside.AppliedIndex = 8
	if next, content := d.of(beside); next != beside.Hash() || content != beside.Content() {
		t.Errorf("the next state: %s and %s", next, content)
	}
}
