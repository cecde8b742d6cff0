package api_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// pythonDriver calls the client as it is told, a line a call, and tells what came
// of it.
const pythonDriver = `
import base64, json, sys
from oomfleet import Fleet, Refused

def out(**what):
    print(json.dumps(what), flush=True)

out(methods=[n for n in dir(Fleet) if not n.startswith("_")])
access, fleet = json.loads(sys.stdin.readline()), None
for line in sys.stdin:
    call = json.loads(line)
    try:
        fleet = fleet or Fleet(**access)
        answer = getattr(fleet, call["method"])(**call["with"])
        if call["method"] == "watch":
            for event in answer:
                out(answer=event)
        elif isinstance(answer, bytes):
            out(answer=base64.b64encode(answer).decode())
        else:
            out(answer=answer)
    except Refused as e:
        assert str(e) == e.sentence
        out(refused={"code": e.code, "message": e.sentence, "status": e.status, "details": e.details})
`

// pyCall is one call of a method with keyword arguments.
type pyCall struct {
	Method string         `json:"method"`
	With   map[string]any `json:"with"`
}

// pyAnswer is what came of it.
type pyAnswer struct {
	Methods []string
	Answer  json.RawMessage
	Refused *struct {
		Code, Message string
		Status        int
		Details       []json.RawMessage
	}
}

// interpreter is the python3 of this machine itself: what stands in the path may
// be a script that looks for it each time.
var interpreter = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
})

// python is an interpreter with the client in its path. Without one this fails:
// the client is shipped, so it is tested.
func python(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := interpreter()
	if err != nil {
		t.Fatalf("there is no python3 here, and deploy/python/oomfleet.py is tested by running it: install Python 3.9 or later (%v)", err)
	}
	folder, err := filepath.Abs("../../deploy/python")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "PYTHONPATH=" + folder, "PYTHONDONTWRITEBYTECODE=1",
		"http_proxy=http://127.0.0.1:1"} // which must not be used for this machine
	cmd.Stderr = os.Stderr
	return cmd
}

// pyAsk makes calls through one Python client.
func pyAsk(t *testing.T, access map[string]any, calls ...pyCall) (methods []string, answers []pyAnswer) {
	t.Helper()
	var in, out bytes.Buffer
	lines := json.NewEncoder(&in)
	lines.Encode(access)
	for _, c := range calls {
		if c.With == nil {
			c.With = map[string]any{}
		}
		lines.Encode(c)
	}
	cmd := python(t, "-c", pythonDriver)
	cmd.Stdin, cmd.Stdout = &in, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("python: %v", err)
	}
	for dec := json.NewDecoder(&out); dec.More(); {
		var a pyAnswer
		if err := dec.Decode(&a); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	if len(answers) != len(calls)+1 {
		t.Fatalf("%d answers to %d calls", len(answers)-1, len(calls))
	}
	return answers[0].Methods, answers[1:]
}

// ageless is a document without what time alone changes.
func ageless(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var strip func(any)
	strip = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			delete(v, "age_seconds")
			for _, x := range v {
				strip(x)
			}
		case []any:
			for _, x := range v {
				strip(x)
			}
		}
	}
	strip(v)
	return v
}

// with is keyword arguments.
func with(pairs ...any) map[string]any {
	out := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i].(string)] = pairs[i+1]
	}
	return out
}

