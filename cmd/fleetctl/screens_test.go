package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// aSweep is a sweep of two drivers in the midst of its work.
func aSweep() proto.Report {
	r := proto.Report{Matrix: proto.MatrixRef{Name: "nightly", ID: "nightly-2794c5ed"}, State: "running", Origin: proto.OriginMeasured,
		Counts: proto.Counts{Total: 6, Pending: 1, Running: 1, Certified: 2, Failed: 2}}
	expandable := map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
	for i, state := range []proto.CellState{proto.CellCertified, proto.CellCertified, proto.CellFailed, proto.CellFailed, proto.CellRunning, proto.CellPending} {
		c := proto.CellReport{Workload: proto.Workload{Name: "esmfold"}, GPU: "NVIDIA H200", Driver: "580.159.04", SeqLen: 128 * (i + 1), Batch: 1, State: state,
			QuotaKind: proto.QuotaAllocator, Origin: proto.OriginMeasured}
		if i%2 == 1 {
			c.Driver, c.Env, c.ChunkSize = "580.159.04-synthetic", expandable, 64
		}
		if state == proto.CellCertified {
			c.Boundary = proto.Boundary{Boundary: 10662 * proto.MiB, NoRetry: 11504 * proto.MiB, BandsKnown: true,
				FailBands: []proto.Band{{From: 10652 * proto.MiB, To: 10660 * proto.MiB}, {From: 10632 * proto.MiB, To: 10640 * proto.MiB}}}
			c.PeakReserved, c.Probes, c.GPUSeconds = 11504*proto.MiB, 12, 1234.5
		}
		if state == proto.CellFailed {
			c.Reason = "its attempts are used up: the runner ended with exit code 3"
		}
		r.Cells = append(r.Cells, c)
	}
	return r
}

// narrow fails a test whose text has a line that a screen would break.
func narrow(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > screenWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// TestStatusSaysFirstWhatMatters: at two in the morning the first lines tell how
// far the sweep is, how long it takes, and what went wrong.
func TestStatusSaysFirstWhatMatters(t *testing.T) {
	var out bytes.Buffer
	a := &app{streams: streams{out: &out, err: &out}}
	if err := a.printReport(aSweep(), time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err) // a running sweep with failed cells is no failure yet
	}
	text := out.String()
	narrow(t, text)
	head, table, _ := strings.Cut(text, "\n\n")
	for _, part := range []string{
		"nightly-2794c5ed (measured): running, 4 of 6 cells settled (66 %), 1 queued or running, 1 pending, 2 failed\n2 cells an hour, about 60 min left\n",
		"esmfold on NVIDIA H200, drivers 580.159.04, 580.159.04-synthetic, allocator quotas\n",
		"env 1: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n",
		"L384 B1 580.159.04, L512 B1 c64 580.159.04-synthetic: failed: its attempts are used up: the runner ended with exit\n  code 3",
	} {
		if !strings.Contains(head+"\n", part) {
			t.Errorf("the head\n%s\nlacks\n%s", head, part)
		}
	}
	for _, part := range []string{"L256 B1 c64  1 ", "10652-10660 MiB +1"} {
		if !strings.Contains(table, part) {
			t.Errorf("the table\n%s\nlacks %q", table, part)
		}
	}
	if strings.Contains(table, "unknown") {
		t.Errorf("a cell without a boundary has no unknown bands:\n%s", table)
	}
	r := aSweep()
	r.State = "settled"
	var coded *codedError
	if err := a.printReport(r, time.Time{}); !asCoded(err, &coded) || coded.code != exitPartial {
		t.Errorf("%v", err)
	}
}

func asCoded(err error, c **codedError) bool {
	coded, ok := err.(*codedError)
	*c = coded
	return ok
}

