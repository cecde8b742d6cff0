package devfleet

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/internal/config"
	"github.com/oomfleet/oomfleet/storage/raftnode"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// status is what `cluster status` says of a fleet.
func (w *world) status() api.ClusterStatus {
	w.t.Helper()
	return ask[api.ClusterStatus](w, "cluster", "status")
}

// member is one line of the status; nil for none.
func (w *world) member(id string) *api.ClusterMember {
	w.t.Helper()
	status, err := w.client().Cluster(w.t.Context())
	if err != nil {
		return nil
	}
	for _, m := range status.Members {
		if m.ID == id {
			return &m
		}
	}
	return nil
}

// coordinator runs a coordinator beside the fleet, with a configuration of its
// own.
func (w *world) coordinator(id string, change func(*config.Fleet)) (*begun, string) {
	w.t.Helper()
	own := w.conf
	own.Coordinators = append([]config.Coordinator{}, own.Coordinators...)
	change(&own)
	file := filepath.Join(w.t.TempDir(), "fleet.yaml")
	if err := own.Write(file); err != nil {
		w.t.Fatal(err)
	}
	for _, pair := range w.keys { // of the trace store
		name, value, _ := strings.Cut(pair, "=")
		w.t.Setenv(name, value)
	}
	return begin(w.t, w.program, "coordinator", "--config", file, "--id", id, "--child"), file
}

// places are two free addresses, for raft and API.
func places(t *testing.T) (raft, url string) {
	t.Helper()
	raft, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	at, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return raft, "http://" + at
}

// TestClusterCommands: a fourth coordinator joins, one moves, one is removed, all
// while a sweep goes on; and at the end everything agrees.
func TestClusterCommands(t *testing.T) {
	w := start(t, Config{Coordinators: 3})
	id := w.submit()
	w.midway(id)
	if s := w.status(); s.Voters != 3 || s.Answering != 3 || s.MayLose != 1 || s.Alarm || s.Leader == "" {
		t.Errorf("status %+v", s)
	}
	// A fourth: it waits, is added without a vote, and is given one.
	raft, url := places(t)
	_, file := w.coordinator("d", func(f *config.Fleet) {
		f.Coordinators = append(f.Coordinators, config.Coordinator{ID: "d", Raft: raft, API: url, DataDir: t.TempDir(), Join: true})
	})
	await(t, "the fourth can be added", func() bool { return w.cli("cluster", "join", "d", "--config", file).code == 0 })
	await(t, "the fourth votes", func() bool { m := w.member("d"); return m != nil && m.Voter && m.Role == "follower" && m.API == url })
	// One that is not there is refused, and changes nothing.
	if s := w.cli("cluster", "join", "e", "--raft", "127.0.0.1:1", "--api", "http://127.0.0.1:2"); s.code == 0 || !strings.Contains(s.errors, "start it first") {
		t.Errorf("join a dead one: %d %s", s.code, s.errors)
	}
	// A follower moves: only its own file names the new addresses.
	var moving string
	for _, c := range w.conf.Coordinators {
		if c.ID != w.leader() {
			moving = c.ID
		}
	}
	w.down("coordinator-" + moving)
	raft, url = places(t)
	_, file = w.coordinator(moving, func(f *config.Fleet) {
		for i := range f.Coordinators {
			if f.Coordinators[i].ID == moving {
				f.Coordinators[i].Raft, f.Coordinators[i].API = raft, url
			}
		}
	})
	await(t, "the others are told", func() bool { return w.cli("cluster", "join", moving, "--config", file).code == 0 })
	await(t, "the member that moved follows", func() bool {
		m := w.member(moving)
		return m != nil && m.Voter && m.Role == "follower" && m.RaftAddr == raft && m.API == url
	})
	// The leader goes: it hands over first.
	leader := w.leader()
	if s := w.cli("cluster", "remove", leader); s.code != 0 {
		t.Fatalf("remove the leader: %s", s.errors)
	}
	if s := w.cli("cluster", "remove", leader); s.code != 2 || !strings.Contains(s.errors, "no such member") {
		t.Errorf("remove it again: %d %s", s.code, s.errors)
	}
	w.down("coordinator-" + leader)
	report := w.finish(id)
	await(t, "all agree", func() bool {
		s := w.status()
		for _, m := range s.Members {
			if m.State != "same" {
				return false
			}
		}
		return len(s.Members) == 3 && s.Answering == 3 && !s.Alarm
	})
	if text := w.cli("cluster", "status").out; !strings.Contains(text, "3 of 3 voters answer, 1 more may be lost") {
		t.Errorf("status says\n%s", text)
	}
	if why := differ(undisturbedReport(t), report); why != "" {
		t.Error(why)
	}
}