// pyReads are the reads of the Python client, and the path that says the same.
func pyReads(digest proto.Digest) []struct {
	call pyCall
	path string
} {
	return []struct {
		call pyCall
		path string
	}{
		{pyCall{"quota", with("seq_len", 64)}, "/v1/quota?seq_len=64"},
		{pyCall{"quota", with("seq_len", 300, "extrapolate", true, "risk", 0.05)}, "/v1/quota?seq_len=300&extrapolate=true&risk=0.05"},
		{pyCall{"quota", with("seq_len", 64, "driver", "580.1", "env", with("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64,expandable_segments:True", "EMPTY", ""))},
			"/v1/quota?seq_len=64&driver=580.1&env=EMPTY%3D&env=PYTORCH_CUDA_ALLOC_CONF%3Dmax_split_size_mb%3A64%2Cexpandable_segments%3ATrue"},
		{pyCall{"quota", with("seq_len", 64, "workload", "esm", "param", with("model", "b"))}, "/v1/quota?seq_len=64&workload=esm&param=model%3Db"},
		{pyCall{"max_seq_len", with("quota_bytes", 8<<30)}, "/v1/quota/max-seq-len?quota_bytes=8589934592"},
		{pyCall{"max_batch", with("seq_len", 64, "quota_bytes", 104857600)}, "/v1/quota/max-batch?seq_len=64&quota_bytes=104857600"},
		{pyCall{"replicas", with("seq_len", 64, "card_memory_bytes", 80<<30)}, "/v1/quota/replicas?seq_len=64&card_memory_bytes=85899345920"},
		{pyCall{"compare_quotas", with("seq_len", 64, "chunk_size", 32, "driver", "550.1", "other", with("driver", "590.1", "env", with()))},
			"/v1/quota/compare?seq_len=64&chunk_size=32&driver=550.1&with=driver%3D590.1&with=env%3D"},
		{pyCall{"compare", with("after", "new", "before", "old", "margin_bytes", 1<<20)}, "/v1/compare?after=new&before=old&margin_bytes=1048576"},
		{pyCall{"compare", with("after", "new")}, "/v1/compare?after=new"},
		{pyCall{"coefficients", with("driver", "580.1", "consistent", true)}, "/v1/coefficients?driver=580.1&consistent=true"},
		{pyCall{"coefficients", nil}, "/v1/coefficients"},
		{pyCall{"coefficient_history", with("revision", 1)}, "/v1/coefficients/history?revision=1"},
		{pyCall{"boundaries", with("seq_len", 64, "max_age", "5s")}, "/v1/boundaries?seq_len=64&max_age=5s"},
		{pyCall{"boundary_history", with("cell", cell(64).ID())}, "/v1/boundaries/" + string(cell(64).ID()) + "/history"},
		{pyCall{"programs", with("origin", "measured")}, "/v1/programs?origin=measured"},
		{pyCall{"sweeps", nil}, "/v1/sweeps"},
		{pyCall{"sweep", with("id", "all")}, "/v1/sweeps/all"},
		{pyCall{"status", nil}, "/v1/status"},
		{pyCall{"agents", nil}, "/v1/agents"},
		{pyCall{"traces", nil}, "/v1/traces"},
		{pyCall{"traces", with("sweep", "all")}, "/v1/traces?sweep=all"},
		{pyCall{"trace", with("digest", digest)}, "/v1/traces/" + string(digest)},
	}
}

// rolledOut is measuredFleet with two sweeps to compare, a trace that is stored
// and two servers, of which the second leads.
func rolledOut(t *testing.T) (c *cluster, leader, follower *httptest.Server, digest proto.Digest) {
	c, _ = measuredFleet(t)
	leader, follower = c.serve("n1", nil), c.serve("n2", nil)
	chunked := func(c *proto.Cell) { c.ChunkSize = 96 } // other groups than those that questions are about
	c.settledUnder("old", proto.OriginMeasured, "570.1", chunked)
	c.settledUnder("new", proto.OriginMeasured, "575.1", chunked)
	stored := cell(72)
	ref, err := c.traces.PutTrace(t.Context(), []allocator.Event{{Action: allocator.SegmentAlloc, Addr: 1 << 21, Size: 1 << 21}}, trace.Meta{Cell: stored})
	if err != nil {
		t.Fatal(err)
	}
	c.addSweep("stored", proto.OriginMeasured, stored)
	c.record(proto.OriginMeasured, stored, ref.Digest)
	return c, leader, follower, ref.Digest
}

