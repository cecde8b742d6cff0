package devfleet

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are given out below those that outgoing connections take, 32768 and up
// on Linux: a client that connects anywhere, or again and again to a server that
// is down, must not come to sit on the port that a server starts on next.
const (
	lowestPort  = 10000
	highestPort = 32767
	portTries   = 100
)

// freePort is an address of this machine on which nothing listens now.
func freePort() (string, error) {
	var err error
	for range portTries {
		var l net.Listener
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", fmt.Errorf("find a free port between %d and %d: %w", lowestPort, highestPort, err)
}
