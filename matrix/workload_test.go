package matrix

import (
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/agent/runner"
)

// TestCheckCannotBeNamed: the run that an agent makes to look at its card is no
// workload of a cell.
func TestCheckCannotBeNamed(t *testing.T) {
	text := "apiVersion: oomfleet/v1\nname: test\nworkload: {name: " + runner.WorkloadCheck + "}\naxes: {seq_len: 128}\n"
	if _, err := Parse([]byte(text), Options{}); err == nil || !strings.Contains(err.Error(), "is neither esmfold nor module:function") {
		t.Errorf("got %v", err)
	}
}