// TestClusterRecovered: two of three coordinators are lost with their disks. The
// third becomes a cluster of its own, and an empty one joins it.
func TestClusterRecovered(t *testing.T) {
	w := start(t, Config{Coordinators: 3})
	id := w.submit()
	w.midway(id)
	w.sameState()
	survivor, lost := w.conf.Coordinators[0], w.conf.Coordinators[1:]
	w.down("coordinator-"+survivor.ID, "coordinator-"+lost[0].ID, "coordinator-"+lost[1].ID)
	for _, c := range lost {
		if err := os.RemoveAll(c.DataDir); err != nil {
			t.Fatal(err)
		}
	}
	alone := []string{"cluster", "recover", "--config", w.ConfigFile(), "--id", survivor.ID}
	if s := w.cli(alone...); s.code != 2 || !strings.Contains(s.errors, "--yes") {
		t.Errorf("without being sure: %d %s", s.code, s.errors)
	}
	done := ask[raftnode.Recovered](w, append(alone, "--yes")...)
	if len(done.Was) != 3 {
		t.Errorf("recovered %+v", done)
	}
	w.up("coordinator-" + survivor.ID)
	await(t, "the survivor leads", func() bool {
		s, err := w.client(survivor.API).Status(t.Context())
		return err == nil && s.Leader == survivor.ID
	})
	again := lost[0]
	w.coordinator(again.ID, func(f *config.Fleet) {
		for i := range f.Coordinators[1:] {
			f.Coordinators[i+1].Join = true
		}
	})
	await(t, "an empty one joins", func() bool {
		return w.cli("cluster", "join", again.ID, "--raft", again.Raft, "--api", again.API).code == 0
	})
	report := w.finish(id)
	await(t, "it has all and votes", func() bool {
		m := w.member(again.ID)
		return m != nil && m.Voter && m.State == "same"
	})
	if why := differ(undisturbedReport(t), report); why != "" {
		t.Error(why)
	}
	// Backup and restore are here as well.
	file := filepath.Join(t.TempDir(), "backup")
	if s := w.cli("cluster", "backup", "-o", file); s.code != 0 {
		t.Errorf("backup: %s", s.errors)
	}
	if r := ask[registry.Restored](w, "cluster", "restore", "--force", file); r.Cells != smallCells {
		t.Errorf("restored %+v", r)
	}
}

// TestLeaderStops: a leader that is asked to end hands over, so that nobody has
// to notice its death first.
func TestLeaderStops(t *testing.T) {
	w := start(t, Config{Coordinators: 3, Agents: 1})
	leader := w.leader()
	w.sameState()
	starts := w.Starts("coordinator-" + leader)
	if _, err := w.Signal("coordinator-"+leader, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await(t, "it has ended and is back", func() bool { return w.Starts("coordinator-"+leader) > starts })
	if text := w.logs()["coordinator-"+leader]; strings.Contains(text, "leadership was not handed over") {
		t.Errorf("the leader did not hand over:\n%s", text)
	}
	await(t, "there is a leader again", func() bool { _, err := w.writer().write(t.Context()); return err == nil })
}
