package fleetsim

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

// TestMain looks for coroutines that a history left behind. Histories are small
// and short: collecting garbage less often makes them a third faster.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	goleak.VerifyTestMain(m)
}