func TestPace(t *testing.T) {
	for _, c := range []struct {
		settled, left int
		elapsed       time.Duration
		want          string
	}{
		{0, 5, time.Hour, ""},
		{5, 0, time.Hour, ""},
		{5, 5, time.Second, ""},
		{60, 30, time.Minute, "60 cells a minute, about 30 s left"},
		{2, 4, time.Minute, "120 cells an hour, about 2 min left"},
		{1, 10, time.Hour, "1 cells an hour, about 10 h left"},
		{1, 100, time.Hour, "1 cells an hour, about 4 days left"},
	} {
		if got := paceText(c.settled, c.left, c.elapsed); got != c.want {
			t.Errorf("%d settled, %d left after %v: %q, want %q", c.settled, c.left, c.elapsed, got, c.want)
		}
	}
}

// TestWatch: a terminal gets the head and the cells in work, and each warning
// every time; what is no terminal gets a line a change.
func TestWatch(t *testing.T) {
	var out bytes.Buffer
	p := &progress{w: &out, settled: -1, terminal: true, watch: true, began: time.Now().Add(-time.Minute)}
	p.warn([]wait{{gpu: "NVIDIA H200", driver: "580.2", cells: 2, reason: noAgent}})
	if out.Len() > 0 {
		t.Errorf("%q was written beside the screen", out.String())
	}
	p.show(aSweep())
	for _, part := range []string{"\x1b[H", "4 of 6 cells settled", "2 cells wait for an agent", "L640 B1", "running"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the screen lacks %q:\n%q", part, out.String())
		}
	}
	if strings.Contains(out.String(), "L768") {
		t.Errorf("a pending cell is in work:\n%q", out.String())
	}
	if strings.Contains(out.String(), " left") {
		t.Errorf("what waits has an end in sight:\n%q", out.String())
	}
	out.Reset()
	p.warn(nil) // the agent came
	p.show(aSweep())
	if strings.Contains(out.String(), "2 cells wait") {
		t.Errorf("a wait that is over is still on the screen:\n%q", out.String())
	}
	out.Reset()
	p.moved = time.Now().Add(-7 * time.Minute)
	p.show(aSweep())
	if !strings.Contains(out.String(), "no cell has settled for 7 min") {
		t.Errorf("nothing is said about a sweep that stands still:\n%q", out.String())
	}
	out.Reset()
	quiet := &progress{w: &out, settled: -1, watch: true, began: time.Now().Add(-time.Minute)}
	quiet.show(aSweep())
	quiet.show(aSweep())
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "4 of 6 cells settled, 2 failed (6") { // sixty seconds, or a few more
		t.Errorf("%q", got)
	}
}

// TestSilence: a fleet that is gone is not taken for one in which nothing happens,
// neither on a screen nor in a log, and an election is no silence.
func TestSilence(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		var out bytes.Buffer
		p := &progress{w: &out, settled: -1, terminal: terminal, watch: true, began: time.Now()}
		p.show(aSweep())
		p.silent(aSweep(), time.Second)
		if strings.Contains(out.String(), "no coordinator answers") {
			t.Errorf("terminal %v: said at once:\n%q", terminal, out.String())
		}
		out.Reset()
		for range 3 {
			p.silent(aSweep(), 5*time.Second)
		}
		n := strings.Count(out.String(), "no coordinator answers; waiting for one, 60 s at most")
		if terminal && (n != 3 || strings.Count(out.String(), "4 of 6 cells settled") != 3) || !terminal && n != 1 {
			t.Errorf("terminal %v: said %d times:\n%q", terminal, n, out.String())
		}
	}
}

