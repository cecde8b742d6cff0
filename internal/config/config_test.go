package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func valid() Fleet {
	return Fleet{
		APIVersion: APIVersion, Queue: Queue{URL: "nats://127.0.0.1:4222"}, Traces: Traces{Dir: "/srv/traces"},
		Coordinators: []Coordinator{{ID: "a", Raft: "127.0.0.1:1", API: "http://127.0.0.1:2", DataDir: "/srv/a"}},
	}
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	want := valid()
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Queue != want.Queue || got.Traces != want.Traces || got.Coordinators[0] != want.Coordinators[0] {
		t.Errorf("got %+v", got)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Fleet)
		says   string
	}{
		"version":          {func(f *Fleet) { f.APIVersion = "v0" }, "apiVersion"},
		"queue":            {func(f *Fleet) { f.Queue.URL = "" }, "queue.url"},
		"both stores":      {func(f *Fleet) { f.Traces.URL = "http://s3:9000" }, "both url and dir"},
		"no store":         {func(f *Fleet) { f.Traces.Dir = "" }, "neither url"},
		"no bucket":        {func(f *Fleet) { f.Traces = Traces{URL: "http://s3:9000"} }, "bucket"},
		"relative dir":     {func(f *Fleet) { f.Traces.Dir = "traces" }, "absolute"},
		"two members":      {func(f *Fleet) { f.Coordinators = append(f.Coordinators, f.Coordinators[0]) }, "one or three"},
		"same id":          {func(f *Fleet) { f.Coordinators = append(f.Coordinators, f.Coordinators[0]) }, "stands twice"},
		"raft address":     {func(f *Fleet) { f.Coordinators[0].Raft = "localhost" }, "host:port"},
		"api without port": {func(f *Fleet) { f.Coordinators[0].API = "http://x" }, "URL with a port"},
		"no data":          {func(f *Fleet) { f.Coordinators[0].DataDir = "" }, "data_dir"},
		"offset": {func(f *Fleet) {
			f.Simulated = []SimulatedDriver{{Driver: "580.159.04", ContextOffset: "48MiB"}}
		}, "-synthetic"},
		"id":                       {func(f *Fleet) { f.Coordinators[0].ID = "A B" }, "lower-case"},
		"nobody forms the cluster": {func(f *Fleet) { f.Coordinators[0].Join = true }, "0 coordinators"},
		"heartbeat":                {func(f *Fleet) { f.Cluster.Heartbeat = time.Millisecond }, "cluster.heartbeat"},
		"removes too soon":         {func(f *Fleet) { f.Cluster.RemoveDeadAfter = time.Second }, "cluster.remove_dead_after"},
		"replicas":                 {func(f *Fleet) { f.Queue.Replicas = 7 }, "queue.replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			f := valid()
			c.change(&f)
			if err := f.Validate(); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want a sentence with %q", err, c.says)
			}
		})
	}
}

// TestLaterMembers: a member that joins later does not count for the number that
// forms the cluster.
func TestLaterMembers(t *testing.T) {
	f := valid()
	f.Coordinators = append(f.Coordinators, Coordinator{ID: "b", Raft: "127.0.0.1:3", API: "http://127.0.0.1:4", DataDir: "/srv/b", Join: true})
	f.Cluster.RemoveDeadAfter = -1
	if err := f.Validate(); err != nil {
		t.Error(err)
	}
}

func TestUnknownKeyIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	os.WriteFile(path, []byte("apiVersion: oomfleet/v1\nqueues: {}\n"), 0o600)
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "queues") {
		t.Errorf("got %v", err)
	}
}

func TestCoordinatorByID(t *testing.T) {
	f := valid()
	if c, err := f.Coordinator(""); err != nil || c.ID != "a" {
		t.Errorf("the only member: %v %v", c, err)
	}
	if _, err := f.Coordinator("b"); err == nil || !strings.Contains(err.Error(), "--id") {
		t.Errorf("unknown member: %v", err)
	}
}

// TestReadable: what is no configuration is told in words of the file.
func TestReadable(t *testing.T) {
	for text, want := range map[string]string{
		"": "the file is empty; deploy/fleet.yaml is one to start from",
		"foo: 1\nqueue: {bar: 2, lease: x}\ncoordinators:\n  - {id: a, zzz: 1}\n": "line 1: there is no key \"foo\" here\nline 2: there is no key \"bar\" here\n" +
			"line 2: \"x\" does not fit here; a time is a number with a unit, like 30s or 5m\nline 4: there is no key \"zzz\" here",
		"queue: [1]\n":         "line 1: a list does not fit here; it takes keys with values",
		"coordinators: 5\n":    "line 1: \"5\" does not fit here; it takes a list",
		"apiVersion: {a: b}\n": "line 1: a mapping does not fit here; it takes a single value",
		"insecure: maybe\n":    "line 1: \"maybe\" does not fit here; it takes true or false",
		"a: [\n":               "line 2: did not find expected node content",
	} {
		if _, err := Parse([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q:\n%v\nwant\n%s", text, err, want)
		}
	}
}
