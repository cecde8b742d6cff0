package proto_test

import (
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

// TestTaskErrorsAreShort: what a queue delivers is repeated in part only, since
// the sentence goes to logs.
func TestTaskErrorsAreShort(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	task := proto.Task{Protocol: proto.Version, ID: "t", Fence: 1, Kind: proto.TaskKind(long), CellID: proto.CellID(long), TimeoutSeconds: 1}
	task.Cell.QuotaKind = proto.QuotaKind(long)
	err := task.Validate()
	if err == nil || !strings.Contains(err.Error(), `unknown kind "xxx`) || len(err.Error()) > 1000 {
		t.Errorf("%.300v", err)
	}
}
