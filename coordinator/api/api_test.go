package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

func TestSweeps(t *testing.T) {
	c := newCluster(t)
	client := c.client(c.serve("n1", nil))
	ctx := t.Context()
	sub := api.Submission{Source: source("[64, 66]", "580.1"), Set: []string{"axes.batch=1,2"}, Origin: proto.OriginMeasured}
	reply, err := client.Submit(ctx, sub)
	if err != nil {
		t.Fatal(err)
	}
	if reply.New != 4 || reply.Matrix.Name != "test" || reply.Index != c.machine.View().AppliedIndex {
		t.Errorf("submitted: %+v", reply)
	}
	if kept := c.machine.View().Sweeps[reply.Matrix.ID]; kept == nil || kept.Source != sub.Source || !slices.Equal(kept.Set, sub.Set) {
		t.Errorf("kept: %+v", kept)
	}
	if again, err := client.Submit(ctx, sub); err != nil || again.Matrix != reply.Matrix || again.Known != 4 {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	sub.Again = true
	if again, err := client.Submit(ctx, sub); err != nil || again.Matrix.ID != reply.Matrix.ID+"-2" {
		t.Errorf("as a sweep of its own: %+v, %v", again, err)
	}
	list, err := client.Sweeps(ctx)
	if err != nil || len(list.Sweeps) != 2 || list.Sweeps[1].Matrix != reply.Matrix || list.Role != "leader" || list.AppliedIndex == 0 {
		t.Errorf("list: %+v, %v", list, err)
	}
	report, err := client.Sweep(ctx, reply.Matrix.ID)
	if err != nil || report.Matrix != reply.Matrix || report.State != "running" || report.Counts.Pending != 4 || len(report.Cells) != 4 ||
		report.Role != "leader" || report.AppliedIndex != list.AppliedIndex || report.Origin != proto.OriginMeasured {
		t.Errorf("report: %+v, %v", report, err)
	}
	for _, id := range []proto.MatrixID{reply.Matrix.ID, reply.Matrix.ID + "-2"} {
		if done, err := client.Cancel(ctx, id); err != nil || done.ID != id || done.Closed != 0 {
			t.Errorf("cancel: %+v, %v", done, err)
		}
	}
	if report, err := client.Sweep(ctx, reply.Matrix.ID); err != nil || report.State != "cancelled" || report.Counts.Cancelled != 4 {
		t.Errorf("cancelled: %+v, %v", report, err)
	}
}

func TestBadMatrix(t *testing.T) {
	c := newCluster(t)
	client := c.client(c.serve("n1", nil))
	text := source("[64, 0]", "580.1") + "colour: red\n"
	_, err := client.Submit(t.Context(), api.Submission{Source: text, Origin: proto.OriginMeasured})
	var p *api.Problem
	if !errors.As(err, &p) || p.Code != api.CodeBadMatrix || p.GetStatus() != http.StatusUnprocessableEntity {
		t.Fatalf("got %v", err)
	}
	lines := map[int]string{}
	for _, d := range p.Details {
		lines[d.Line] = d.Message
	}
	if len(p.Details) != 2 || lines[6] == "" || !strings.Contains(lines[8], "colour") {
		t.Errorf("problems %+v", p.Details)
	}
	if n := len(c.machine.View().Sweeps); n != 0 {
		t.Errorf("%d sweeps were made of it", n)
	}
}

// TestProblems: every refusal has a code, a sentence and the same form, whoever
// refuses.
func TestProblems(t *testing.T) {
	c := newCluster(t)
	leader, follower := c.serve("n1", nil), c.serve("n2", nil)
	c.addSweep("known", proto.OriginMeasured, cell(64))
	large := `{"source": "` + strings.Repeat("x", 5<<20) + `", "origin": "measured"}`
	for _, tt := range []struct {
		method, path, body string
		status             int
		code, words        string
	}{
		{"GET", "/v1/sweeps/none", "", 404, api.CodeNotFound, "no such sweep"},
		{"POST", "/v1/sweeps/none/cancel", "", 404, api.CodeNotFound, "no such sweep"},
		{"POST", "/v1/sweeps/no%2Fne%3F/cancel", "", 404, api.CodeNotFound, "no such sweep"},
		{"GET", "/v1/traces?sweep=none", "", 404, api.CodeNotFound, "no such sweep"},
		{"GET", "/v1/traces/../../etc", "", 404, "", ""},
		{"GET", "/v1/traces/DEADBEEF", "", 400, api.CodeBadRequest, "64 lower-case"},
		{"GET", "/v1/traces/" + strings.Repeat("0", 64), "", 404, api.CodeNotFound, "no such trace"},
		{"GET", "/v1/quota", "", 422, api.CodeBadRequest, "query.seq_len"},
		{"GET", "/v1/quota?seq_len=abc", "", 422, api.CodeBadRequest, "query.seq_len"},
		{"GET", "/v1/quota?seq_len=0", "", 422, api.CodeBadRequest, "query.seq_len"},
		{"GET", "/v1/quota?seq_len=1&env=NOVALUE", "", 400, api.CodeBadRequest, `env takes KEY=VALUE, not "NOVALUE"`},
		{"GET", "/v1/quota?seq_len=1&param=%3Dx", "", 400, api.CodeBadRequest, `param takes KEY=VALUE, not "=x"`},
		{"GET", "/v1/quota?seq_len=1&quota_kind=soft", "", 422, api.CodeBadRequest, "query.quota_kind"},
		{"GET", "/v1/coefficients?origin=guessed", "", 422, api.CodeBadRequest, "query.origin"},
		{"POST", "/v1/sweeps", "no JSON", 400, api.CodeBadRequest, ""},
		{"POST", "/v1/sweeps", `{"source": "x"}`, 422, api.CodeBadRequest, "origin"},
		{"POST", "/v1/sweeps", `{"source": "x", "origin": "imported"}`, 422, api.CodeBadRequest, "body.origin"},
		{"POST", "/v1/sweeps", `{"source": "x", "origin": "measured", "sets": []}`, 422, api.CodeBadRequest, "body.sets"},
		{"POST", "/v1/sweeps", large, 413, api.CodeBadRequest, "large"},
	} {
		for name, server := range map[string]*httptest.Server{"leader": leader, "follower": follower} {
			short := tt.path + " " + tt.body[:min(len(tt.body), 60)]
			t.Run(name+" "+tt.method+" "+short, func(t *testing.T) {
				got := c.request(tt.method, server.URL+tt.path, tt.body)
				if tt.code == "" {
					if got.status != tt.status {
						t.Errorf("status %d", got.status)
					}
					return
				}
				got.wantProblem(t, tt.status, tt.code, tt.words)
			})
		}
	}
	if n := len(c.machine.View().Sweeps); n != 1 {
		t.Errorf("%d sweeps", n)
	}
}

// down is a part of the fleet that cannot be reached.
type down struct{ api.Deps }

func (down) Agents(context.Context) ([]proto.AgentInfo, error) {
	return nil, errors.New("dial tcp 10.1.2.3:4222: secret detail")
}

func (down) Open(context.Context, proto.Digest) (io.ReadCloser, proto.Bytes, error) {
	return nil, 0, errors.New("access key AKIA is not known")
}

func (down) GetTrace(context.Context, proto.Digest) ([]allocator.Event, trace.Meta, error) {
	return nil, trace.Meta{}, errors.New("access key AKIA is not known")
}

func (down) GetProgram(context.Context, proto.Digest) ([]byte, error) {
	return nil, errors.New("access key AKIA is not known")
}

func TestInternalsStayInside(t *testing.T) {
	c := newCluster(t)
	handler, err := api.New(api.Deps{ID: "n1", Sweeps: nothing{}, Registry: replica{c, "n1"}, Traces: down{}, Agents: down{}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	for path, part := range map[string]string{"/v1/agents": "the queue (NATS)", "/v1/traces/" + strings.Repeat("a", 64): "the trace store"} {
		got := c.request("GET", server.URL+path, "")
		got.wantProblem(t, 503, api.CodeUnavailable, part+" cannot be reached")
		got.wantProblem(t, 503, api.CodeUnavailable, "the coordinator's log")
		if strings.Contains(got.body, "secret") || strings.Contains(got.body, "AKIA") {
			t.Errorf("%s: %s", path, got.body)
		}
	}
}

// noNulls fails for every null in a document.
func noNulls(t *testing.T, path string, v any) {
	t.Helper()
	switch v := v.(type) {
	case nil:
		t.Errorf("%s is null", path)
	case map[string]any:
		for name, x := range v {
			noNulls(t, path+"."+name, x)
		}
	case []any:
		for i, x := range v {
			noNulls(t, fmt.Sprintf("%s[%d]", path, i), x)
		}
	}
}

func TestNoNulls(t *testing.T) {
	c := newCluster(t)
	server := c.serve("n1", nil)
	check := func(path string, filled ...string) {
		t.Helper()
		got := c.request("GET", server.URL+path, "")
		var doc any
		if err := json.Unmarshal([]byte(got.body), &doc); err != nil || got.status != 200 || got.kind != "application/json" {
			t.Fatalf("%s: %d %s: %v", path, got.status, got.body, err)
		}
		noNulls(t, path, doc)
		for _, name := range filled {
			if !strings.Contains(got.body, name) {
				t.Errorf("%s lacks %s: %s", path, name, got.body)
			}
		}
	}
	check("/v1/sweeps", `"sweeps":[]`)
	check("/v1/agents", `"agents":[]`)
	check("/v1/traces", `"traces":[]`)
	check("/v1/coefficients", `"coefficients":[]`)
	check("/v1/status", `"members":[{`)

	cells := []proto.Cell{cell(64), cell(128), cell(192), cell(256)}
	for i := range cells {
		cells[i].Env = nil
	}
	c.addSweep("s", proto.OriginMeasured, cells...)
	check("/v1/sweeps/s", `"coefficients":[]`, `"env":{}`, `"fail_bands":[]`)
	for i, cell := range cells {
		c.record(proto.OriginMeasured, cell, proto.Digest(strings.Repeat(fmt.Sprint(i), 64)))
	}
	c.settle(proto.OriginMeasured, cells[0], registry.Settlement{State: proto.CellCertified, Boundary: proto.Boundary{Boundary: proto.GiB, BandsKnown: true}})
	c.settle(proto.OriginMeasured, cells[1], registry.Settlement{State: proto.CellFailed, Reason: "crashed"})
	c.fit(proto.OriginMeasured, cells...)
	if err := c.queue.Announce(t.Context(), proto.AgentInfo{ID: "gpu-1"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	check("/v1/sweeps", `"sweeps":[{`)
	check("/v1/sweeps/s", `"coefficients":[{`, `"env":{}`, `"fail_bands":[]`)
	check("/v1/agents", `"id":"gpu-1"`, `"quota_kinds":[]`)
	check("/v1/traces", `"traces":[{`, `"env":{}`)
	check("/v1/traces?sweep=s", `"traces":[{`)
	check("/v1/coefficients", `"coefficients":[{`, `"terms":[{`)
	check("/v1/quota?seq_len=64", `"basis":"boundary"`)
	check("/v1/quota?seq_len=200", `"basis":"coefficients"`)
}

func TestOpenAPI(t *testing.T) {
	c := newCluster(t)
	server := c.serve("n1", nil)
	got := c.request("GET", server.URL+"/openapi.json", "")
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Parameters  []struct{ Name, In string }
			Responses   map[string]struct {
				Content map[string]struct {
					Schema struct {
						Ref string `json:"$ref"`
					}
				}
			}
		}
		Components struct{ Schemas map[string]json.RawMessage }
	}
	if err := json.Unmarshal([]byte(got.body), &doc); err != nil || got.status != 200 {
		t.Fatalf("%d: %v", got.status, err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("version %s", doc.OpenAPI)
	}
	want := strings.Fields("/healthz /metrics /readyz /v1/agents /v1/agents/{id}/drain /v1/backup /v1/boundaries /v1/boundaries/{cell}/history /v1/cluster /v1/cluster/join /v1/cluster/remove /v1/coefficients " +
		"/v1/coefficients/history /v1/compare /v1/programs /v1/quota /v1/quota/compare /v1/quota/max-batch /v1/quota/max-seq-len /v1/quota/replicas " +
		"/v1/restore /v1/status /v1/sweeps /v1/sweeps/{id} /v1/sweeps/{id}/cancel /v1/sweeps/{id}/repeat /v1/traces /v1/traces/collect /v1/traces/{digest} /v1/traces/{digest}/url /v1/watch")
	if paths := slices.Sorted(maps.Keys(doc.Paths)); !slices.Equal(paths, want) {
		t.Errorf("paths %v, want %v", paths, want)
	}
	for path, ops := range doc.Paths {
		for method, op := range ops {
			if ref := op.Responses["default"].Content["application/json"].Schema.Ref; ref != "#/components/schemas/Problem" {
				t.Errorf("%s %s: an error is %q", method, path, ref)
			}
			// What is named is there: the mux itself answers in plain text.
			url := server.URL + strings.NewReplacer("{id}", "none", "{cell}", "none", "{digest}", strings.Repeat("0", 64)).Replace(path)
			if path == "/v1/watch" {
				url += "?kinds=none" // else it has no end
			}
			if got := c.request(strings.ToUpper(method), url, ""); strings.Contains(got.body, "no such path") || got.status == 405 {
				t.Errorf("%s %s: %d %s", method, path, got.status, got.body)
			}
		}
	}
	if !strings.Contains(string(doc.Components.Schemas["Problem"]), `"code"`) {
		t.Errorf("schema of a problem: %s", doc.Components.Schemas["Problem"])
	}
	var parameters []string
	for _, p := range doc.Paths["/v1/quota"]["get"].Parameters {
		parameters = append(parameters, p.Name)
	}
	for _, name := range []string{"seq_len", "env", "param"} {
		if !slices.Contains(parameters, name) {
			t.Errorf("quota has parameters %v, not %s", parameters, name)
		}
	}
}

func TestHealthAndMetrics(t *testing.T) {
	c := newCluster(t)
	server := c.serve("n1", nil)
	if got := c.request("GET", server.URL+"/healthz", ""); got.status != 200 || got.body != "ok\n" {
		t.Errorf("%+v", got)
	}
	if got := c.request("GET", server.URL+"/metrics", ""); got.status != 200 || got.body != "oomfleet_up 1\n" {
		t.Errorf("%+v", got)
	}
}

func TestStatus(t *testing.T) {
	c := newCluster(t)
	leader, follower := c.serve("n1", nil), c.serve("n2", nil)
	for server, want := range map[*httptest.Server]string{leader: "n1 leader", follower: "n2 follower"} {
		s, err := c.client(server).Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.ID+" "+s.Role != want || s.Leader != "n1" || s.Version != "v1" || s.AppliedIndex != 2 || s.Hash != c.machine.Hash() ||
			len(s.Members) != 2 || s.Members[0].API != leader.URL || s.Members[1].ID != "n2" {
			t.Errorf("%+v", s)
		}
	}
}

// troubled is a service that cannot use the queue.
type troubled struct {
	api.Sweeps
	now []coordinator.Trouble
}

func (s troubled) Troubles() []coordinator.Trouble { return s.now }

// TestStatusShowsTroubles: what the leader cannot use, whichever coordinator is
// asked for the leader's status, and no hash that nobody asked for.
func TestStatusShowsTroubles(t *testing.T) {
	c := newCluster(t)
	want := []coordinator.Trouble{{Part: coordinator.PartQueue, Since: time.Unix(1, 0).UTC(), Last: time.Unix(2, 0).UTC(), Message: "it takes nothing more"}}
	handler, err := api.New(api.Deps{ID: "n1", Sweeps: troubled{now: want}, Registry: replica{c, "n1"}, Traces: c.traces, Agents: c.queue})
	if err != nil {
		t.Fatal(err)
	}
	leader := httptest.NewServer(handler)
	t.Cleanup(leader.Close)
	c.apply(registry.Command{SetMember: &registry.SetMember{Member: registry.Member{ID: "n1", API: leader.URL, CommandVersion: registry.CommandVersion}}})
	follower := c.client(c.serve("n2", nil))
	s, err := follower.LeaderStatus(t.Context())
	if err != nil || s.ID != "n1" || !slices.Equal(s.Troubles, want) || s.Hash != "" || s.Content != "" {
		t.Errorf("of the leader: %+v, %v", s, err)
	}
	if s, err := follower.Status(t.Context()); err != nil || s.ID != "n2" || len(s.Troubles) > 0 || s.Hash == "" {
		t.Errorf("of a follower: %+v, %v", s, err)
	}
	c.believe("n2", "")
	var p *api.Problem
	if _, err := follower.LeaderStatus(t.Context()); !errors.As(err, &p) || p.Code != api.CodeNoLeader {
		t.Errorf("without a leader: %v", err)
	}
}

// hasty is a connection that notes the deadline of what is written.
type hasty struct {
	http.ResponseWriter
	until time.Time
}

func (w *hasty) SetWriteDeadline(at time.Time) error {
	w.until = at
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(at)
}

func (w *hasty) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestAnswersHaveDeadlines: whoever stops reading keeps no connection for ever,
// whatever was asked for.
func TestAnswersHaveDeadlines(t *testing.T) {
	c := newCluster(t)
	until := make(chan time.Time, 1)
	server := c.serve("n1", func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			noted := &hasty{ResponseWriter: w}
			h.ServeHTTP(noted, r)
			until <- noted.until
		})
	})
	ref, err := c.traces.PutTrace(t.Context(), []allocator.Event{{Action: allocator.SegmentAlloc, Addr: 1 << 21, Size: 1 << 21}}, trace.Meta{Cell: cell(64)})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/traces/" + string(ref.Digest), "/v1/backup", "/v1/boundaries", "/v1/nothing", "/metrics"} {
		begin := time.Now()
		c.request("GET", server.URL+path, "")
		if at := <-until; at.Before(begin.Add(time.Minute)) {
			t.Errorf("%s has to be read until %s, now is %s", path, at, begin)
		}
	}
}