// TestWatchInASmallTerminal: no line and no screen is larger than the terminal, as
// what it breaks or scrolls away would stay there when the next one is drawn.
func TestWatchInASmallTerminal(t *testing.T) {
	r := aSweep()
	for i := range 30 {
		c := r.Cells[4]
		c.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
		c.SeqLen = 1000 + i
		r.Cells = append(r.Cells, c)
	}
	for _, size := range [][2]int{{40, 24}, {40, 6}, {1, 3}, {200, 50}, {0, 0}} {
		var out bytes.Buffer
		p := &progress{w: &out, settled: -1, terminal: true, watch: true, began: time.Now(), size: func() (int, int) { return size[0], size[1] }}
		p.warn([]wait{{gpu: "NVIDIA H200", driver: "580.2", cells: 2, reason: noAgent}})
		p.show(r)
		text := strings.NewReplacer("\x1b[H", "", "\x1b[K", "", "\x1b[J", "").Replace(out.String())
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if size[1] > 0 && len(lines) >= size[1] {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, line := range lines {
			if n := len([]rune(line)); size[0] >= 10 && n > size[0] {
				t.Errorf("%v: %d columns: %q", size, n, line)
			}
		}
		if size[1] == 24 && (!strings.Contains(text, "more in work") || !strings.Contains(strings.Join(strings.Fields(text), " "), "start one on such a card")) {
			t.Errorf("%v lacks what matters:\n%s", size, text)
		}
		if size[0] == 200 && !strings.Contains(text, "L1000 B1 env 1") {
			t.Errorf("a cell in work is without its environment:\n%s", text)
		}
	}
}

// TestStatusNamesWhatIsDown: with the queue or the leader gone a sweep stands
// still, and nothing of the sweep itself says why.
func TestStatusNamesWhatIsDown(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/sweeps/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.PathValue("id") != "nightly-2794c5ed" {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"code":"unavailable","message":"this coordinator is catching up with its log and knows no such thing yet"}`)
			return
		}
		report := aSweep()
		report.Role = "follower"
		if err := writeJSON(w, report); err != nil {
			t.Error(err)
		}
	})
	for path, text := range map[string]string{
		"GET /v1/status": `{"id":"a","leader":"","role":"catching up"}`,
		"GET /v1/sweeps": `{"sweeps":[{"matrix":{"name":"nightly","id":"nightly-2794c5ed"}}]}`,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Query().Get("consistent") != "" {
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprint(w, `{"code":"no_leader","message":"the coordinators are choosing a leader"}`)
				return
			}
			fmt.Fprint(w, text)
		})
	}
	mux.HandleFunc("GET /v1/agents", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"code":"unavailable","message":"the queue (NATS) cannot be reached or used"}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	stdout, stderr, code := fleetctl(t, "matrix", "status", "nightly", "--server", server.URL)
	if code != exitOK || !strings.HasPrefix(stdout, "nightly-2794c5ed") || strings.Contains(stdout, " left\n") {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
	for _, part := range []string{"no coordinator leads", "which agents there are is not known: the queue (NATS)"} {
		if !strings.Contains(stderr, part) {
			t.Errorf("%q lacks %q", stderr, part)
		}
	}
	if _, stderr, code = fleetctl(t, "matrix", "status", "another", "--server", server.URL); code != exitFailed || !strings.Contains(stderr, "catching up") {
		t.Errorf("exit %d, %s", code, stderr) // the leader may know it
	}
}

// TestCancelTakesAnId: a name stands for the newest sweep where one reads, and is
// too little to end one.
func TestCancelTakesAnId(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/sweeps/{id}/cancel", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"code":"not_found","message":"there is no such sweep"}`)
	})
	mux.HandleFunc("GET /v1/sweeps", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"sweeps":[{"matrix":{"name":"nightly","id":"nightly-2"},"origin":"measured","state":"running"},{"matrix":{"name":"nightly","id":"nightly-1"}}]}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	for name, says := range map[string]string{"nightly": "by its id:\n  nightly-2 (measured, running)\n  nightly-1", "nigthly": "did you mean nightly"} {
		if _, stderr, code := fleetctl(t, "matrix", "cancel", name, "--server", server.URL); code != exitUsage || !strings.Contains(stderr, says) {
			t.Errorf("%s: exit %d, %s", name, code, stderr)
		}
	}
}

