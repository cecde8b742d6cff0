package raftnode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// stream is raft's way to the other servers. It knows every connection that it
// opened or accepted, so that closing it ends them all; raft's transport would
// leave some open, with a goroutine each, until the other side goes away.
type stream struct {
	net.Listener
	advertised net.Addr    // what the others know this server by
	tls        *tls.Config // for dialing; nil for none
	accept     *tls.Config // the same for accepting, see serverTLS
	ctx        context.Context
	stop       context.CancelFunc
	stand      atomic.Pointer[func(context.Context, question) standing] // nil until the node is open
	hosts      atomic.Pointer[func() []string]                          // of members; nil until the node is open

	mu    sync.Mutex // guards conns
	conns map[net.Conn]bool
}

// listen opens the raft port. Raft passes no context to Dial, so the stream has
// one of its own: it ends with the stream, and with it dials that are under way.
func listen(cfg Config) (*stream, error) {
	listener := cfg.Listener
	if listener == nil {
		var err error
		if listener, err = net.Listen("tcp", cfg.listenAddr()); err != nil {
			return nil, fmt.Errorf("listen for raft: %w", err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &stream{Listener: listener, advertised: listener.Addr(), tls: cfg.TLS, ctx: ctx, stop: stop, conns: map[net.Conn]bool{}}
	if own := cfg.own(); own != nil {
		s.advertised = address(own.RaftAddr)
	}
	s.accept = serverTLS(cfg.TLS, func() []string {
		if hosts := s.hosts.Load(); hosts != nil {
			return (*hosts)()
		}
		return hostsOf(cfg, s.advertised)
	})
	return s, nil
}

// address is host:port as configured; a listener on all interfaces has no
// address of its own that would tell two servers apart.
type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// Addr is what this server calls itself among the others.
func (s *stream) Addr() net.Addr { return s.advertised }

// Accept waits for the next connection of another server. One that does not say
// anything, or shows no certificate, ends by itself: raft reads from each for as
// long as it is open, and servers speak as soon as they have dialed.
func (s *stream) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(ioTimeout)) // on a connection that has ended already its reader sees that
	if s.accept != nil {
		conn = tls.Server(conn, s.accept)
	}
	return s.track(conn, true)
}

// Dial connects to another server.
func (s *stream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	var dialer net.Dialer
	dial := dialer.DialContext
	if s.tls != nil {
		dial = (&tls.Dialer{NetDialer: &dialer, Config: s.tls}).DialContext
	}
	conn, err := dial(ctx, "tcp", string(address))
	if err != nil {
		return nil, err
	}
	return s.track(conn, false)
}

func (s *stream) track(conn net.Conn, accepted bool) (net.Conn, error) {
	tracked := &trackedConn{Conn: conn, stream: s, fresh: accepted}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	s.conns[tracked] = true
	return tracked, nil
}

// Close ends listening, dialing and every connection. It may be called again.
func (s *stream) Close() error {
	s.stop()
	err := s.Listener.Close()
	s.mu.Lock()
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	for conn := range conns {
		_ = conn.Close() // its reader sees the end; there is nothing to save
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

type trackedConn struct {
	net.Conn
	stream *stream
	fresh  bool // accepted, and nothing was read yet; for the one that reads
}

// Read reads what is for raft. What is not, is answered here, and raft sees the
// connection end.
func (c *trackedConn) Read(p []byte) (int, error) {
	read, err := c.Conn.Read(p)
	if !c.fresh || read == 0 {
		return read, err
	}
	c.fresh = false
	if p[0] != askByte {
		_ = c.Conn.SetDeadline(time.Time{}) // what comes next may take its time
		return read, err
	}
	c.stream.answer(c.Conn, p[1:read])
	return 0, io.EOF
}

// Close closes the connection and forgets it.
func (c *trackedConn) Close() error {
	c.stream.mu.Lock()
	delete(c.stream.conns, c)
	c.stream.mu.Unlock()
	return c.Conn.Close()
}
