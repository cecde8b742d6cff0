package devfleet

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/oomfleet/oomfleet/agent"
	"github.com/oomfleet/oomfleet/agent/child"
	"github.com/oomfleet/oomfleet/agent/probe"
	"github.com/oomfleet/oomfleet/agent/sim"
	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/natsq"
	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/s3x"
)

// sharedCard is the driver's view of a simulated card on which somebody else has
// memory. Each run waits at a gate until it has been looked at while it lasts.
type sharedCard struct {
	gate string

	mu     sync.Mutex // guards all below
	looks  int        // in this run
	moving bool       // the neighbour takes 2 GiB more after the look before each run
	lost   error
}

func (c *sharedCard) Identify() (probe.Identity, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return probe.Identity{GPU: sim.GPU, Driver: RecordedDriver, UUID: "GPU-5a1e", Total: sim.Total}, c.lost
}

func (c *sharedCard) Sample() (probe.Sample, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost != nil {
		return probe.Sample{}, c.lost
	}
	c.looks++
	neighbour := 20 * proto.GiB
	if c.moving && c.looks > 1 {
		neighbour += 2 * proto.GiB
	}
	if c.looks > 3 { // before the run, and in it
		if gate, err := os.OpenFile(c.gate, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			gate.Close() // the run waited there, and goes on
		}
	}
	return probe.Sample{Used: neighbour, Free: sim.Total - neighbour, Total: sim.Total,
		Processes: []probe.Process{{PID: 1, Used: &neighbour}}}, nil
}

func (c *sharedCard) set(change func(*sharedCard)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// watchedProber tells its card where a run begins.
type watchedProber struct {
	*child.Prober
	card *sharedCard
}

func (p watchedProber) Run(ctx context.Context, task proto.Task) (probe.Observation, error) {
	p.card.set(func(c *sharedCard) { c.looks = 0 })
	return p.Prober.Run(ctx, task)
}

// heardQueue passes on what the agent reports, when it was taken.
type heardQueue struct {
	*natsq.Queue
	heard chan proto.Result
}

func (q heardQueue) Report(ctx context.Context, r proto.Result) error {
	err := q.Queue.Report(ctx, r)
	if err == nil {
		q.heard <- r
	}
	return err
}

// cardAgent is ownAgent with a card of which only what the driver says is not
// simulated.
func (w *world) cardAgent(card *sharedCard) <-chan proto.Result {
	w.t.Helper()
	results, _ := w.ownAgent(sim.Fault("slow="+card.gate), card, func(p *child.Prober) agent.Prober { return watchedProber{p, card} })
	return results
}

// ownAgent runs an agent in this process, in the place of the fleet's first: its
// runs are real processes. What it reports is returned, and what it logs. A nil
// meter leaves the card to the simulated runner.
func (w *world) ownAgent(fault sim.Fault, meter child.Meter, watch func(*child.Prober) agent.Prober) (<-chan proto.Result, *lines) {
	w.t.Helper()
	w.down(agentName(0))
	said := newLines()
	log := slog.New(slog.NewTextHandler(said, nil))
	keys := map[string]string{}
	for _, pair := range w.keys {
		name, value, _ := strings.Cut(pair, "=")
		keys[name] = value
	}
	store, err := s3x.New(s3x.Config{URL: w.conf.Traces.URL, Bucket: w.conf.Traces.Bucket, Region: w.conf.Traces.Region,
		AccessKey: keys["OOMFLEET_S3_ACCESS_KEY"], SecretKey: keys["OOMFLEET_S3_SECRET_KEY"]})
	if err != nil {
		w.t.Fatal(err)
	}
	q, err := natsq.Open(w.t.Context(), natsq.Config{URL: w.conf.Queue.URL, Name: "agent", Lease: w.conf.Queue.Lease, Agent: true,
		Identity: natsq.Identity{NKeyFile: w.keyFile(agentName(0) + ".nk")}, Log: log})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { q.Close() })
	flags := sim.Config{Driver: RecordedDriver, Fault: fault}.Flags()
	prober, err := child.New(child.Config{Guard: []string{w.program, "internal", "guard"}, Meter: meter, Log: log,
		Command: append([]string{w.program, "internal", "simrunner"}, flags...), Timing: child.Timing{Sample: 5 * time.Millisecond}})
	if err != nil {
		w.t.Fatal(err)
	}
	heard := heardQueue{q, make(chan proto.Result, 1000)}
	service, err := agent.New(agent.Config{WorkDir: w.t.TempDir(), Host: "host-1", PID: os.Getpid(),
		Pause: 100 * time.Millisecond, LongestPause: time.Second, LookAgain: time.Second},
		agent.Deps{Queue: heard, Prober: watch(prober), Traces: trace.NewStore(store).WithClock(time.Now), Log: log, Metrics: prometheus.NewRegistry()})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, prober.Close()); err != nil || w.t.Failed() {
			w.t.Errorf("the agent ended with %v, and said\n%s", err, said)
		}
	})
	return heard.heard, said
}

