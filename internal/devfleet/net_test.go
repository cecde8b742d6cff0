package devfleet

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
)

// network is what lies between the processes of a fleet: a relay for each pair
// that talks, which can be cut. What is sent while it is cut arrives later, as
// with packets that are sent again, unless one side gives up.
type network struct {
	t      *testing.T
	ctx    context.Context
	joined sync.WaitGroup

	mu    sync.Mutex // guards wires
	wires map[string]*wire
}

// wire is the relay from one process to another.
type wire struct {
	net.Listener
	to string // the real address

	mu  sync.Mutex    // guards cut
	cut chan struct{} // nil, or closed when it is mended
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n := &network{t: t, ctx: ctx, wires: map[string]*wire{}}
	t.Cleanup(func() {
		cancel()
		n.mu.Lock()
		for _, w := range n.wires {
			w.Close()
		}
		n.mu.Unlock()
		n.joined.Wait()
	})
	return n
}

// via is a Config.Via.
func (n *network) via(from, to, address string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	w := &wire{Listener: l, to: address}
	n.wires[from+" "+to] = w
	n.joined.Go(func() { n.serve(w) })
	return l.Addr().String(), nil
}

func (n *network) serve(w *wire) {
	for {
		conn, err := w.Accept()
		if err != nil {
			return
		}
		n.joined.Go(func() { n.relay(w, conn) })
	}
}

// relay carries one connection. Either side's end ends it.
func (n *network) relay(w *wire, near net.Conn) {
	defer near.Close()
	if !w.whole(n.ctx) {
		return
	}
	far, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer far.Close()
	stop := context.AfterFunc(n.ctx, func() { near.Close(); far.Close() })
	defer stop()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			defer way[1].Close()
			defer way[0].Close()
			buf := make([]byte, 32<<10)
			for {
				got, err := way[0].Read(buf)
				if got > 0 && w.whole(n.ctx) {
					if _, err := way[1].Write(buf[:got]); err != nil {
						return
					}
				}
				if err != nil || n.ctx.Err() != nil {
					return
				}
			}
		})
	}
	both.Wait()
}

// whole waits until the wire is whole, and is false when ctx ends first.
func (w *wire) whole(ctx context.Context) bool {
	for {
		w.mu.Lock()
		cut := w.cut
		w.mu.Unlock()
		if cut == nil {
			return ctx.Err() == nil
		}
		select {
		case <-cut:
		case <-ctx.Done():
			return false
		}
	}
}

// cut cuts a process off from all others, in both directions; mend mends it.
func (n *network) cut(name string)  { n.each(name, (*wire).sever) }
func (n *network) mend(name string) { n.each(name, (*wire).mend) }

func (n *network) each(name string, do func(*wire)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := false
	for ends, w := range n.wires {
		if strings.HasPrefix(ends, name+" ") || strings.HasSuffix(ends, " "+name) {
			do(w)
			found = true
		}
	}
	if !found {
		n.t.Errorf("the network knows no %s", name)
	}
}

func (w *wire) sever() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut == nil {
		w.cut = make(chan struct{})
	}
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut != nil {
		close(w.cut)
		w.cut = nil
	}
}
