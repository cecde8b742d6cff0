package dir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/dir"
	"github.com/oomfleet/oomfleet/storage/trace/tracetest"
)

func open(t *testing.T, root string) *dir.Driver {
	t.Helper()
	d, err := dir.New(root)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDriver(t *testing.T) {
	tracetest.Run(t, func(t *testing.T) trace.Driver { return open(t, t.TempDir()) })
}

func TestRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.New(file); !errors.Is(err, trace.ErrRefused) {
		t.Errorf("a root that is a file: %v", err)
	}
	root := t.TempDir()
	d := open(t, root)
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	if err := trace.NewStore(d).Canary(t.Context()); !errors.Is(err, trace.ErrRefused) || errors.Is(err, trace.ErrNotFound) {
		t.Errorf("a root that has gone: %v", err)
	}
}

func TestUnfinishedWrites(t *testing.T) {
	root := t.TempDir()
	open(t, root)
	old, young := filepath.Join(root, ".tmp", "put-old"), filepath.Join(root, ".tmp", "put-young")
	for _, path := range []string{old, young} {
		if err := os.WriteFile(path, []byte("part"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	d := open(t, root)
	for object, err := range d.List(t.Context(), "") {
		t.Errorf("an unfinished write is listed: %v, %v", object, err)
	}
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("two days old: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("just written: %v", err)
	}
}

// fullEnv makes the test binary store a trace under a file size limit.
const fullEnv = "OOMFLEET_TEST_DIR_FULL"

func TestMain(m *testing.M) {
	if root := os.Getenv(fullEnv); root != "" {
		os.Exit(storeUnderLimit(root))
	}
	os.Exit(m.Run())
}

// storeUnderLimit returns 0 when storing too much fails with ErrFull and leaves
// nothing. A limit on the size of files stands for a full disk: it needs no
// rights and fails in the middle of the write as well.
func storeUnderLimit(root string) int {
	const limit = 100 << 10
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		fmt.Println(err)
		return 2
	}
	d, err := dir.New(root)
	if err != nil {
		fmt.Println(err)
		return 2
	}
	ctx, content := context.Background(), bytes.Repeat([]byte("x"), 2*limit)
	err = d.Put(ctx, "full/x", bytes.NewReader(content), trace.Info{Size: 2 * limit})
	_, errStat := d.Stat(ctx, "full/x")
	if !errors.Is(err, trace.ErrFull) || !errors.Is(errStat, trace.ErrNotFound) {
		fmt.Println("put:", err, "stat:", errStat)
		return 1
	}
	return 0
}

func TestFull(t *testing.T) {
	root := t.TempDir()
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(), fullEnv+"="+root)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	left, err := os.ReadDir(filepath.Join(root, ".tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
