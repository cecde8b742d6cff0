package api

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// TestUnreadAnswersEnd: an answer that nobody reads ends after a while; a handler
// that has deadlines of its own keeps them; and one that is read slowly, a piece
// at a time, is whole however long it takes.
func TestUnreadAnswersEnd(t *testing.T) {
	ended := make(chan error, 1)
	endless := func(w http.ResponseWriter, _ *http.Request) {
		for text := make([]byte, 1<<20); ; {
			if _, err := w.Write(text); err != nil {
				ended <- err
				return
			}
		}
	}
	for name, tt := range map[string]struct {
		within time.Duration
		serve  http.HandlerFunc
	}{
		"nobody reads": {300 * time.Millisecond, endless},
		"its own": {time.Hour, func(w http.ResponseWriter, r *http.Request) {
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
				t.Error(err)
			}
			endless(w, r)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(unread(tt.within, tt.serve))
			defer server.Close()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			select {
			case err := <-ended:
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("it is still written")
			}
		})
	}
}

// TestReadAnswersAreWhole: each piece has a deadline of its own, set before it is
// written, and nothing is lost between two.
func TestReadAnswersAreWhole(t *testing.T) {
	const size = 5*unreadPiece + 17
	record := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	unread(time.Hour, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 2 {
			if n, err := w.Write(make([]byte, size)); n != size || err != nil {
				t.Error(n, err)
			}
		}
		if n, err := io.WriteString(w, ""); n != 0 || err != nil {
			t.Error(n, err)
		}
	})).ServeHTTP(record, httptest.NewRequest(http.MethodGet, "/", nil))
	if record.Body.Len() != 2*size || record.set != 13 {
		t.Errorf("%d bytes of %d, %d deadlines", record.Body.Len(), 2*size, record.set)
	}
}

// deadlines counts those that are set.
type deadlines struct {
	*httptest.ResponseRecorder
	set int
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.set++
	return nil
}