func TestTraces(t *testing.T) {
	c := newCluster(t)
	client := c.client(c.serve("n1", nil))
	a, b := cell(64), cell(128)
	c.addSweep("one", proto.OriginMeasured, a)
	c.addSweep("two", proto.OriginMeasured, a, b)
	events := []allocator.Event{{Action: allocator.SegmentAlloc, Addr: 1 << 21, Size: 1 << 21}, {Action: allocator.Alloc, Addr: 1 << 21, Size: 512}}
	ref, err := c.traces.PutTrace(t.Context(), events, trace.Meta{Cell: b})
	if err != nil {
		t.Fatal(err)
	}
	c.record(proto.OriginMeasured, b, ref.Digest)
	for sweep, want := range map[proto.MatrixID]int{"": 1, "one": 0, "two": 1} {
		list, err := client.Traces(t.Context(), sweep)
		if err != nil || len(list.Traces) != want {
			t.Errorf("of sweep %q: %+v, %v", sweep, list, err)
		}
		for _, e := range list.Traces {
			if e.Ref.Digest != ref.Digest || e.CellID != b.ID() || e.Cell.SeqLen != 128 || e.Origin != proto.OriginMeasured || e.Agent != "gpu-1" {
				t.Errorf("%+v", e)
			}
		}
	}
	for _, q := range []proto.Bytes{12 * proto.GiB, 10 * proto.GiB} { // two probes that spoke against a prediction
		c.probe(proto.OriginMeasured, b, q, proto.OutcomeOOMQuota, ref.Digest)
	}
	list, err := client.Traces(t.Context(), "two")
	if err != nil || len(list.Traces) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	for i, want := range []proto.Bytes{0, 10 * proto.GiB, 12 * proto.GiB} {
		e := list.Traces[i]
		kind, outcome := proto.TaskProbe, proto.OutcomeOOMQuota
		if want == 0 {
			kind, outcome = proto.TaskRecord, proto.OutcomePass
		}
		if e.Quota != want || e.QuotaKind != proto.QuotaAllocator || e.Kind != kind || e.Outcome != outcome || e.Task == "" {
			t.Errorf("%d: %+v", i, e)
		}
	}
	content, err := client.Trace(t.Context(), ref.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	file, err := io.ReadAll(content)
	if err != nil || trace.DigestOf(file) != ref.Digest {
		t.Fatalf("downloaded %d bytes, %v", len(file), err)
	}
	if got, _, err := trace.Decode(bytes.NewReader(file), int64(len(file))); err != nil || !slices.Equal(got, events) {
		t.Errorf("downloaded %v, %v", got, err)
	}
	var p *api.Problem
	if _, err := client.Trace(t.Context(), proto.Digest(strings.Repeat("0", 64))); !errors.As(err, &p) || p.Code != api.CodeNotFound {
		t.Errorf("unknown trace: %v", err)
	}
}

func TestCoefficientFilters(t *testing.T) {
	c := newCluster(t)
	client := c.client(c.serve("n1", nil))
	var cells []proto.Cell
	for _, n := range []int{64, 128, 192, 256} {
		cells = append(cells, cell(n))
	}
	for _, origin := range []proto.Origin{proto.OriginMeasured, proto.OriginSimulated} {
		c.addSweep("of-"+proto.MatrixID(origin), origin, cells...)
		for _, cell := range cells {
			c.record(origin, cell, "")
		}
		c.fit(origin, cells...)
	}
	all, err := client.Coefficients(t.Context(), url.Values{})
	if err != nil || len(all.Coefficients) != 6 || all.Role != "leader" {
		t.Fatalf("%d, %v", len(all.Coefficients), err)
	}
	for query, want := range map[string]int{
		"origin=simulated": 3, "origin=imported": 0, "driver=580.1": 6, "driver=580": 0, "gpu=" + url.QueryEscape(card) + "&origin=measured": 3,
		"workload=esmfold": 6, "workload=other": 0, "quota_kind=allocator": 6, "quota_kind=device": 0, "gpu=&driver=&origin=": 6,
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.Coefficients(t.Context(), q)
		if err != nil || len(got.Coefficients) != want {
			t.Errorf("%s: %d, want %d (%v)", query, len(got.Coefficients), want, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	c := newCluster(t)
	for _, deps := range []api.Deps{
		{}, {ID: "n1", Registry: replica{c, "n1"}, Traces: c.traces, Agents: c.queue},
		{Sweeps: nothing{}, Registry: replica{c, "n1"}, Traces: c.traces, Agents: c.queue},
	} {
		if _, err := api.New(deps); err == nil {
			t.Errorf("no error for %+v", deps)
		}
	}
}
