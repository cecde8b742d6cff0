package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/fit"
	"github.com/oomfleet/oomfleet/internal/s3server/s3servertest"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/memq"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/dir"
)

func TestMain(m *testing.M) {
	s3servertest.Main()
	goleak.VerifyTestMain(m)
}

// cluster is a registry's log with the coordinators that serve from it. All of
// them have applied all of it.
type cluster struct {
	*testing.T
	queue  *memq.Queue
	traces *trace.Store

	mu      sync.Mutex // guards the rest
	machine *registry.Machine
	index   uint64
	leader  string
	// believes overrides who a node takes for the leader, ages how old it says
	// that it is, and behind whether it has not caught up.
	believes map[string]string
	ages     map[string]time.Duration
	behind   map[string]bool
	watch    api.WatchLimits // of servers that are started
	// changed is closed at the next entry.
	changed chan struct{}
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	q, err := memq.New(memq.Config{})
	if err != nil {
		t.Fatal(err)
	}
	driver, err := dir.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return &cluster{T: t, queue: q, traces: trace.NewStore(driver), machine: registry.New(), leader: "n1", believes: map[string]string{},
		ages: map[string]time.Duration{}, behind: map[string]bool{}, changed: make(chan struct{})}
}

func (c *cluster) believe(node, leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.believes[node] = leader
}

// replica is one node's part.
type replica struct {
	*cluster
	id string
}

func (r replica) Propose(ctx context.Context, cmd registry.Command) (registry.Reply, error) {
	if leader := r.LeaderID(); leader != r.id {
		return registry.Reply{}, &registry.NotLeaderError{Leader: leader}
	}
	cmd.Version = registry.CommandVersion
	text, err := registry.EncodeCommand(cmd) // through the codec, as a log would
	if err != nil {
		return registry.Reply{}, err
	}
	if cmd, err = registry.DecodeCommand(text); err != nil {
		return registry.Reply{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index++
	defer r.wakeLocked()
	return r.machine.Apply(r.index, time.Unix(int64(r.index), 0), cmd), nil
}

func (c *cluster) wakeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (r replica) View() registry.View { return r.machine.View() }

func (r replica) Changed(after uint64) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.machine.View().AppliedIndex > after {
		done := make(chan struct{})
		close(done)
		return done
	}
	return r.changed
}

func (r replica) Consistent(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader != r.id { // the truth, whatever it believes
		return &registry.NotLeaderError{Leader: r.leader}
	}
	return nil
}

func (r replica) Standing() (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ages[r.id], !r.behind[r.id]
}

func (r replica) Restore(_ context.Context, from io.Reader, force bool) (registry.Restored, error) {
	backup, err := registry.ReadBackup(from)
	if err != nil {
		return registry.Restored{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.machine.View()
	if !force && !now.Empty() {
		return registry.Restored{}, registry.ErrNotEmpty
	}
	r.index = max(r.index, backup.AppliedIndex) + 100
	next := backup.Replacing(now, r.index)
	var file bytes.Buffer
	if err := errors.Join(next.WriteSnapshot(&file), r.machine.Restore(&file)); err != nil {
		return registry.Restored{}, err
	}
	r.wakeLocked()
	return registry.Restored{Index: r.index, BackupIndex: backup.AppliedIndex, Cells: len(next.Records), Content: next.Content()}, nil
}

func (r replica) Leadership() (bool, <-chan struct{}) { return r.LeaderID() == r.id, nil }

func (r replica) LeaderID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if leader, ok := r.believes[r.id]; ok {
		return leader
	}
	return r.leader
}

// apply commits a command as the leader.
func (c *cluster) apply(cmd registry.Command) registry.Reply {
	c.Helper()
	reply, err := replica{c, c.leader}.Propose(c.Context(), cmd)
	if err != nil || reply.Refused != "" {
		c.Fatalf("apply: %v %s", err, reply.Refused)
	}
	return reply
}

// serve starts one node's API and makes its address known. wrap may be nil.
func (c *cluster) serve(id string, wrap func(http.Handler) http.Handler) *httptest.Server {
	c.Helper()
	node := replica{c, id}
	service, err := coordinator.New(coordinator.Config{}, coordinator.Deps{Registry: node, Queue: c.queue, Traces: c.traces})
	if err != nil {
		c.Fatal(err)
	}
	handler, err := api.New(api.Deps{ID: id, Version: "v1", Sweeps: service, Registry: node, Traces: c.traces, Agents: c.queue, Imports: service, Watch: c.watch,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "oomfleet_up 1\n") })})
	if err != nil {
		c.Fatal(err)
	}
	if wrap != nil {
		handler = wrap(handler)
	}
	server := httptest.NewServer(handler)
	c.Cleanup(server.Close)
	c.apply(registry.Command{SetMember: &registry.SetMember{Member: registry.Member{ID: id, API: server.URL, CommandVersion: registry.CommandVersion}}})
	return server
}

