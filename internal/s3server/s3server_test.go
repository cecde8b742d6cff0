package s3server_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/oomfleet/oomfleet/internal/s3server"
	"github.com/oomfleet/oomfleet/internal/s3server/s3servertest"
	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/s3x"
)

func TestMain(m *testing.M) {
	s3servertest.Main()
	os.Exit(m.Run())
}

func canary(t *testing.T, server *s3servertest.Server) {
	t.Helper()
	driver, err := s3x.Open(t.Context(), s3x.Config{
		URL: server.URL(), Bucket: "traces", AccessKey: s3servertest.AccessKey, SecretKey: s3servertest.SecretKey})
	if err != nil {
		t.Fatal(err)
	}
	defer driver.Close()
	if err := trace.NewStore(driver).Canary(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestServes(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, dir string){
		"attributes or not, as the disk allows": func(*testing.T, string) {},
		"metadata beside the buckets": func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, "metadata"), 0o755); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			prepare(t, dir)
			server := s3servertest.Start(t, s3servertest.Options{Dir: dir})
			canary(t, server)
			if err := server.Stop(); err != nil {
				t.Errorf("exit: %v", err)
			}
			if out := server.Stdout(); out != "" {
				t.Errorf("the server wrote to standard output: %q", out)
			}
			again := s3servertest.Start(t, s3servertest.Options{Dir: dir, Addr: server.Addr})
			if again.Addr != server.Addr {
				t.Errorf("address %s, asked for %s", again.Addr, server.Addr)
			}
			canary(t, again)
		})
	}
}

func TestRefuses(t *testing.T) {
	t.Run("no credentials", func(t *testing.T) {
		if err := s3server.Run(t.Context(), s3server.Config{Dir: t.TempDir()}); err == nil {
			t.Error("no error")
		}
	})
	t.Run("a port that is taken", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		_, err = s3servertest.TryStart(t, s3servertest.Options{Addr: listener.Addr().String()})
		if err == nil || !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a folder that is a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		err := s3server.Run(context.Background(), s3server.Config{Dir: file, AccessKey: "a", SecretKey: "b"})
		if !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("error %v", err)
		}
	})
}
