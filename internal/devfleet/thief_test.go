package devfleet

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/internal/secret"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/natsq"
)

// connect is a bare client with the seed of one of the fleet's users.
func (w *world) connect(name string) *nats.Conn {
	w.t.Helper()
	seed, err := secret.ReadFile(w.keyFile(name + ".nk"))
	if err != nil {
		w.t.Fatal(err)
	}
	public, err := natsq.PublicNKey(seed)
	if err != nil {
		w.t.Fatal(err)
	}
	option, err := nats.NkeyOptionFromSeed(w.keyFile(name + ".nk"))
	if err != nil {
		w.t.Fatal(err)
	}
	nc, err := nats.Connect(w.conf.Queue.URL, option, nats.CustomInboxPrefix("_INBOX."+public), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	return nc
}

// openTasks are the tasks of a pool that lie in the queue, as its operator sees them.
func (w *world) openTasks(pool proto.Pool) map[string]proto.Task {
	w.t.Helper()
	js, err := jetstream.New(w.connect("coordinator"))
	if err != nil {
		w.t.Fatal(err)
	}
	stream, err := js.Stream(w.t.Context(), natsq.TasksStream)
	if err != nil {
		w.t.Fatal(err)
	}
	info, err := stream.Info(w.t.Context(), jetstream.WithSubjectFilter("oomfleet.task."+string(pool)+".*"))
	if err != nil {
		w.t.Fatal(err)
	}
	tasks := map[string]proto.Task{}
	for subject := range info.State.Subjects {
		msg, err := stream.GetLastMsgForSubject(w.t.Context(), subject)
		if err != nil {
			w.t.Fatal(err)
		}
		tasks[subject] = decode[proto.Task](w.t, string(msg.Data))
	}
	return tasks
}

// TestThiefOverwritesNothing: whoever stole the credential of one stack's agent and
// knows every open task of the other, fence and all, changes no boundary of it:
// not under that stack's subject, not under its own with the other's name or with
// its own, and not by pulling, acking, moving or clearing its tasks.
func TestThiefOverwritesNothing(t *testing.T) {
	w := start(t, Config{})
	id := w.submit()
	w.running(w.cfg.Agents)
	mine, err := w.grant(0)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := w.grant(1)
	if err != nil {
		t.Fatal(err)
	}
	tasks := w.openTasks(theirs.Pools[0])
	if len(tasks) == 0 {
		t.Fatal("there is nothing to steal")
	}
	nc := w.connect("agent-0")
	say := func(subject string, body any) {
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.PublishRequest(subject, nc.NewInbox(), data); err != nil {
			t.Fatal(err)
		}
	}
	own := "oomfleet.result." + string(mine.Pools[0]) + "." + string(mine.Agent)
	stack := func(driver string) proto.Stack { return proto.Stack{GPU: "NVIDIA H200", Driver: driver} }
	lies := 0
	for _, subject := range slices.Sorted(maps.Keys(tasks)) {
		task := tasks[subject]
		for _, outcome := range []proto.Outcome{proto.OutcomePass, proto.OutcomeOOMQuota, proto.OutcomeBadCell} {
			r := proto.Result{Task: task.ID, Protocol: proto.Version, Fence: task.Fence, CellID: task.CellID, Origin: task.Origin, Kind: task.Kind,
				Quota: task.Quota, Agent: theirs.Agent, Stack: stack(task.Cell.Driver), Outcome: outcome, Why: "stolen"}
			say("oomfleet.result."+string(theirs.Pools[0])+"."+string(theirs.Agent), r) // as they
			say(own, r)                                                                 // as they, from here
			r.Agent = mine.Agent
			say(own, r) // their stack, this name
			r.Stack = stack(RecordedDriver)
			say(own, r) // this stack, their task
			lies += 3
		}
		say(subject, task)
		say("$JS.API.CONSUMER.MSG.NEXT."+natsq.TasksStream+".pool-"+string(theirs.Pools[0]), map[string]any{"batch": 10})
		say("$JS.ACK."+natsq.TasksStream+".pool-"+string(theirs.Pools[0])+".1.1.1.1.0", "+TERM")
	}
	say("$JS.API.STREAM.PURGE."+natsq.TasksStream, map[string]string{"filter": "oomfleet.task." + string(theirs.Pools[0]) + ".>"})
	say("$JS.API.STREAM.DELETE."+natsq.ResultsStream, struct{}{})
	if err := nc.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	keptOut := func() (n int) {
		for _, text := range w.logs() {
			n += strings.Count(text, "kept out")
		}
		return n
	}
	await(t, "every lie that the server lets through is kept out", func() bool { return keptOut() >= lies })
	now := w.openTasks(theirs.Pools[0])
	for subject, task := range tasks {
		if still, ok := now[subject]; !ok || still.Fence != task.Fence {
			t.Errorf("their task %s is gone or another", subject)
		}
	}
	if why := differ(undisturbedReport(t), w.finish(id)); why != "" {
		t.Errorf("the thief changed what comes out: %s", why)
	}
}
