package natsq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/internal/natsserver"
	"github.com/oomfleet/oomfleet/internal/secret"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue"
	"github.com/oomfleet/oomfleet/queue/natsq"
	"github.com/oomfleet/oomfleet/queue/queuetest"
)

// guardedServer is a server with users, and the seeds that they keep.
type guardedServer struct {
	url string
	dir string
}

// seed is where a user's seed lies.
func (g guardedServer) seed(name string) string { return filepath.Join(g.dir, name+".nk") }

// as is how a user connects.
func (g guardedServer) as(name string) natsq.Config {
	return natsq.Config{URL: g.url, Identity: natsq.Identity{NKeyFile: g.seed(name)}, Agent: name != "coordinator"}
}

// guarded runs a server that lets in a coordinator and one agent for each grant.
func guarded(t *testing.T, cfg natsserver.Config, grants map[string]natsq.Grant) guardedServer {
	t.Helper()
	g := guardedServer{dir: t.TempDir()}
	draw := func(name string) string {
		seed, public, err := natsq.NewNKey()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(g.seed(name), []byte(seed.Reveal()+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return public
	}
	users := []natsq.User{natsq.CoordinatorUser(draw("coordinator"))}
	for name, grant := range grants {
		users = append(users, natsq.AgentUser(draw(name), grant))
	}
	draw("stranger") // of whom the server knows nothing
	cfg.UsersFile = filepath.Join(g.dir, "users.conf")
	if err := os.WriteFile(cfg.UsersFile, []byte(natsq.Authorization(users)), 0o600); err != nil {
		t.Fatal(err)
	}
	g.url = server(t, cfg)
	return g
}

// split is a fleet's queue as its parties see it: what an agent does goes over
// the agent's own connection.
type split struct {
	*natsq.Queue // the coordinator's
	agent        *natsq.Queue
}

func (s split) Next(ctx context.Context, pool proto.Pool) (queue.Delivery, error) {
	return s.agent.Next(ctx, pool)
}
func (s split) Report(ctx context.Context, r proto.Result) error { return s.agent.Report(ctx, r) }
func (s split) Announce(ctx context.Context, a proto.AgentInfo, ttl time.Duration) error {
	return s.agent.Announce(ctx, a, ttl)
}
func (s split) Retire(ctx context.Context, id proto.AgentID) error { return s.agent.Retire(ctx, id) }
func (s split) Listen(ctx context.Context, pool proto.Pool, heard func(proto.Control)) error {
	return s.agent.Listen(ctx, pool, heard)
}
func (s split) Close() error { return errors.Join(s.agent.Close(), s.Queue.Close()) }

// TestConformanceWithPermissions runs the whole suite with the agent's part on a
// credential that may do nothing else.
func TestConformanceWithPermissions(t *testing.T) {
	queuetest.Run(t, queuetest.Suite{
		Wrap: func(t *testing.T, test func(*testing.T)) { t.Parallel(); test(t) },
		Start: func(t *testing.T, l queuetest.Limits) func() queue.Queue {
			g := guarded(t, natsserver.Config{MaxPayload: int32(l.MaxMessage)}, map[string]natsq.Grant{"agent": {}})
			return func() queue.Queue {
				both := split{}
				for name, into := range map[string]**natsq.Queue{"coordinator": &both.Queue, "agent": &both.agent} {
					cfg := g.as(name)
					cfg.Lease, cfg.ReportLease, cfg.MaxTasks, cfg.Patience = l.Lease, l.ReportLease, int64(l.MaxTasks), 2*time.Second
					*into = open(t, cfg)
				}
				return both
			}
		},
	})
}

// twoStacks is a fleet of two stacks, "mine" and "theirs", with one agent each.
type twoStacks struct {
	guardedServer
	coordinator  *natsq.Queue
	mine, theirs proto.Task
}

func newTwoStacks(ctx context.Context, t *testing.T) twoStacks {
	t.Helper()
	w := twoStacks{mine: queuetest.NewTask("580.1", 1, 7), theirs: queuetest.NewTask("580.2", 2, 8)}
	w.guardedServer = guarded(t, natsserver.Config{}, map[string]natsq.Grant{
		"mine":   {Pools: []proto.Pool{w.mine.Pool()}, Agent: "gpu-1"},
		"theirs": {Pools: []proto.Pool{w.theirs.Pool()}, Agent: "gpu-2"},
	})
	w.coordinator = open(t, w.as("coordinator"))
	if n, err := w.coordinator.Publish(ctx, []proto.Task{w.mine, w.theirs}); err != nil || n != 2 {
		t.Fatalf("%d published, %v", n, err)
	}
	return w
}

func resultOf(task proto.Task, agent proto.AgentID) proto.Result {
	return proto.Result{Task: task.ID, Protocol: proto.Version, Fence: task.Fence, CellID: task.CellID, Origin: task.Origin,
		Kind: task.Kind, Quota: task.Quota, Agent: agent, Stack: proto.Stack{GPU: task.Cell.GPU, Driver: task.Cell.Driver}, Outcome: proto.OutcomePass}
}

// TestAgentDoesItsOwnWork is what the permissions must leave.
func TestAgentDoesItsOwnWork(t *testing.T) {
	ctx := within(t, patience)
	w := newTwoStacks(ctx, t)
	agent := open(t, w.as("mine"))
	d, err := agent.Next(ctx, w.mine.Pool())
	if err != nil {
		t.Fatal(err)
	}
	if task, err := d.Task(); err != nil || task.ID != w.mine.ID {
		t.Fatalf("%+v, %v", task, err)
	}
	info := proto.AgentInfo{ID: "gpu-1", Stack: proto.Stack{GPU: "NVIDIA H200", Driver: "580.1"}, State: proto.AgentBusy}
	for what, do := range map[string]func() error{
		"extend":   func() error { return d.Extend(ctx) },
		"announce": func() error { return agent.Announce(ctx, info, time.Minute) },
		"report":   func() error { return agent.Report(ctx, resultOf(w.mine, "gpu-1")) },
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := d.Ack(ctx); err != nil {
		t.Error(err)
	}
	if agents, err := w.coordinator.Agents(ctx); err != nil || len(agents) != 1 || agents[0].ID != "gpu-1" {
		t.Errorf("%+v, %v", agents, err)
	}
	report, err := w.coordinator.NextReport(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := report.Result(); err != nil || r.Task != w.mine.ID {
		t.Errorf("%+v, %v", r, err)
	}
	if left, err := w.coordinator.Waiting(ctx); err != nil || len(left) != 1 || !left[w.theirs.ID] {
		t.Errorf("%v, %v", left, err)
	}
	if err := agent.Retire(ctx, "gpu-1"); err != nil {
		t.Error(err)
	}
	if agents, err := w.coordinator.Agents(ctx); err != nil || len(agents) != 0 {
		t.Errorf("retired: %+v, %v", agents, err)
	}
}

// TestCoordinatorReadsStats: a coordinator's own credential is enough for them.
func TestCoordinatorReadsStats(t *testing.T) {
	ctx := within(t, patience)
	w := newTwoStacks(ctx, t)
	if _, err := w.coordinator.Next(ctx, w.mine.Pool()); err != nil {
		t.Fatal(err)
	}
	if st, err := w.coordinator.Stats(ctx); err != nil || st.Tasks != 2 || st.AckPending != 1 || st.MaxAckPending != natsq.DefaultMaxTasks {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestAgentOfAnotherStackIsRefused: pulling, reporting and announcing for
// others ends at once, in a sentence, and nothing of it arrives.
func TestAgentOfAnotherStackIsRefused(t *testing.T) {
	ctx := within(t, patience)
	w := newTwoStacks(ctx, t)
	agent := open(t, w.as("mine"))
	other := resultOf(w.theirs, "gpu-1") // the stack is theirs, the name its own
	name := resultOf(w.mine, "gpu-2")    // the stack is its own, the name theirs
	for what, do := range map[string]func() error{
		"pull":              func() error { _, err := agent.Next(ctx, w.theirs.Pool()); return err },
		"report":            func() error { return agent.Report(ctx, other) },
		"report for others": func() error { return agent.Report(ctx, name) },
		"announce":          func() error { return agent.Announce(ctx, proto.AgentInfo{ID: "gpu-2"}, time.Minute) },
		"retire":            func() error { return agent.Retire(ctx, "gpu-2") },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "this credential may not") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if ctx.Err() != nil {
		t.Fatal("the refusals came too late")
	}
	if n, err := w.coordinator.ReportsPending(ctx); err != nil || n != 0 {
		t.Errorf("%d reports, %v", n, err)
	}
	if left, err := w.coordinator.Waiting(ctx); err != nil || !left[w.theirs.ID] {
		t.Errorf("their task is gone: %v, %v", left, err)
	}
}

// TestLyingResult: within what its subject allows, a credential may still write
// any content; intake is told that it speaks for others.
func TestLyingResult(t *testing.T) {
	ctx := within(t, patience)
	w := newTwoStacks(ctx, t)
	nc := w.raw(t, "mine")
	lies := map[string]proto.Result{"another stack": resultOf(w.theirs, "gpu-1"), "another agent": resultOf(w.mine, "gpu-2")}
	for _, lie := range lies {
		data, err := json.Marshal(lie)
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.Publish("oomfleet.result."+string(w.mine.Pool())+".gpu-1", data); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.FlushWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	for range lies {
		report, err := w.coordinator.NextReport(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := report.Result(); !errors.Is(err, queue.ErrForeign) || r.Task != "" {
			t.Errorf("%+v, %v", r, err)
		}
		if err := report.Ack(ctx); err != nil {
			t.Error(err)
		}
	}
}

// raw is a user's bare connection, as an attacker with its seed has.
func (g guardedServer) raw(t *testing.T, name string) *nats.Conn {
	t.Helper()
	seed, err := secret.ReadFile(g.seed(name))
	if err != nil {
		t.Fatal(err)
	}
	public, err := natsq.PublicNKey(seed)
	if err != nil {
		t.Fatal(err)
	}
	option, err := nats.NkeyOptionFromSeed(g.seed(name))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(g.url, option, nats.CustomInboxPrefix("_INBOX."+public), nats.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// TestStolenCredential tries what someone with an agent's seed and any client
// would: the server answers each with a violation, and nothing changes.
func TestStolenCredential(t *testing.T) {
	ctx := within(t, patience)
	w := newTwoStacks(ctx, t)
	theirs := string(w.theirs.Pool())
	nc := w.raw(t, "mine")
	before := w.state(ctx, t)
	for what, subject := range map[string]string{
		"list streams":            "$JS.API.STREAM.NAMES",
		"read a stream's state":   "$JS.API.STREAM.INFO." + natsq.TasksStream,
		"make a stream":           "$JS.API.STREAM.CREATE.X",
		"change a stream":         "$JS.API.STREAM.UPDATE." + natsq.TasksStream,
		"delete a stream":         "$JS.API.STREAM.DELETE." + natsq.ResultsStream,
		"purge a stream":          "$JS.API.STREAM.PURGE." + natsq.TasksStream,
		"read a stored message":   "$JS.API.STREAM.MSG.GET." + natsq.ResultsStream,
		"read one directly":       "$JS.API.DIRECT.GET." + natsq.ResultsStream,
		"delete a stored message": "$JS.API.STREAM.MSG.DELETE." + natsq.TasksStream,
		"back a stream up":        "$JS.API.STREAM.SNAPSHOT." + natsq.TasksStream,
		"make a consumer":         "$JS.API.CONSUMER.CREATE." + natsq.ResultsStream + ".x",
		"make a durable one":      "$JS.API.CONSUMER.DURABLE.CREATE." + natsq.ResultsStream + ".x",
		"delete its consumer":     "$JS.API.CONSUMER.DELETE." + natsq.TasksStream + ".pool-" + string(w.mine.Pool()),
		"pause its consumer":      "$JS.API.CONSUMER.PAUSE." + natsq.TasksStream + ".pool-" + string(w.mine.Pool()),
		"take reports":            "$JS.API.CONSUMER.MSG.NEXT." + natsq.ResultsStream + ".intake",
		"take their tasks":        "$JS.API.CONSUMER.MSG.NEXT." + natsq.TasksStream + ".pool-" + theirs,
		"ack their tasks":         "$JS.ACK." + natsq.TasksStream + ".pool-" + theirs + ".1.2.1.1.0",
		"ack reports":             "$JS.ACK." + natsq.ResultsStream + ".intake.1.1.1.1.0",
		"ack reports, long form":  "$JS.ACK._.hash." + natsq.ResultsStream + ".intake.1.1.1.1.0.x",
		"publish its own task":    "oomfleet.task." + string(w.mine.Pool()) + ".m-1",
		"publish their task":      "oomfleet.task." + theirs + ".m-1",
		"report as they":          "oomfleet.result." + theirs + ".gpu-2",
		"report without a name":   "oomfleet.result." + theirs,
		"end their runs":          "oomfleet.control." + theirs,
		"end its neighbours' run": "oomfleet.control." + string(w.mine.Pool()),
		"announce as they":        "$KV." + natsq.PresenceBucket + ".gpu-2",
		"ask the system":          "$SYS.REQ.SERVER.PING",
	} {
		t.Run(what, func(t *testing.T) {
			violated := make(chan string, 1)
			nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
				if errors.Is(err, nats.ErrPermissionViolation) {
					violated <- err.Error()
				}
			})
			if err := nc.PublishRequest(subject, nc.NewInbox(), []byte("{}")); err != nil {
				t.Fatal(err)
			}
			select {
			case text := <-violated:
				if !strings.Contains(text, subject) {
					t.Errorf("%s", text)
				}
			case <-ctx.Done():
				t.Error("the server did not refuse")
			}
		})
	}
	for _, subject := range []string{">", "oomfleet.>", "_INBOX.>", "$JS.API.>", "$KV.>", "oomfleet.result." + theirs + ".*", "oomfleet.control." + theirs, "oomfleet.control.*"} {
		t.Run("listen to "+subject, func(t *testing.T) {
			refused := make(chan struct{})
			nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
				if errors.Is(err, nats.ErrPermissionViolation) {
					close(refused)
				}
			})
			sub, err := nc.SubscribeSync(subject)
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Unsubscribe()
			select {
			case <-refused:
			case <-ctx.Done():
				t.Error("the server did not refuse")
			}
		})
	}
	if after := w.state(ctx, t); after != before {
		t.Errorf("was %s\nis  %s", before, after)
	}
}

// state is what lies in the queue, as its operator sees it.
func (w twoStacks) state(ctx context.Context, t *testing.T) string {
	t.Helper()
	js, err := jetstream.New(w.raw(t, "coordinator"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for info := range js.ListStreams(ctx).Info() {
		fmt.Fprintf(&out, "%s %d messages %d consumers last %d; ", info.Config.Name, info.State.Msgs, info.State.Consumers, info.State.LastSeq)
	}
	return out.String()
}

// TestUnsignedClients: nobody gets in without a key that the server knows.
func TestUnsignedClients(t *testing.T) {
	ctx := within(t, patience)
	w := newTwoStacks(ctx, t)
	for name, cfg := range map[string]natsq.Config{
		"no key":      {URL: w.url},
		"password":    {URL: strings.Replace(w.url, "nats://", "nats://admin:admin@", 1)},
		"stranger":    w.as("stranger"),
		"as an agent": {URL: w.url, Agent: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := natsq.Open(ctx, cfg)
			if err == nil || !strings.Contains(err.Error(), "refuses these credentials") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestSeedFileIsRefused(t *testing.T) {
	seed, _, err := natsq.NewNKey()
	if err != nil {
		t.Fatal(err)
	}
	text := seed.Reveal()
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		says string
	}{
		"readable by others": {text, 0o644, "chmod 600"},
		"cut":                {text[:57], 0o600, "no seed"},
		"altered":            {text[:20] + "A" + text[21:56] + "AA", 0o600, "no seed"},
		"an account's":       {"SA" + text[2:], 0o600, "no seed"},
		"empty":              {"", 0o600, "empty"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "seed")
			if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
				t.Fatal(err)
			}
			_, err := natsq.Open(t.Context(), natsq.Config{URL: "nats://127.0.0.1:1", Identity: natsq.Identity{NKeyFile: path}})
			if err == nil || !strings.Contains(err.Error(), c.says) || len(c.text) > 10 && strings.Contains(err.Error(), c.text[2:40]) {
				t.Errorf("got %v, want %q and nothing of the seed", err, c.says)
			}
		})
	}
	both := natsq.Config{URL: "nats://x", Identity: natsq.Identity{NKeyFile: "a", CredsFile: "b"}}
	if err := both.Validate(); err == nil || !strings.Contains(err.Error(), "keep one") {
		t.Errorf("two identities: %v", err)
	}
}

// TestCoordinatorTendsConsumers: an agent may not make or mend its consumer, so
// the coordinators' audit does.
func TestCoordinatorTendsConsumers(t *testing.T) {
	ctx := within(t, patience)
	w := newTwoStacks(ctx, t)
	js, err := jetstream.New(w.raw(t, "coordinator"))
	if err != nil {
		t.Fatal(err)
	}
	durable := "pool-" + string(w.mine.Pool())
	cfg := w.as("mine")
	cfg.Patience = 300 * time.Millisecond
	agent := open(t, cfg)
	audit := func(done <-chan error) {
		t.Helper()
		for {
			if _, err := w.coordinator.Waiting(ctx); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	next := func() <-chan error {
		done := make(chan error, 1)
		go func() { _, err := agent.Next(ctx, w.mine.Pool()); done <- err }()
		return done
	}
	t.Run("removed", func(t *testing.T) {
		if err := js.DeleteConsumer(ctx, natsq.TasksStream, durable); err != nil {
			t.Fatal(err)
		}
		audit(next())
	})
	t.Run("silent", func(t *testing.T) { // one task is held, and no more may be
		more := queuetest.NewTask("580.1", 3, 9)
		cons, err := js.Consumer(ctx, natsq.TasksStream, durable)
		if err != nil {
			t.Fatal(err)
		}
		set := cons.CachedInfo().Config
		set.MaxAckPending = 1
		if _, err := js.UpdateConsumer(ctx, natsq.TasksStream, set); err != nil {
			t.Fatal(err)
		}
		if _, err := w.coordinator.Publish(ctx, []proto.Task{more}); err != nil {
			t.Fatal(err)
		}
		audit(next())
	})
}
