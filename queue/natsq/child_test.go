package natsq_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/oomfleet/oomfleet/internal/natsserver"
)

// serveDir and serveAddr in the environment turn the test binary into a server:
// a process of its own is the only one that can be killed in earnest.
const (
	serveDir  = "OOMFLEET_TEST_NATS_DIR"
	serveAddr = "OOMFLEET_TEST_NATS_ADDR"
)

// serve runs the server if this process is one, until its stdin ends: then the
// test is over, however it ended.
func serve() bool {
	dir := os.Getenv(serveDir)
	if dir == "" {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	err := natsserver.Run(ctx, natsserver.Config{Dir: dir, Addr: os.Getenv(serveAddr), Ready: func(url string) { fmt.Println(url) }})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// child is a server process that can be killed and started again on the same
// data and port.
type child struct {
	t   *testing.T
	dir string
	url string
	cmd *exec.Cmd
	in  io.Closer
}

func startChild(t *testing.T) *child {
	t.Helper()
	c := &child{t: t, dir: t.TempDir()}
	c.start()
	t.Cleanup(c.kill)
	return c
}

func (c *child) start() {
	c.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	c.cmd = exec.Command(exe)
	c.cmd.Env = append(os.Environ(), serveDir+"="+c.dir, serveAddr+"="+strings.TrimPrefix(c.url, "nats://"))
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.in = in
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		c.t.Fatalf("server process said nothing: %v", err)
	}
	c.url = strings.TrimSpace(line)
}

// kill is kill -9, and the wait for it.
func (c *child) kill() {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Kill() // it may be dead already
	var exit *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		c.t.Error(err)
	}
	_ = c.in.Close()
	c.cmd = nil
}

// patience bounds what is expected to happen, on a machine that is busy with
// much else too. Nothing waits for it in full but a failure.
const patience = 3 * time.Minute

// within bounds a test's waits.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
