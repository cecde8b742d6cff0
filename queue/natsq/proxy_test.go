package natsq_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// proxy is a wire that can fall silent: connections stay open, and nothing
// passes any more. New connections pass. It can also end a connection instead of
// passing a word on.
type proxy struct {
	net.Listener
	target string
	wires  sync.WaitGroup

	mu     sync.Mutex // guards the rest
	frozen chan struct{}
	open   []net.Conn
	word   []byte // ends the connection that sends it, once; nil: none does
}

func startProxy(t *testing.T, url string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, target: strings.TrimPrefix(url, "nats://"), frozen: make(chan struct{})}
	p.wires.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, c := range p.open {
			c.Close()
		}
		p.mu.Unlock()
		p.wires.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		frozen := p.frozen
		p.open = append(p.open, client, server)
		p.mu.Unlock()
		p.wires.Go(func() { pass(client, server, frozen, func([]byte) bool { return false }) })
		p.wires.Go(func() { pass(server, client, frozen, p.cuts) })
	}
}

// freeze silences the connections that exist.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.frozen)
	p.frozen = make(chan struct{})
}

// cutAt ends the next connection that sends word to the server.
func (p *proxy) cutAt(word string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.word = []byte(word)
}

// armed reports whether the word of cutAt was not sent yet.
func (p *proxy) armed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.word != nil
}

func (p *proxy) cuts(data []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.word == nil || !bytes.Contains(data, p.word) {
		return false
	}
	p.word = nil
	return true
}

// pass copies until frozen; then it swallows. It ends both sides at data that
// cut is true for.
func pass(to, from io.ReadWriteCloser, frozen <-chan struct{}, cut func([]byte) bool) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if cut(buf[:n]) {
			from.Close()
			return
		}
		select {
		case <-frozen:
			continue
		default:
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
