package child

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// tailSize is how many bytes of a stream's end are kept.
const tailSize = 64 << 10

// tail keeps the last bytes of a pipe, exactly as they came, and never lets its
// writer wait: a run that floods stderr loses the beginning, not its speed.
type tail struct {
	pipe *os.File

	mu    sync.Mutex // guards all below, and reads of the pipe
	ring  [tailSize]byte
	total int64 // bytes ever read
	mark  int64 // where the present run began
}

// follow reads the pipe until its end or until the pipe is closed.
func (t *tail) follow() {
	raw, err := t.pipe.SyscallConn()
	if err != nil {
		return
	}
	// Reading inside the callback, under the lock, lets drain know that no
	// bytes are on their way between the kernel and the ring. The poller is
	// edge-triggered: the callback may only wait once the pipe is empty.
	raw.Read(func(fd uintptr) bool { //nolint:errcheck // the pipe was closed, or its deadline has passed
		got := more
		for got == more {
			got = t.readSome(int(fd))
		}
		return got == over
	})
}

// What a readSome came to.
type readState int

const (
	more  readState = iota // there may be more
	empty                  // nothing is there now
	over                   // end of file
)

// readSome takes at most a few hundred kilobytes, so that a flood does not keep
// the lock for good.
func (t *tail) readSome(fd int) readState {
	t.mu.Lock()
	defer t.mu.Unlock()
	var buf [16 << 10]byte
	for range 16 {
		n, err := unix.Read(fd, buf[:])
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return empty
		case err != nil || n == 0:
			return over
		default:
			for at := 0; at < n; {
				c := copy(t.ring[t.total%tailSize:], buf[at:n])
				at += c
				t.total += int64(c)
			}
		}
	}
	return more
}

// begin marks the present end: bytes takes nothing from before it.
func (t *tail) begin() {
	t.drain()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mark = t.total
}

// bytes is the kept end of what came since begin, with all that processes which
// have ended meanwhile ever wrote.
func (t *tail) bytes() []byte {
	t.drain()
	t.mu.Lock()
	defer t.mu.Unlock()
	from := max(t.mark, t.total-tailSize)
	out := make([]byte, 0, t.total-from)
	for from < t.total {
		end := min(from-from%tailSize+tailSize, t.total)
		out = append(out, t.ring[from%tailSize:from%tailSize+end-from]...)
		from = end
	}
	return out
}

func (t *tail) drain() {
	if raw, err := t.pipe.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { t.readSome(int(fd)) }) //nolint:errcheck // closed: nothing more comes
	}
}

// printable is raw output as text: control bytes other than newline and tab,
// and bytes that are not UTF-8, become \x00 to \xff. Nothing else changes.
func printable(raw []byte) string {
	var b strings.Builder
	for len(raw) > 0 {
		r, n := utf8.DecodeRune(raw)
		switch {
		case r == utf8.RuneError && n == 1, r < ' ' && r != '\n' && r != '\t', r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, raw[0])
		default:
			b.Write(raw[:n])
		}
		raw = raw[n:]
	}
	return b.String()
}

// lastLine is the last line of text that is not empty.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