// TestPythonClient calls every public method against a running server, behind an
// address where nobody listens, and holds the answers to the API's own.
func TestPythonClient(t *testing.T) {
	c, leader, follower, digest := rolledOut(t)
	access := with("servers", "http://127.0.0.1:1,"+follower.URL+","+leader.URL)
	reads := pyReads(digest)
	var calls []pyCall
	for _, r := range reads {
		calls = append(calls, r.call)
	}
	methods, answers := pyAsk(t, access, calls...)
	called := []string{"watch"} // TestPythonWatch
	for i, r := range reads {
		called = append(called, r.call.Method)
		raw := c.request("GET", follower.URL+r.path, "")
		switch a := answers[i]; {
		case raw.status != 200 || a.Refused != nil:
			t.Errorf("%s: %d %s, and Python got %+v", r.path, raw.status, raw.body, a.Refused)
		case r.call.Method == "trace":
			file, err := base64.StdEncoding.DecodeString(strings.Trim(string(a.Answer), `"`))
			if err != nil || string(file) != raw.body {
				t.Errorf("%s: Python got %d bytes, not %d", r.path, len(file), len(raw.body))
			}
		default:
			if !reflect.DeepEqual(ageless(t, a.Answer), ageless(t, []byte(raw.body))) {
				t.Errorf("%s:\n%s\nand Python got\n%s", r.path, raw.body, a.Answer)
			}
		}
	}
	writes := []pyCall{
		{"submit", with("source", source("[64, 66]", "580.1"), "set", []string{"axes.batch=1,2"})},
		{"submit", with("source", source("[64, 66]", "580.1"), "set", []string{"axes.batch=1,2"}, "again", true)},
		{"repeat", with("id", "all", "cells", []proto.CellID{cell(64).ID()}, "repeats", 2)},
		{"import_coefficients", with("coefficients", []proto.Coefficients{imported(1)})},
	}
	_, answers = pyAsk(t, access, writes...)
	var first, second struct {
		Matrix proto.MatrixRef
		New    int `json:"new_cells"`
	}
	for i, into := range []any{&first, &second} {
		if answers[i].Refused != nil || json.Unmarshal(answers[i].Answer, into) != nil {
			t.Fatalf("submit: %+v", answers[i])
		}
	}
	if view := c.machine.View(); len(view.Sweeps[first.Matrix.ID].Cells) != 4 || second.Matrix.ID != first.Matrix.ID+"-2" {
		t.Errorf("submitted %+v and %+v", first, second)
	}
	if answers[2].Refused != nil || answers[3].Refused != nil || c.machine.View().Coefficients[registry.KeyOf(imported(1))] == nil {
		t.Errorf("repeat %+v, import %+v", answers[2].Refused, answers[3].Refused)
	}
	_, answers = pyAsk(t, access, pyCall{"cancel", with("id", first.Matrix.ID)}, pyCall{"sweep", with("id", first.Matrix.ID)})
	var report proto.Report
	if answers[0].Refused != nil || json.Unmarshal(answers[1].Answer, &report) != nil || report.State != "cancelled" {
		t.Errorf("cancel: %+v, then %s", answers[0].Refused, report.State)
	}
	link := pyCall{"trace_url", with("digest", digest)} // this fleet's store is a folder
	if _, answers = pyAsk(t, access, link); answers[0].Refused == nil || answers[0].Refused.Code != api.CodeRefused {
		t.Errorf("an address of a folder: %+v", answers[0])
	}
	for _, w := range append(writes, pyCall{Method: "cancel"}, link) {
		called = append(called, w.Method)
	}
	slices.Sort(called)
	if called = slices.Compact(called); !slices.Equal(methods, called) {
		t.Errorf("the client has %v, and called were %v", methods, called)
	}
}