// TestRestingAgentsAreNamed: a sweep whose agents are all quarantined stands as
// still as one without agents.
func TestRestingAgentsAreNamed(t *testing.T) {
	agent := proto.AgentInfo{ID: "gpu-1", Origin: proto.OriginMeasured, State: proto.AgentQuarantined, Reason: "the card is lost",
		Stack: proto.Stack{GPU: "NVIDIA H200", Driver: "580.159.04"}}
	got := sentences(resting(aSweep(), []proto.AgentInfo{agent}))
	if len(got) != 1 || got[0] != "1 cell waits for an agent of NVIDIA H200, driver 580.159.04, measured: gpu-1 is quarantined (the card is lost)" {
		t.Errorf("%q", got)
	}
	working := agent
	working.ID, working.State = "gpu-2", proto.AgentBusy
	if got := resting(aSweep(), []proto.AgentInfo{agent, working}); len(got) != 0 {
		t.Errorf("%q, though one works", got)
	}
}

func TestAgentTable(t *testing.T) {
	var out bytes.Buffer
	agents := []proto.AgentInfo{
		{ID: "sim-84a9b184d374ab49", Origin: proto.OriginSimulated, State: proto.AgentBusy, Task: "s-7cf03ea0e1961083227e0a64db4f7166-1", SeenUnixMS: time.Now().UnixMilli(),
			Stack: proto.Stack{GPU: "NVIDIA H200", Driver: "580.159.04-synthetic", Torch: "2.11.0+cu130"}, Card: proto.Card{Total: 143155 * proto.MiB}},
		{ID: "gpu-1b2c", Host: "node-7", Origin: proto.OriginMeasured, State: proto.AgentQuarantined, Reason: "the card is lost"},
	}
	if err := agentTable(&out, agents); err != nil {
		t.Fatal(err)
	}
	narrow(t, out.String())
	if !strings.HasPrefix(out.String(), "2 agents: 1 busy, 1 quarantined\ngpu-1b2c on node-7 is quarantined: the card is lost\n\nAGENT") {
		t.Errorf("%s", out.String())
	}
}

// TestMisspelt: what may have been meant is named, also where the flags of the
// word that was meant follow it.
func TestMisspelt(t *testing.T) {
	for args, says := range map[string]string{
		"quotta":                             `unknown command "quotta" for "fleetctl"; did you mean quota?`,
		"quota recomend --seq-len 384":       `unknown command "recomend" for "fleetctl quota"; did you mean recommend?`,
		"quota recommend --seqlen 384":       "unknown flag: --seqlen; did you mean --seq-len?",
		"matrix statsu x --wait":             `unknown command "statsu" for "fleetctl matrix"; did you mean status?`,
		"trace boundary -":                   "not read from stdin",
		"quota max-seq-len --quota 24":       "less than any run takes: amounts are bytes, or a number with MiB or GiB",
		"doctor --nonsense-without-neighbor": "unknown flag: --nonsense-without-neighbor; see fleetctl doctor --help",
	} {
		stdout, stderr, code := fleetctl(t, strings.Fields(args)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, says) {
			t.Errorf("%s: exit %d, %q; want %q", args, code, stderr, says)
		}
	}
}

