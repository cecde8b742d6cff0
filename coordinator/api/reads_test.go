package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

func TestUnknownParametersAreNamed(t *testing.T) {
	c := newCluster(t)
	server := c.serve("n1", nil)
	for path, words := range map[string]string{
		"/v1/coefficients?drvier=580.1":                  `unknown query parameter "drvier"; known here: consistent, driver, gpu, max_age, origin, quota_kind, workload`,
		"/v1/sweeps?limit=3":                             `"limit"; known here: consistent, max_age`,
		"/v1/quota?seq_len=1&seqlen=2&bach=1":            `"bach", "seqlen"; known here: batch,`,
		"/v1/agents?origin=measured":                     `"origin"; known here: none`,
		"/v1/status?verbose=1":                           `"verbose"`,
		"/v1/watch?form=3":                               `"form"; known here: kinds, since`,
		"/v1/backup?force=true":                          `"force"; known here: consistent, max_age`,
		"/v1/coefficients/history?version=2":             `"version"; known here: consistent, driver, gpu, max_age, origin, quota_kind, revision, workload`,
		"/v1/traces/" + strings.Repeat("0", 64) + "?x=1": `"x"; known here: none`,
		"/v1/sweeps?%zz":                                 "cannot be read",
		"/v1/sweeps?consistent=maybe":                    `consistent is true or false, not "maybe"`,
		"/v1/sweeps?max_age=soon":                        "max_age is a time like 5s",
		"/v1/sweeps?max_age=-5s":                         "max_age is a time like 5s",
		"/v1/sweeps?max_age=5s&consistent=1":             "exclude each other",
	} {
		c.request("GET", server.URL+path, "").wantProblem(t, 422, api.CodeBadRequest, words)
	}
	c.request("POST", server.URL+"/v1/sweeps?orgin=measured", `{"source":"x","origin":"measured"}`).wantProblem(t, 422, api.CodeBadRequest, `"orgin"`)
	for _, path := range []string{"/v1/sweeps?max_age=5", "/v1/sweeps?max_age=500ms", "/v1/sweeps?consistent=true", "/v1/quota?seq_len=1&env=A%3DB&env=C%3DD"} {
		if got := c.request("GET", server.URL+path, ""); got.status == 422 {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

// TestConsistentReads: the leader answers, wherever one asks; without a leader
// nobody does, and says so.
func TestConsistentReads(t *testing.T) {
	c := newCluster(t)
	var atLeader atomic.Int32
	c.serve("n1", counted(&atLeader))
	follower := c.serve("n2", nil)
	c.addSweep("s", proto.OriginMeasured, cell(64))
	for _, path := range []string{"/v1/sweeps", "/v1/sweeps/s", "/v1/coefficients", "/v1/coefficients/history", "/v1/boundaries", "/v1/programs", "/v1/traces", "/v1/status"} {
		before := atLeader.Load()
		var at api.Position
		if got := c.request("GET", follower.URL+path+"?consistent=true", ""); json.Unmarshal([]byte(got.body), &at) != nil || at.Role != "leader" || at.AgeSeconds != 0 || at.AppliedIndex != 3 {
			t.Errorf("%s: %s", path, got.body)
		}
		if atLeader.Load() != before+1 {
			t.Errorf("%s did not reach the leader", path)
		}
		if got := c.request("GET", follower.URL+path, ""); json.Unmarshal([]byte(got.body), &at) != nil || at.Role != "follower" {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	c.believe("n2", "")
	c.request("GET", follower.URL+"/v1/sweeps?consistent=true", "").wantProblem(t, 503, api.CodeNoLeader, "choosing a leader")
	// A node that was deposed and does not know it must not answer.
	c.believe("n2", "n2")
	c.request("GET", follower.URL+"/v1/sweeps?consistent=true", "").wantProblem(t, 503, api.CodeNoLeader, "choosing a leader")
	c.request("GET", follower.URL+"/v1/sweeps?max_age=1h", "").wantProblem(t, 503, api.CodeNoLeader, "choosing a leader")
}

func TestBoundedReads(t *testing.T) {
	c := newCluster(t)
	c.serve("n1", nil)
	follower := c.serve("n2", nil)
	c.mu.Lock()
	c.ages["n2"] = 1500 * time.Millisecond
	c.mu.Unlock()
	var at api.Position
	if got := c.request("GET", follower.URL+"/v1/sweeps?max_age=2s", ""); json.Unmarshal([]byte(got.body), &at) != nil || got.status != 200 || at.AgeSeconds != 1.5 {
		t.Errorf("%+v", got)
	}
	c.request("GET", follower.URL+"/v1/sweeps?max_age=1s", "").wantProblem(t, 503, api.CodeTooOld, "may be 1.5s behind, and 1s is the most")
	answer, err := http.Get(follower.URL + "/v1/coefficients")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if h := answer.Header; h.Get("Oomfleet-Age-Seconds") != "1.5" || h.Get("Oomfleet-Role") != "follower" || h.Get("Oomfleet-Applied-Index") != "2" {
		t.Errorf("headers %v", h)
	}
	// The client asks the next one.
	list, err := c.client(follower, c.serve("n1", nil)).Coefficients(t.Context(), url.Values{"max_age": {"1s"}})
	if err != nil || list.Role != "leader" {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestCatchingUp(t *testing.T) {
	c := newCluster(t)
	server := c.serve("n1", nil)
	ready := c.request("GET", server.URL+"/readyz", "")
	if ready.status != 200 || ready.body != "ok\n" {
		t.Errorf("%+v", ready)
	}
	if got := c.request("GET", server.URL+"/v1/sweeps/none", ""); got.status != 404 {
		t.Errorf("%+v", got)
	}
	c.mu.Lock()
	c.behind["n1"] = true
	c.mu.Unlock()
	if got := c.request("GET", server.URL+"/v1/sweeps/none", ""); got.status != 503 || !strings.Contains(got.body, `"unavailable"`) || strings.Contains(got.body, "not_found") {
		t.Errorf("who is behind says that there is none: %+v", got)
	}
	if got := c.request("GET", server.URL+"/readyz", ""); got.status != 503 || got.body != "catching up with the log\n" {
		t.Errorf("%+v", got)
	}
	if s, err := c.client(server).Status(t.Context()); err != nil || s.Role != "catching up" || s.Leader != "n1" {
		t.Errorf("%+v, %v", s, err)
	}
	c.believe("n1", "")
	if got := c.request("GET", server.URL+"/readyz", ""); got.status != 503 || got.body != "no leader is known\n" {
		t.Errorf("%+v", got)
	}
	if got := c.request("GET", server.URL+"/v1/sweeps/none", ""); got.status != 503 || !strings.Contains(got.body, "no coordinator leads") || strings.Contains(got.body, "catching up") {
		t.Errorf("without a leader: %+v", got)
	}
}

func TestHistoryByRevision(t *testing.T) {
	c := newCluster(t)
	client := c.client(c.serve("n1", nil))
	ctx := t.Context()
	for value := 1; value <= 3; value++ {
		reply, err := client.Import(ctx, []proto.Coefficients{imported(value)})
		if err != nil || len(reply.Groups) != 1 || reply.Groups[0].Revision != value || !reply.Groups[0].Changed {
			t.Fatalf("%+v, %v", reply, err)
		}
	}
	if again, err := client.Import(ctx, []proto.Coefficients{imported(3)}); err != nil || again.Groups[0].Changed || again.Groups[0].Revision != 3 {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	all, err := client.CoefficientHistory(ctx, url.Values{"workload": {"register"}})
	if err != nil || len(all.History) != 3 || all.History[0].Newest || !all.History[2].Newest {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, query := range []url.Values{{"revision": {"2"}}, {"revision": {"2"}, "origin": {"imported"}}} {
		second, err := client.CoefficientHistory(ctx, query)
		if err != nil || len(second.History) != 1 || second.History[0].Coefficients[0].Terms[0].Value != 2 {
			t.Errorf("%v: %+v, %v", query, second, err)
		}
	}
	if none, err := client.CoefficientHistory(ctx, url.Values{"origin": {"measured"}}); err != nil || len(none.History) != 0 {
		t.Errorf("%+v, %v", none, err)
	}
	// A cell that fails, is tried again and is certified has two boundaries.
	c.addSweep("s", proto.OriginMeasured, cell(64))
	c.settle(proto.OriginMeasured, cell(64), registry.Settlement{State: proto.CellFailed, Reason: "crashed"})
	c.addSweep("t", proto.OriginMeasured, cell(64))
	c.settle(proto.OriginMeasured, cell(64), registry.Settlement{State: proto.CellCertified, Boundary: proto.Boundary{Boundary: proto.GiB}})
	list, err := client.Boundaries(ctx, url.Values{"seq_len": {"64"}, "origin": {"measured"}})
	if err != nil || len(list.Boundaries) != 1 || list.Boundaries[0].Boundary.Boundary != proto.GiB || list.Boundaries[0].Revision != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	history, err := client.BoundaryHistory(ctx, cell(64).ID(), url.Values{})
	if err != nil || len(history.History) != 2 || history.History[0].Reason != "crashed" || history.History[1].State != proto.CellCertified {
		t.Errorf("%+v, %v", history, err)
	}
	if first, err := client.BoundaryHistory(ctx, cell(64).ID(), url.Values{"revision": {"1"}}); err != nil || len(first.History) != 1 || first.History[0].State != proto.CellFailed {
		t.Errorf("%+v, %v", first, err)
	}
	if _, err := client.BoundaryHistory(ctx, "none", url.Values{}); err == nil {
		t.Error("no such cell")
	}
	// A program that was replaced is found by its digest.
	family := registry.FamilyOf(proto.OriginMeasured, cell(64))
	for _, digest := range []proto.Digest{"p1", "p2"} {
		c.apply(registry.Command{SetProgram: &registry.SetProgram{Family: family, Inputs: []proto.Digest{"of-" + digest}, Program: digest,
			Domains: []registry.ProgramDomain{{SeqLen: proto.Range{1, 2}, Batch: proto.Range{1, 1}}}}})
	}
	if old, err := client.Programs(ctx, url.Values{"digest": {"p1"}}); err != nil || len(old.Programs) != 1 || old.Programs[0].Digest != "p2" || old.Programs[0].Revision != 2 {
		t.Errorf("%+v, %v", old, err)
	}
}

func TestImportsAreHeldApart(t *testing.T) {
	c := newCluster(t)
	client := c.client(c.serve("n1", nil))
	for name, edit := range map[string]func(*proto.Coefficients){
		"origin":   func(m *proto.Coefficients) { m.Origin = proto.OriginMeasured },
		"workload": func(m *proto.Coefficients) { m.Group.Workload.Name = "" },
		"target":   func(m *proto.Coefficients) { m.Target = "cached" },
		"model":    func(m *proto.Coefficients) { m.Model = nil },
		"domain":   func(m *proto.Coefficients) { m.Domain.SeqLen = proto.Range{5, 1} },
	} {
		m := imported(1)
		edit(&m)
		var p *api.Problem
		if _, err := client.Import(t.Context(), []proto.Coefficients{m}); !errors.As(err, &p) || p.Code != api.CodeRefused || !strings.Contains(p.Message, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := client.Import(t.Context(), []proto.Coefficients{imported(1), imported(2)}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("one target twice: %v", err)
	}
	if n := len(c.machine.View().Coefficients); n != 0 {
		t.Errorf("%d sets were committed", n)
	}
}

func TestBackupAndRestore(t *testing.T) {
	from := newCluster(t)
	server := from.serve("n1", nil)
	from.addSweep("s", proto.OriginMeasured, cell(64), cell(128))
	content, err := from.client(server).Backup(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	file, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	to := newCluster(t)
	to.serve("n1", nil)
	client := to.client(to.serve("n2", nil)) // a follower passes it on
	var p *api.Problem
	altered := bytes.Clone(file)
	altered[len(altered)/2] ^= 0x40
	for name, bad := range map[string][]byte{"cut": file[:len(file)-20], "altered": altered, "text": []byte("hello"), "empty": nil} {
		if _, err := client.Restore(t.Context(), bad, false); !errors.As(err, &p) || p.Code != api.CodeBadBackup || !strings.Contains(p.Message, "nothing was changed") {
			t.Errorf("%s: %v", name, err)
		}
	}
	done, err := client.Restore(t.Context(), file, false)
	if err != nil || done.Content != from.machine.View().Content() || to.machine.View().Content() != done.Content || done.Cells != 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	if _, err := client.Restore(t.Context(), file, false); !errors.As(err, &p) || p.Code != api.CodeNotEmpty || p.GetStatus() != http.StatusConflict {
		t.Errorf("into one that holds something: %v", err)
	}
	if again, err := client.Restore(t.Context(), file, true); err != nil || again.Index <= done.Index {
		t.Errorf("by force: %+v, %v", again, err)
	}
}

// TestClientPassesOver: servers that are no coordinators, and one that accepts
// and stays silent, are passed over with a sentence.
func TestClientPassesOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	good := c.serve("n1", nil)
	nowhere := httptest.NewServer(http.NotFoundHandler())
	defer nowhere.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>hello") }))
	defer page.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, foreign := range map[string]string{"404": nowhere.URL, "a page": page.URL, "silent": "http://" + silent.Addr().String()} {
		client, err := api.NewClient(foreign + "," + good.URL)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if _, err := client.Sweeps(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(begin); took > time.Minute { // an answer may take ninety seconds
			t.Errorf("%s: it took %s", name, took)
		}
		alone, err := api.NewClient(foreign)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = alone.Sweeps(t.Context()); err == nil || !strings.Contains(err.Error(), foreign) {
			t.Errorf("%s alone: %v", name, err)
		}
		if name == "silent" && !strings.Contains(err.Error(), "takes connections and says nothing") {
			t.Errorf("%s alone: %v", name, err)
		}
	}
}