// TestPythonWatch: a stream that breaks is opened at the other coordinator, and
// what changed meanwhile comes once.
func TestPythonWatch(t *testing.T) {
	c := newCluster(t)
	c.watch = quick()
	first, second := c.serve("n1", nil), c.serve("n2", nil)
	cmd := python(t, "-c", pythonDriver)
	access, err := json.Marshal(with("servers", first.URL+","+second.URL))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = strings.NewReader(string(access) + "\n" + `{"method": "watch", "with": {"kinds": ["sweeps"], "retry": 0.001}}` + "\n")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen []string
	for lines := bufio.NewScanner(out); len(seen) < 4 && lines.Scan(); {
		var a struct {
			Answer struct {
				api.Event
				ID uint64
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		switch e := a.Answer; {
		case e.Kind == api.EventHello:
			seen = append(seen, "hello")
			if len(seen) == 1 {
				c.addSweep("a", proto.OriginMeasured, cell(64))
			}
		case e.Sweep != nil:
			seen = append(seen, string(e.Sweep.Matrix.ID))
			if e.ID != e.Index {
				t.Errorf("%s has the id %d and the index %d", e.Sweep.Matrix.ID, e.ID, e.Index)
			}
			if len(seen) == 2 {
				first.CloseClientConnections()
				c.addSweep("b", proto.OriginMeasured, cell(128))
			}
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	cmd.Wait() // it was killed
	if want := []string{"hello", "a", "hello", "b"}; !slices.Equal(seen, want) {
		t.Errorf("saw %v, want %v", seen, want)
	}
	_, answers := pyAsk(t, with("servers", first.URL), pyCall{"watch", with("kinds", []string{"boundary"})})
	if r := answers[0].Refused; r == nil || r.Code != api.CodeBadRequest || r.Status != 422 {
		t.Errorf("a wrong kind: %+v", r)
	}
}

// TestPythonReadsWhatItWrote is TestReadsWhatItWrote in Python.
func TestPythonReadsWhatItWrote(t *testing.T) {
	c := newCluster(t)
	c.serve("n1", nil)
	slow := newLaggard(c, "n2")
	follower := httptest.NewServer(c.handler("n2", slow))
	t.Cleanup(follower.Close)
	released := make(chan struct{})
	go func() {
		defer close(released)
		<-slow.asked
		slow.release()
	}()
	_, answers := pyAsk(t, with("servers", follower.URL), pyCall{"submit", with("source", source("[64]", "580.1"))}, pyCall{Method: "sweeps"})
	var list api.SweepList
	if answers[0].Refused != nil || json.Unmarshal(answers[1].Answer, &list) != nil || len(list.Sweeps) != 1 || list.Role != "follower" {
		t.Errorf("%+v, then %+v", answers[0].Refused, list)
	}
	<-released
}

// TestPythonAccess: tokens and certificates.
func TestPythonAccess(t *testing.T) {
	c := newCluster(t)
	k := newKeyring(t)
	var log syncBuffer
	plain := c.guarded("n1", k, &log, httptest.NewServer, api.Access{})
	secure := c.guarded("n1", k, &log, httptest.NewTLSServer, api.Access{})
	keep := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := keep("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})))
	var elsewhere atomic.Int32
	other := httptest.NewServer(counted(&elsewhere)(http.NotFoundHandler()))
	t.Cleanup(other.Close)
	redirect := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(redirect.Close)
	read, sweeps := k.read.Reveal(), pyCall{Method: "sweeps"}
	for _, tt := range []struct {
		name   string
		access map[string]any
		call   pyCall
		code   string // empty for an answer
		words  string
	}{
		{"token", with("servers", plain.URL, "token", read), sweeps, "", ""},
		{"token file over TLS", with("servers", secure.URL, "token_file", keep("token", read+"\n"), "ca_file", ca), sweeps, "", ""},
		{"no token", with("servers", plain.URL), sweeps, api.CodeNoToken, "wants a token"},
		{"stale", with("servers", plain.URL, "token", k.stale.Reveal()), sweeps, api.CodeStaleToken, "has expired"},
		{"taken back", with("servers", plain.URL, "token", k.gone.Reveal()), sweeps, api.CodeBadToken, "unknown here"},
		{"role", with("servers", plain.URL, "token", read), pyCall{"cancel", with("id", "x")}, api.CodeForbidden, "needs the role write"},
		{"no authority", with("servers", secure.URL, "token", read), sweeps, "unreached", "certificate verify failed"},
		{"plain network", with("servers", "http://host.example:7400", "token", read), sweeps, "bad_access", "readable on the way"},
		{"redirect", with("servers", redirect.URL, "token", read), sweeps, "unreached", "is no coordinator"},
		{"no token file", with("servers", plain.URL, "token_file", "/nowhere/token"), sweeps, "bad_access", "/nowhere/token"},
		{"two words", with("servers", plain.URL, "token_file", keep("bad", "a\nX-Other: b")), sweeps, "bad_access", "one word"},
		{"no URL", with("servers", "host:7400"), sweeps, "bad_request", "is not a URL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, answers := pyAsk(t, tt.access, tt.call)
			switch a := answers[0]; {
			case tt.code == "" && a.Refused != nil, tt.code != "" && a.Refused == nil:
				t.Errorf("%s, refused %+v", a.Answer, a.Refused)
			case tt.code != "" && (a.Refused.Code != tt.code || !strings.Contains(a.Refused.Message, tt.words)):
				t.Errorf("%+v, want %s with %q", a.Refused, tt.code, tt.words)
			case tt.code != "" && strings.Contains(a.Refused.Message, read):
				t.Error("the sentence shows the token")
			}
		})
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
}

// TestPythonCommand: the file is a command as well, with the exit codes of
// fleetctl. It holds to Python 3.9.
func TestPythonCommand(t *testing.T) {
	_, _, follower, digest := rolledOut(t)
	for _, tt := range []struct {
		args  string
		code  int
		words string
	}{
		{"quota --seq-len 64", 0, `"quota_bytes": 104857600`},
		{"quota --seq-len 64 --env EMPTY= --env PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True", 0, `"survive_bytes": 209715200`},
		{"sweep all", 0, `"id": "all"`},
		{"trace " + string(digest), 0, "PAR1"},
		{"quota --seq-len 64 --batch -1", 2, "query.batch"},
		{"quota --seq-len 300", 2, "outside what was fitted"},
		{"quota --seq-len 64 --driver 1.2", 2, "(unknown_driver)"},
		{"quota", 2, "seq_len"},
		{"quota --seq-len many", 2, "invalid int value"},
		{"nonsense", 2, "invalid choice"},
		{"agents --driver 1", 2, "driver"},
		{"quota --seq-len 64 --env KEY", 2, "oomfleet.py"},
	} {
		cmd := python(t, append([]string{"../../deploy/python/oomfleet.py"}, strings.Fields(tt.args)...)...)
		cmd.Env = append(cmd.Env, "OOMFLEET_SERVER="+follower.URL)
		cmd.Stderr = nil
		out, _ := cmd.CombinedOutput() // its exit code is looked at
		if cmd.ProcessState.ExitCode() != tt.code || !strings.Contains(string(out), tt.words) || strings.Contains(string(out), "Traceback") {
			t.Errorf("%s: exit code %d, %s; want %d with %q", tt.args, cmd.ProcessState.ExitCode(), out, tt.code, tt.words)
		}
	}
	follower.Close()
	cmd := python(t, "../../deploy/python/oomfleet.py", "status")
	cmd.Env, cmd.Stderr = append(cmd.Env, "OOMFLEET_SERVER="+follower.URL), nil
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "is it running?") {
		t.Errorf("nobody there: exit code %d, %s", cmd.ProcessState.ExitCode(), out)
	}
	cmd = python(t, "../../deploy/python/oomfleet.py", "status")
	cmd.Env, cmd.Stderr = append(cmd.Env, "OOMFLEET_SERVER=host-a:7400"), nil
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "is not a URL") {
		t.Errorf("no address: exit code %d, %s", cmd.ProcessState.ExitCode(), out)
	}
	check := `import ast,sys; ast.parse(open(sys.argv[1]).read(), feature_version=(3, 9))`
	if out, err := python(t, "-c", check, "../../deploy/python/oomfleet.py").Output(); err != nil {
		t.Errorf("not Python 3.9: %s, %v", out, err)
	}
}

// TestWrongQuestions: both clients get the same code and the same sentence.
func TestWrongQuestions(t *testing.T) {
	c, leader, follower, _ := rolledOut(t)
	for name, server := range map[string]*httptest.Server{"leader": leader, "follower": follower} {
		client := c.client(server)
		var calls []pyCall
		var want []*api.Problem
		for _, tt := range []struct {
			query, code string
			with        map[string]any
		}{
			{"seq_len=64&driver=1.2", "unknown_driver", with("seq_len", 64, "driver", "1.2")},
			{"seq_len=300", "outside_domain", with("seq_len", 300)},
			{"seq_len=64&batch=-1", "bad_request", with("seq_len", 64, "batch", -1)},
			{"seq_len=0", "bad_request", with("seq_len", 0)},
			{"seq_len=64&origin=simulated", "not_covered", with("seq_len", 64, "origin", "simulated")},
			{"seq_len=64&chunk_size=32", "ambiguous", with("seq_len", 64, "chunk_size", 32)},
			{"seq_len=64&risk=0.9", "bad_request", with("seq_len", 64, "risk", 0.9)},
			{"seq_len=64&drvier=1", "bad_request", with("seq_len", 64, "drvier", 1)},
		} {
			_, err := client.Quota(t.Context(), query(t, tt.query))
			p, ok := err.(*api.Problem)
			if !ok || p.Code != tt.code || len(p.Message) < 20 {
				t.Fatalf("%s: %v", tt.query, err)
			}
			calls, want = append(calls, pyCall{"quota", tt.with}), append(want, p)
		}
		_, err := client.Submit(t.Context(), api.Submission{Source: "name: x", Origin: proto.OriginMeasured})
		p, ok := err.(*api.Problem)
		if !ok || p.Code != api.CodeBadMatrix || len(p.Details) == 0 {
			t.Fatalf("a bad matrix: %v", err)
		}
		calls, want = append(calls, pyCall{"submit", with("source", "name: x")}), append(want, p)
		_, answers := pyAsk(t, with("servers", server.URL), calls...)
		for i, a := range answers {
			if a.Refused == nil || a.Refused.Code != want[i].Code || a.Refused.Message != want[i].Message || a.Refused.Status != want[i].GetStatus() ||
				len(a.Refused.Details) != len(want[i].Details) {
				t.Errorf("%s: %s %v: Python got %+v, Go %+v", name, calls[i].Method, calls[i].With, a.Refused, want[i])
			}
		}
	}
}