// TestSweepByName: the newest sweep of a name is meant, and a misspelt one gets
// the name that is nearest.
func TestSweepByName(t *testing.T) {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		if err := writeJSON(w, v); err != nil {
			t.Error(err)
		}
	}
	old, newest := proto.MatrixRef{Name: "nightly", ID: "nightly-0ld"}, proto.MatrixRef{Name: "nightly", ID: "nightly-2794c5ed"}
	mux.HandleFunc("GET /v1/sweeps", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"sweeps": []registry.Summary{{Matrix: newest, Submitted: time.Now().Add(-2 * time.Minute)}, {Matrix: old}}})
	})
	mux.HandleFunc("GET /v1/agents", func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]any{"agents": []string{}}) })
	mux.HandleFunc("GET /v1/sweeps/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == string(newest.ID) {
			answer(w, aSweep())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"code":"not_found","message":"there is no such sweep"}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	stdout, stderr, code := fleetctl(t, "matrix", "status", "nightly", "--server", server.URL)
	if code != exitOK || !strings.HasPrefix(stdout, "nightly-2794c5ed (measured): running") || strings.Contains(stdout, " left\n") {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
	if !strings.Contains(stderr, "1 cell waits for an agent of NVIDIA H200, driver 580.159.04, measured: none is announced") {
		t.Errorf("%s", stderr)
	}
	_, stderr, code = fleetctl(t, "matrix", "status", "nigthly", "--server", server.URL)
	if code != exitUsage || !strings.Contains(stderr, "did you mean nightly?") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// TestNobodyAnswers: where no server was named, the answer says how to name one.
func TestNobodyAnswers(t *testing.T) {
	t.Setenv("OOMFLEET_SERVER", "")
	a := &app{}
	refused := fmt.Errorf("dial: %w", os.NewSyscallError("connect", syscall.ECONNREFUSED))
	if err := a.explain(refused); !strings.Contains(err.Error(), "--server or OOMFLEET_SERVER") {
		t.Errorf("%v", err)
	}
	a.server = "http://127.0.0.1:1"
	if err := a.explain(refused); strings.Contains(err.Error(), "--server") {
		t.Errorf("%v, though one was named", err)
	}
}

// TestTheMissingEightGiB is the article's question: the weights were asked for,
// and a process of 384 residues took half as much again.
func TestTheMissingEightGiB(t *testing.T) {
	stdout, stderr, code := fleetctl(t, "fit", "runs", "testdata/article_rtx5090.csv")
	if code != exitOK {
		t.Fatal(stderr)
	}
	narrow(t, stdout)
	if lines := strings.Count(stdout, "\n"); lines > 40 {
		t.Errorf("%d lines are more than one screen", lines)
	}
	text := strings.Join(strings.Fields(stdout), " ")
	for _, part := range []string{
		"384 1 13.36 7.24 3.60 0.10 24.30 8.30 over 16.00",
		"of the 16.00 GiB that are claimed as weights, 2.64 GiB are not there",
		"24.1 and 24.3 GiB at L384 B1",
		"36.0 GiB at L384 where 24.2 GiB were reserved (+49 %)",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%s\nlacks %q", stdout, part)
		}
	}
	// Real runs: what is claimed is what is there, and repeats are told once.
	stdout, stderr, code = fleetctl(t, "fit", "runs", "../../agent/sim/testdata/esmfold_h200_runs.jsonl")
	if code != exitOK || strings.Contains(stdout, "are not there") {
		t.Errorf("exit %d: %s%s", code, stderr, stdout)
	}
	first, _, _ := strings.Cut(stdout, "\n\n")
	if n := strings.Count(first, "  384     1      7.86     2.41 "); n != 1 {
		t.Errorf("L384 B1 is told %d times:\n%s", n, first)
	}
}

// TestCompletion: the shell is offered the values that a flag takes, and nothing
// where no fleet answers.
func TestCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"quota recommend --kind ":   "allocator\nprocess\ndevice\n",
		"quota recommend --format ": "table\njson\nslurm\nkubernetes\nhami\nmps\nenv\n",
		"matrix diff --format ":     "table\njson\nmarkdown\ncsv\n",
		"trace replay --cap-kind ":  "allocator\nprocess\ndevice\n",
		"matrix status ":            ":4\n",
	} {
		t.Setenv("OOMFLEET_SERVER", "http://127.0.0.1:1")
		stdout, stderr, code := fleetctl(t, append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if code != exitOK || !strings.HasPrefix(stdout, want) {
			t.Errorf("%s: exit %d, %q, %q; want %q", args, code, stdout, stderr, want)
		}
	}
}