func (c *cluster) client(servers ...*httptest.Server) *api.Client {
	c.Helper()
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL)
	}
	client, err := api.NewClient(strings.Join(urls, ","))
	if err != nil {
		c.Fatal(err)
	}
	return client
}

// answer is one raw answer.
type answer struct {
	status int
	kind   string // content type
	body   string
}

func (c *cluster) request(method, url, body string) answer {
	c.Helper()
	return c.requestWith(http.Header{}, method, url, body)
}

func (c *cluster) requestWith(header http.Header, method, url, body string) answer {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), method, url, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	req.Header = header
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	got, err := http.DefaultClient.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		c.Fatal(err)
	}
	return answer{got.StatusCode, got.Header.Get("Content-Type"), string(text)}
}

// wantProblem checks that an answer is a Problem and nothing else.
func (a answer) wantProblem(t *testing.T, status int, code, words string) {
	t.Helper()
	var p struct {
		Code    string
		Message string
		Details json.RawMessage
	}
	dec := json.NewDecoder(strings.NewReader(a.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		t.Errorf("%s is no problem: %v", a.body, err)
	}
	if a.status != status || p.Code != code || !strings.Contains(p.Message, words) || a.kind != "application/json" {
		t.Errorf("got %d %s %s, want %d %s with %q", a.status, a.kind, a.body, status, code, words)
	}
}

const card = "NVIDIA H200"

// source is a matrix of the given axes.
func source(lengths, drivers string) string {
	return "apiVersion: oomfleet/v1\nname: test\nworkload: {name: \"mine:run\"}\ntarget: {gpu: \"" + card + "\"}\naxes:\n  seq_len: " +
		lengths + "\n  driver: " + drivers + "\n"
}

func cell(length int, edit ...func(*proto.Cell)) proto.Cell {
	c := proto.Cell{Workload: proto.Workload{Name: "esmfold"}, GPU: card, Driver: "580.1", SeqLen: length, Batch: 1,
		Env: map[string]string{}, QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep}
	for _, e := range edit {
		e(&c)
	}
	return c
}

// addSweep commits a sweep of these cells.
func (c *cluster) addSweep(id proto.MatrixID, origin proto.Origin, cells ...proto.Cell) {
	c.Helper()
	c.apply(registry.Command{AddSweep: &registry.AddSweep{ID: id, Name: string(id), Origin: origin, Cells: cells, Source: "matrix",
		Search: proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges}}})
}

// reserved is the peak of a recording: what the fit is to find again.
func reserved(length, batch int) proto.Bytes {
	l, b := proto.Bytes(length), proto.Bytes(batch)
	return 6*proto.GiB + 3*proto.MiB*b*l + 8*proto.KiB*b*l*l
}

func ptr[T any](v T) *T { return &v }

