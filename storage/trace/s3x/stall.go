package s3x

import (
	"context"
	"net"
	"time"
)

// stallAfter is how long a connection may carry nothing in either direction: the
// store's answer has to begin within a minute, and an idle connection is closed
// after one. A store that stops in the middle of an object would else keep
// whoever reads it for as long as its machine lives.
const stallAfter = 2 * time.Minute

// dialer opens connections.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// restless is dial for connections that end when they stall.
func restless(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &restlessConn{conn}, nil
	}
}

// restlessConn ends reads and writes when nothing has moved for a while. What is
// written counts for a read too: an answer is waited for while a long body goes out.
type restlessConn struct{ net.Conn }

// Read implements net.Conn.
func (c *restlessConn) Read(p []byte) (int, error) {
	if err := c.Conn.SetReadDeadline(time.Now().Add(stallAfter)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write implements net.Conn.
func (c *restlessConn) Write(p []byte) (int, error) {
	if err := c.Conn.SetWriteDeadline(time.Now().Add(stallAfter)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if err != nil {
		return n, err
	}
	return n, c.Conn.SetReadDeadline(time.Now().Add(stallAfter))
}
