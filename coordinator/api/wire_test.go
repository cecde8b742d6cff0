package api_test

import (
	"testing"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/internal/wiretest"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

var _ = wiretest.Flag()

// TestWire: the documents that clients of other versions ask for and send.
func TestWire(t *testing.T) {
	w := wiretest.Words{}
	wiretest.Word(w, proto.OutcomeOOMQuota)
	wiretest.Word(w, proto.TaskProbe)
	wiretest.Word(w, proto.OriginSimulated)
	wiretest.Word(w, proto.QuotaAllocator)
	wiretest.Word(w, proto.CellCertified)
	wiretest.Word(w, proto.AgentBusy)
	wiretest.Check(t, []wiretest.Document{
		wiretest.Lenient[api.Submission]("submission.json", w),
		wiretest.Lenient[coordinator.SubmitReply]("submit_reply.json", w),
		wiretest.Lenient[api.Repetition]("repetition.json", w),
		wiretest.Lenient[api.SweepList]("sweeps.json", w),
		wiretest.Lenient[api.SweepReport]("sweep.json", w),
		wiretest.Lenient[api.Cancelled]("cancelled.json", w),
		wiretest.Lenient[api.Status]("status.json", w),
		wiretest.Lenient[api.AgentList]("agents.json", w),
		wiretest.Lenient[api.Drain]("drain.json", w),
		wiretest.Lenient[api.Drained]("drained.json", w),
		wiretest.Lenient[api.Collect]("collect.json", w),
		wiretest.Lenient[coordinator.Collection]("collection.json", w),
		wiretest.Lenient[api.TraceList]("traces.json", w),
		wiretest.Lenient[api.CoefficientList]("coefficients.json", w),
		wiretest.Lenient[api.BoundaryList]("boundaries.json", w),
		wiretest.Lenient[api.ProgramList]("programs.json", w),
		wiretest.Lenient[api.Import]("import.json", w),
		wiretest.Lenient[coordinator.ImportReply]("import_reply.json", w),
		wiretest.Lenient[registry.Restored]("restored.json", w),
		wiretest.Lenient[api.Problem]("problem.json", w),
	})
}
