package raftnode

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/klauspost/compress/zstd"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// proposeUntilKilled is the child of TestKilledProcessLosesNothingAcked.
func proposeUntilKilled(dir string) error {
	n, err := Open(Config{ID: "n1", DataDir: dir})
	if err != nil {
		return err
	}
	for {
		now, changed := n.Leadership()
		if now.Leading {
			break
		}
		<-changed
	}
	if err := n.Barrier(context.Background()); err != nil {
		return err
	}
	for i := len(n.View().Sweeps); ; i++ {
		id := fmt.Sprintf("s-%d", i)
		if _, err := n.Propose(context.Background(), sweep(id, 2)); err != nil {
			return err
		}
		fmt.Println(id)
		if i%50 == 0 {
			if err := n.Snapshot(context.Background()); err != nil {
				return err
			}
		}
	}
}

func TestKilledProcessLosesNothingAcked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var acked []string
	for range 3 {
		acked = append(acked, killAfter(t, dir, 120)...)
	}
	view := lone(t, dir).View()
	for _, id := range acked {
		if view.Sweeps[proto.MatrixID(id)] == nil {
			t.Errorf("%s was acked and is lost", id)
		}
	}
	t.Logf("%d acked in 3 lives, %d there", len(acked), len(view.Sweeps))
}

// killAfter runs a child until it has acked n proposals, kills it with SIGKILL
// and returns all that it acked.
func killAfter(t *testing.T, dir string, n int) (acked []string) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir)
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr bytes.Buffer
	child.Stderr = &stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n') // a line without an end was not finished
		if err != nil {
			break
		}
		if acked = append(acked, strings.TrimSpace(line)); len(acked) == n {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := child.Wait(); err == nil || len(acked) < n {
		t.Fatalf("the child ended by itself after %d: %v\n%s", len(acked), err, stderr.String())
	}
	return acked
}

// twoSnapshots is a folder with two snapshots and some log behind the newest.
func twoSnapshots(t *testing.T) (dir, hash string) {
	t.Helper()
	dir = t.TempDir()
	n := lone(t, dir)
	for _, id := range []string{"a", "b"} {
		propose(t, n, sweep(id, 3))
		if err := n.Snapshot(patient(t)); err != nil {
			t.Fatal(err)
		}
	}
	propose(t, n, sweep("c", 3))
	hash = n.View().Hash()
	closeNode(t, n)
	return dir, hash
}

func TestDamagedSnapshotIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file   string
		damage func([]byte) []byte
	}{
		"state cut in half":       {"state.bin", func(b []byte) []byte { return b[:len(b)/2] }},
		"one byte of the state":   {"state.bin", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }},
		"an empty state":          {"state.bin", func([]byte) []byte { return nil }},
		"description cut in half": {"meta.json", func(b []byte) []byte { return b[:len(b)/2] }},
		"description of another version": {"meta.json", func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"Version":1`), []byte(`"Version":9`), 1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, hash := twoSnapshots(t)
			newest := newestSnapshot(t, dir)
			file := filepath.Join(newest, test.file)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, test.damage(text), 0o600); err != nil {
				t.Fatal(err)
			}
			refused(t, dir, file)
			// Step 3 of what it says.
			if err := os.Rename(newest, filepath.Join(t.TempDir(), "aside")); err != nil {
				t.Fatal(err)
			}
			if lone(t, dir).View().Hash() != hash {
				t.Fatal("the older snapshot and the log do not give the state")
			}
		})
	}
}

// refused opens a folder that must not open, and looks for the file's name and
// the steps; opened twice, because a refusal must leave everything as it was.
func refused(t *testing.T, dir, file string) (err error) {
	t.Helper()
	for range 2 {
		_, err = Open(Config{ID: "n1", DataDir: dir})
		if err == nil {
			t.Fatal("it started")
		}
		for _, want := range []string{file, "To recover:", dir} {
			if !strings.Contains(err.Error(), want) {
				t.Fatalf("no %q in %v", want, err)
			}
		}
	}
	return err
}

func TestSnapshotOfANewerBuildIsRefused(t *testing.T) {
	t.Parallel()
	dir, _ := twoSnapshots(t)
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, retained, newLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	addr, transport := raft.NewInmemTransport("n1")
	servers := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: addr}}}
	sink, err := files.Create(raft.SnapshotVersionMax, 1000, 1000, servers, 1, transport)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := zstd.NewWriter(sink)
	if err != nil {
		t.Fatal(err)
	}
	_, err = packed.Write([]byte(`{"format":"oomfleet-registry","version":2}` + "\n"))
	if err := errors.Join(err, packed.Close(), sink.Close()); err != nil {
		t.Fatal(err)
	}
	if err := refused(t, dir, "state.bin"); !errors.Is(err, registry.ErrSnapshotVersion) {
		t.Fatalf("got %v", err)
	}
}

func TestFolderWithAPartMissingIsRefused(t *testing.T) {
	t.Parallel()
	t.Run("the snapshots, and the log does not reach back", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		n := lone(t, dir)
		for _, id := range []string{"a", "b", "c"} {
			propose(t, n, sweep(id, 3))
		}
		reload := n.raft.ReloadableConfig()
		reload.TrailingLogs = 1
		if err := errors.Join(n.raft.ReloadConfig(reload), n.Snapshot(patient(t))); err != nil {
			t.Fatal(err)
		}
		closeNode(t, n)
		if err := os.RemoveAll(filepath.Join(dir, "snapshots")); err != nil {
			t.Fatal(err)
		}
		refused(t, dir, "the log begins at entry")
	})
	t.Run("the log", func(t *testing.T) {
		t.Parallel()
		dir, _ := twoSnapshots(t)
		if err := os.RemoveAll(filepath.Join(dir, "log")); err != nil {
			t.Fatal(err)
		}
		refused(t, dir, "the log that belongs to them is gone")
	})
	t.Run("the content of the log", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		n := lone(t, dir)
		propose(t, n, sweep("a", 3))
		closeNode(t, n)
		spoilLog(t, dir)
		refused(t, dir, filepath.Join(dir, "log"))
	})
	t.Run("the content of the log behind a snapshot", func(t *testing.T) {
		t.Parallel()
		dir, _ := twoSnapshots(t)
		spoilLog(t, dir)
		refused(t, dir, filepath.Join(dir, "log"))
	})
}

func spoilLog(t *testing.T, dir string) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, "log", "*.wal"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("%v %v", segments, err)
	}
	if err := os.WriteFile(segments[0], []byte("not a log"), 0o600); err != nil {
		t.Fatal(err)
	}
}
