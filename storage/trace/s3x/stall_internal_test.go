package s3x

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// pair is a restless connection, and its other end.
func pair(t *testing.T) (conn, other net.Conn) {
	t.Helper()
	mine, other := net.Pipe()
	conn, err := restless(func(context.Context, string, string) (net.Conn, error) { return mine, nil })(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		other.Close()
	})
	return conn, other
}

// TestStalledStore: a store that stops in the middle, or takes no more, ends the
// request; one that is slow does not, however long it takes.
func TestStalledStore(t *testing.T) {
	for name, test := range map[string]func(conn, other net.Conn) (error, time.Duration){
		"it says no more": func(conn, other net.Conn) (error, time.Duration) {
			go other.Write([]byte("half")) //nolint:errcheck // it is read, or the test fails
			_, err := io.ReadAll(conn)
			return err, stallAfter
		},
		"it takes no more": func(conn, _ net.Conn) (error, time.Duration) {
			_, err := conn.Write([]byte("x"))
			return err, stallAfter
		},
		"it is slow to say": func(conn, other net.Conn) (error, time.Duration) {
			go func() {
				for range 10 {
					<-time.After(stallAfter - time.Second) // the bubble's time
					other.Write([]byte("x"))               //nolint:errcheck // it is read, or the test fails
				}
			}()
			_, err := io.ReadAll(conn)
			return err, 10*(stallAfter-time.Second) + stallAfter
		},
		"it is slow to take": func(conn, other net.Conn) (error, time.Duration) {
			read := make(chan error, 1)
			go func() { // as a transport does, which waits for an answer all the time
				_, err := conn.Read(make([]byte, 1))
				read <- err
			}()
			go func() {
				for range 10 {
					<-time.After(stallAfter - time.Second) // the bubble's time
					other.Read(make([]byte, 1))            //nolint:errcheck // it is written, or the test fails
				}
			}()
			for range 10 {
				if _, err := conn.Write([]byte("x")); err != nil {
					return err, 0
				}
			}
			return <-read, 10*(stallAfter-time.Second) + stallAfter
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, other := pair(t)
				began := time.Now()
				if err, after := test(conn, other); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != after {
					t.Errorf("%v after %v, want the end after %v", err, time.Since(began), after)
				}
			})
		})
	}
}

// TestClientIsRestless: the driver's connections are such.
func TestClientIsRestless(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	d, err := New(Config{URL: "http://" + listener.Addr().String(), Bucket: "traces", AccessKey: "a", SecretKey: "b"})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := d.transport.DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, ok := conn.(*restlessConn); !ok {
		t.Errorf("a %T", conn)
	}
}
