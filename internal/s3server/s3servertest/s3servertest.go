// Package s3servertest runs package s3server in a child process for tests: the
// test binary executes itself. It owns that child; the server behaves as the
// one that a fleet starts, and can be killed as one.
//
// A package that uses it calls Main first in its TestMain, then Start in tests.
package s3servertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/oomfleet/oomfleet/internal/s3server"
)

// Credentials of every server that Start starts.
const (
	AccessKey = "oomfleet-test"
	SecretKey = "a-secret-of-the-tests"
)

// childEnv carries the options to the child.
const childEnv = "OOMFLEET_TEST_S3_SERVER"

// ErrMount is returned by TryStart when this user may not mount a file system.
var ErrMount = errors.New("mount a small disk for the server")

// Options say how the child serves.
type Options struct {
	// Dir keeps the data; empty is a temporary folder of the test.
	Dir string
	// Addr is empty for a free port of the loopback interface.
	Addr string
	// AccountsDir keeps further accounts; empty for none.
	AccountsDir string
	// DiskBytes, when not 0, mounts an empty disk of that size on Dir, seen by
	// the child alone.
	DiskBytes int64
}

// Main turns the process into the server when it is the child; else it returns.
func Main() {
	text := os.Getenv(childEnv)
	if text == "" {
		return
	}
	var options Options
	if err := json.Unmarshal([]byte(text), &options); err != nil {
		panic(err) // our own text
	}
	if err := child(options); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child serves until standard input closes: when the parent stops it or dies.
func child(options Options) error {
	report := os.NewFile(3, "report")
	if options.DiskBytes > 0 {
		data := fmt.Sprintf("size=%d,mode=755", options.DiskBytes)
		if err := syscall.Mount("tmpfs", options.Dir, "tmpfs", 0, data); err != nil {
			return fmt.Errorf("%w: %w", ErrMount, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return s3server.Run(ctx, s3server.Config{
		Dir: options.Dir, Addr: options.Addr, AccessKey: AccessKey, SecretKey: SecretKey, AccountsDir: options.AccountsDir,
		Ready: func(addr string) { fmt.Fprintln(report, addr) },
	})
}

// Server is a running child.
type Server struct {
	// Addr is host:port; Dir where the data lies.
	Addr string
	Dir  string

	command *exec.Cmd
	stdin   io.Closer
	stdout  strings.Builder
	stderr  strings.Builder
	ended   bool
}

// URL is the server's address as a client wants it.
func (s *Server) URL() string { return "http://" + s.Addr }

// Stdout is what the child wrote to standard output; call it after Stop or Kill.
func (s *Server) Stdout() string { return s.stdout.String() }

// Start starts a server and waits until it listens; the test ends it.
func Start(t testing.TB, options Options) *Server {
	t.Helper()
	server, err := TryStart(t, options)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// TryStart is Start for a test that has another way when it fails.
func TryStart(t testing.TB, options Options) (*Server, error) {
	t.Helper()
	if options.Dir == "" {
		options.Dir = t.TempDir()
	}
	text, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	server := &Server{Dir: options.Dir, command: exec.Command("/proc/self/exe", "-test.run=^$")}
	server.command.Env = append(os.Environ(), childEnv+"="+string(text))
	server.command.Stdout, server.command.Stderr = &server.stdout, &server.stderr
	if options.DiskBytes > 0 {
		server.command.SysProcAttr = ownMounts()
	}
	if server.stdin, err = server.command.StdinPipe(); err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	server.command.ExtraFiles = []*os.File{write}
	err = server.command.Start()
	write.Close()
	if err != nil {
		if options.DiskBytes > 0 {
			err = fmt.Errorf("%w: %w", ErrMount, err)
		}
		return nil, err
	}
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil { // the child ended before it was ready
		errWait := server.command.Wait()
		if strings.Contains(server.stderr.String(), ErrMount.Error()) {
			errWait = fmt.Errorf("%w: %w", ErrMount, errWait)
		}
		return nil, fmt.Errorf("s3 server of the test: %w\n%s", errWait, server.stderr.String())
	}
	server.Addr = strings.TrimSpace(line)
	t.Cleanup(func() { server.end(server.stdin.Close) })
	return server, nil
}

// ownMounts gives a child mounts that nobody else sees; a user who is not root
// needs a user namespace of their own for that.
func ownMounts() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		attr.Cloneflags = syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

// Kill ends the server as a crash does (SIGKILL) and waits for it.
func (s *Server) Kill() { s.end(s.command.Process.Kill) }

// Stop ends the server in order and returns its exit error.
func (s *Server) Stop() error { return s.end(s.stdin.Close) }

func (s *Server) end(how func() error) error {
	if s.ended {
		return nil
	}
	s.ended = true
	if err := how(); err != nil {
		return err
	}
	return s.command.Wait()
}