// record runs the recording of a cell, with a trace of that digest.
func (c *cluster) record(origin proto.Origin, cell proto.Cell, digest proto.Digest) proto.Task {
	c.Helper()
	key := registry.Key{Origin: origin, Cell: cell.ID()}
	view := c.machine.View()
	issued := c.apply(registry.Command{Issue: &registry.Issue{Seen: view.AppliedIndex,
		Requests: []registry.IssueRequest{{Key: key, Kind: proto.TaskRecord, TimeoutSeconds: 60}}}}).Issued
	if len(issued) != 1 {
		c.Fatalf("issued %d tasks", len(issued))
	}
	peak := reserved(cell.SeqLen, cell.Batch)
	c.apply(registry.Command{TakeResult: &registry.TakeResult{Result: proto.Result{Task: issued[0].ID, Protocol: proto.Version, Fence: issued[0].Fence,
		CellID: issued[0].CellID, Origin: origin, Kind: proto.TaskRecord, Agent: "gpu-1", Outcome: proto.OutcomePass,
		Stack: proto.Stack{GPU: cell.GPU, Driver: cell.Driver, CUDA: "13.0", Torch: "2.11.0"},
		Evidence: proto.Evidence{Seconds: 3, Trace: &proto.TraceRef{Digest: digest, Size: 10, Events: 2},
			Meters: proto.Meters{PeakAllocated: ptr(peak - 100*proto.MiB), PeakReserved: ptr(peak), ProcessPeak: ptr(peak + proto.GiB),
				Weights: ptr(6 * proto.GiB), Context: ptr(500 * proto.MiB)}}}}})
	return issued[0]
}

// probe runs a cell under a quota and leaves a trace.
func (c *cluster) probe(origin proto.Origin, cell proto.Cell, quota proto.Bytes, outcome proto.Outcome, digest proto.Digest) {
	c.Helper()
	issued := c.apply(registry.Command{Issue: &registry.Issue{Seen: c.machine.View().AppliedIndex, Requests: []registry.IssueRequest{{
		Key: registry.Key{Origin: origin, Cell: cell.ID()}, Kind: proto.TaskProbe, Quota: quota, TimeoutSeconds: 60}}}}).Issued
	if len(issued) != 1 {
		c.Fatalf("issued %d tasks", len(issued))
	}
	c.apply(registry.Command{TakeResult: &registry.TakeResult{Result: proto.Result{Task: issued[0].ID, Protocol: proto.Version, Fence: issued[0].Fence,
		CellID: issued[0].CellID, Origin: origin, Kind: proto.TaskProbe, Quota: quota, Agent: "gpu-1", Outcome: outcome,
		Stack:    proto.Stack{GPU: cell.GPU, Driver: cell.Driver, CUDA: "13.0", Torch: "2.11.0"},
		Evidence: proto.Evidence{Seconds: 3, Trace: &proto.TraceRef{Digest: digest, Size: 10, Events: 2}}}}})
}

func (c *cluster) settle(origin proto.Origin, cell proto.Cell, s registry.Settlement) {
	c.Helper()
	key := registry.Key{Origin: origin, Cell: cell.ID()}
	if s.Boundary.FailBands == nil {
		s.Boundary.FailBands = []proto.Band{}
	}
	c.apply(registry.Command{Settle: &registry.Settle{Key: key, Settlement: s, Runs: len(c.machine.View().Records[key].Runs)}})
}

// fit commits the coefficients of the recorded cells.
func (c *cluster) fit(origin proto.Origin, cells ...proto.Cell) {
	c.Helper()
	view := c.machine.View()
	var set registry.SetCoefficients
	var points []fit.Point
	var group proto.Group
	for _, cell := range cells {
		r := view.Records[registry.Key{Origin: origin, Cell: cell.ID()}]
		m := r.Recording().Meters
		set.Key, group = registry.GroupOf(r), r.Group()
		set.Evidence = append(set.Evidence, r.Recording().Task)
		points = append(points, fit.Point{SeqLen: cell.SeqLen, Batch: cell.Batch, Allocated: int64(*m.PeakAllocated), Reserved: int64(*m.PeakReserved),
			Process: int64(*m.ProcessPeak), Weights: int64(*m.Weights), Context: int64(*m.Context)})
	}
	models, err := fit.Fit(points, fit.Options{})
	if err != nil {
		c.Fatal(err)
	}
	for _, m := range models {
		text, err := json.Marshal(m)
		if err != nil {
			c.Fatal(err)
		}
		doc := proto.Coefficients{Group: group, QuotaKind: set.Key.QuotaKind, Origin: origin, Target: string(m.Target), Points: m.Points,
			Domain: proto.Domain{SeqLen: m.Domain.SeqLen, Batch: m.Domain.Batch}, Model: text}
		for _, term := range m.Terms {
			doc.Terms = append(doc.Terms, proto.Term(term))
		}
		set.Models = append(set.Models, doc)
	}
	slices.Sort(set.Evidence)
	c.apply(registry.Command{SetCoefficients: &set})
}
