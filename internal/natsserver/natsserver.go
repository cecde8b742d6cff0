// Package natsserver owns one embedded nats-server with JetStream: the queue of
// `fleetctl dev` (as a process of its own, a re-execution of fleetctl) and of
// tests. It refuses to be more: no cluster and no accounts. Whoever needs those
// runs nats-server itself and gives its URL. It also refuses to listen beyond
// this machine without TLS and users.
//
// Start reading at Run.
package natsserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// startLimit is how long the server may take to listen. Recovering a store with
// 100,000 messages takes about 0.2 s; a cold disk may need many times that.
const startLimit = 60 * time.Second

// Config says where a server keeps its data and where it listens.
type Config struct {
	// Dir holds the streams; it is made if it is missing. Required.
	Dir string
	// Addr is "host:port"; empty is 127.0.0.1:0, and port 0 takes a free one.
	// Anything but loopback needs UsersFile, CertFile and KeyFile.
	Addr string
	// UsersFile is a nats-server configuration whose authorization block names
	// the users; nothing else in it counts. Empty lets everybody in.
	UsersFile string
	// CertFile and KeyFile are PEM files; with them only TLS is spoken.
	CertFile, KeyFile string
	// Ready is called once with the server's URL ("nats://127.0.0.1:41234")
	// when clients can connect and JetStream is up. nil: not called.
	Ready func(url string)
	// MaxPayload is the largest message in bytes, headers included; 0 is 1 MiB.
	MaxPayload int32
	// SyncLater leaves flushing to disk to a timer (2 min), nats-server's own
	// default: faster, and what was acknowledged can be lost with the machine.
	// The zero value syncs before every acknowledgement.
	SyncLater bool
	// Log receives the server's own lines; nil drops them. Nothing is ever
	// written to stdout or stderr by this package.
	Log *slog.Logger
}

// Validate returns every problem of c at once.
func (c Config) Validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("no data folder"))
	}
	if c.MaxPayload < 0 {
		errs = append(errs, fmt.Errorf("max payload %d is negative", c.MaxPayload))
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		errs = append(errs, errors.New("cert file and key file go together"))
	}
	host, _, err := splitAddr(c.Addr)
	if err != nil {
		errs = append(errs, err)
	}
	if ip := net.ParseIP(host); err == nil && host != "localhost" && (ip == nil || !ip.IsLoopback()) && (c.UsersFile == "" || c.CertFile == "") {
		errs = append(errs, fmt.Errorf("address %q leaves this machine: name users, a certificate and its key", c.Addr))
	}
	return errors.Join(errs...)
}

// Run starts the server and blocks until ctx ends; then it stops the server,
// waits for it and returns nil. Every other end is an error: the address is in
// use, the folder cannot be written or belongs to another running server, the
// server stopped by itself.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("nats server: %w", err)
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return fmt.Errorf("nats server: %w", err)
	}
	unlock, err := lock(dir)
	if err != nil {
		return fmt.Errorf("nats server: %w", err)
	}
	defer unlock()

	log := newLogger(cfg.Log)
	opts := options(cfg, dir)
	if err := secure(cfg, opts); err != nil {
		return fmt.Errorf("nats server: %w", err)
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("nats server: %w", err)
	}
	srv.SetLoggerV2(log, false, false, false)
	// Start recovers the streams, listens and returns. It runs beside us, since
	// its failures come as log lines only; its own goroutines end with Shutdown.
	started := make(chan struct{})
	go func() { defer close(started); srv.Start() }()
	defer func() {
		<-started // a Shutdown in the middle of Start leaves half of it running
		srv.Shutdown()
		srv.WaitForShutdown()
	}()

	if err := waitReady(ctx, srv, log); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("nats server on %s: %w", cfg.Addr, err)
	}
	if cfg.Ready != nil {
		cfg.Ready(srv.ClientURL())
	}
	ended := make(chan struct{})
	go func() { defer close(ended); srv.WaitForShutdown() }()
	select {
	case <-ctx.Done():
		return nil
	case <-log.fatal:
		return fmt.Errorf("nats server: %s", log.reason())
	case <-ended:
		return errors.New("nats server: stopped by itself")
	}
}

func options(cfg Config, dir string) *server.Options {
	host, port, _ := splitAddr(cfg.Addr) // Validate has seen it
	if port == 0 {
		port = server.RANDOM_PORT
	}
	opts := &server.Options{
		ServerName: "oomfleet", Host: host, Port: port,
		JetStream: true, StoreDir: dir, SyncAlways: !cfg.SyncLater,
		MaxPayload: server.MAX_PAYLOAD_SIZE,
		NoSigs:     true, DisableJetStreamBanner: true,
	}
	if cfg.MaxPayload > 0 {
		opts.MaxPayload = cfg.MaxPayload
		// A payload may not be larger than what one client may have pending.
		opts.MaxPending = max(server.MAX_PENDING_SIZE, int64(cfg.MaxPayload)*2)
	}
	return opts
}

// waitReady waits for the listener in short rounds, since nats-server offers no
// event for it, and gives up as soon as the server has logged a fatal line.
func waitReady(ctx context.Context, srv *server.Server, log *logger) error {
	const round = 50 * time.Millisecond
	for waited := time.Duration(0); waited < startLimit; waited += round {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-log.fatal:
			return errors.New(log.reason())
		default:
		}
		if srv.ReadyForConnections(round) && srv.JetStreamEnabled() {
			return nil
		}
	}
	return fmt.Errorf("not ready after %s", startLimit)
}

// lock keeps two servers out of one folder, which nats-server itself does not:
// both would write the same block files. The kernel drops it with the process.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "LOCK"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("folder %s is in use by another server: %w", dir, err)
	}
	return func() { f.Close() }, nil
}

func splitAddr(addr string) (host string, port int, err error) {
	if addr == "" {
		return "127.0.0.1", 0, nil
	}
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: %w", addr, err)
	}
	if host == "" {
		host = "127.0.0.1" // never all interfaces by omission
	}
	port, err = strconv.Atoi(text)
	if err != nil || port < 0 || port > math.MaxUint16 {
		return "", 0, fmt.Errorf("address %q: port must be 0 to 65535", addr)
	}
	return host, port, nil
}