// TestCardIsNotOurs: runs in which a neighbour moves the card's memory are void and
// are made again, and a card that is lost shows in the list of agents, with the
// reason; the boundary is the one of a card that nobody else was on.
func TestCardIsNotOurs(t *testing.T) {
	t.Parallel()
	w := start(t, Config{Agents: 1})
	card := &sharedCard{gate: filepath.Join(t.TempDir(), "gate"), moving: true}
	if err := syscall.Mkfifo(card.gate, 0o600); err != nil {
		t.Fatal(err)
	}
	results := w.cardAgent(card)
	next := func() proto.Result {
		t.Helper()
		select {
		case r := <-results:
			return r
		case <-time.After(patience):
			t.Fatal("the agent reports nothing")
		}
		panic("unreachable")
	}
	file := filepath.Join(t.TempDir(), "device.yaml")
	text := "apiVersion: oomfleet/v1\nname: device\nworkload: {name: esmfold}\ntarget: {gpu: NVIDIA H200}\nquota: {kind: device}\n" +
		"axes: {seq_len: [128], batch: [1], driver: [" + RecordedDriver + "]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	id := ask[coordinator.SubmitReply](w, "matrix", "submit", file, "--origin", "simulated").Matrix.ID
	first := next()
	second := next()
	for _, r := range []proto.Result{first, second} {
		if r.Outcome != proto.OutcomeCrowded || r.Evidence.NeighbourMoved != 2*proto.GiB || r.Evidence.Neighbours != 1 {
			t.Errorf("%s with %d neighbours that moved %d bytes", r.Outcome, r.Evidence.Neighbours, r.Evidence.NeighbourMoved)
		}
	}
	if r, err := w.client().Sweep(t.Context(), id); err != nil || r.Counts.Settled() != 0 {
		t.Errorf("void runs settled something: %+v, %v", r.Counts, err)
	}
	card.set(func(c *sharedCard) { c.moving = false })
	for r := next(); r.Outcome == proto.OutcomeCrowded; r = next() { // those that had begun
	}
	card.set(func(c *sharedCard) {
		c.lost = errors.New("the card GPU-5a1e has fallen off the bus: reset it or reboot the host")
	})
	var s said
	await(t, "the list of agents says that the card is lost, and why", func() bool {
		s = w.cli("agents", "list")
		return strings.Contains(strings.Join(strings.Fields(s.out), " "), "is quarantined: read the card: the card GPU-5a1e has fallen off the bus: reset it or reboot the host")
	})
	card.set(func(c *sharedCard) { c.lost = nil })
	report := w.finish(id)
	s = command(t, w.program, nil, "trace", "boundary", "../../agent/sim/traces/L128_B1.parquet", "--cap-kind", "device", "--json")
	var want proto.Boundary
	if err := json.Unmarshal([]byte(s.out), &want); err != nil || want.Boundary == 0 {
		t.Fatal(err, s.errors)
	}
	if report.Counts.Failed != 0 || len(report.Cells) != 1 || report.Cells[0].Boundary.Boundary != want.Boundary {
		t.Errorf("the boundary is %+v, want %d", report.Cells, want.Boundary)
	}
}
