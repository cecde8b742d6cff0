package raftnode

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are made in memory.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return address("pipe:1") }

// TestSilentPeers: a connection to the raft port that says nothing ends by itself;
// one that has spoken may be silent for as long as it likes.
func TestSilentPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes{make(chan net.Conn, 1)}
		s, err := listen(Config{Listener: p})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		accept := func() (conn, other net.Conn) {
			mine, other := net.Pipe()
			p.conns <- mine
			conn, err := s.Accept()
			if err != nil {
				t.Fatal(err)
			}
			return conn, other
		}
		conn, other := accept()
		defer other.Close()
		began := time.Now() // the bubble's
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != ioTimeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		conn, other = accept()
		go func() {
			for range 2 {
				other.Write([]byte{0}) //nolint:errcheck // it is read, or the test fails
				<-time.After(10 * ioTimeout)
			}
			other.Close()
		}()
		for range 2 {
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				t.Fatalf("%v after %v", err, time.Since(began))
			}
		}
		<-time.After(20 * ioTimeout) // the writer ends
	})
}
