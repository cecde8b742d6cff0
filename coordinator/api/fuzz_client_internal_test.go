package api

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// answering is a server of one answer, whatever it is asked.
type answering struct {
	status int
	kind   string
	body   []byte
	pieces func(io.Reader) io.Reader
}

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	h := http.Header{"Content-Type": {a.kind}, headerIndex: {"7"}}
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Header: h, Body: io.NopCloser(a.pieces(bytes.NewReader(a.body))), Request: r}, nil
}

// FuzzAnswer: whatever answers in a coordinator's place, the client gets what was
// asked for or an error of one line; and a stream of events says the same however
// its bytes come.
func FuzzAnswer(f *testing.F) {
	f.Add(uint16(200), documentType, []byte(`{"id":"n1","role":"leader","applied_index":3}`))
	f.Add(uint16(200), "text/event-stream", []byte(": alive\n\nevent: hello\ndata: {\"kind\":\"hello\",\"index\":3}\n\nid: 4\nevent: sweeps\ndata: {\"kind\":\"sweeps\",\"index\":4}\n\n"))
	f.Add(uint16(409), documentType, []byte(`{"code":"not_empty","message":"no"}`))
	f.Add(uint16(502), "text/html; charset=x", []byte("<html>"))
	f.Add(uint16(200), "text/event-stream", []byte("id: x\ndata: {}\n\ndata: {\"index\":18446744073709551616}\n"))
	f.Fuzz(func(t *testing.T, status uint16, kind string, body []byte) {
		if status < 200 || status > 599 {
			return // what Go's client never hands on
		}
		c, err := NewClient("http://n1")
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, err error) {
			var p *Problem // a coordinator's own word, which may list a matrix' problems
			if err != nil && !errors.As(err, &p) && (len(err.Error()) > 4000 || strings.ContainsAny(err.Error(), "\n\r")) {
				t.Errorf("%s: an error of %d bytes: %.300q", what, len(err.Error()), err)
			}
		}
		whole := answering{int(status), kind, body, func(r io.Reader) io.Reader { return r }}
		c.http.Transport = whole
		_, err = c.Status(t.Context())
		check("status", err)
		_, err = c.Sweep(t.Context(), "a-1")
		check("sweep", err)
		_, err = c.Restore(t.Context(), []byte("x"), true)
		check("restore", err)

		type stream struct {
			events []Event
			last   string
			err    string
		}
		watch := func(pieces func(io.Reader) io.Reader) (s stream) {
			whole.pieces = pieces
			c.http.Transport = whole
			err := c.watchOnce(t.Context(), WatchOptions{}, &s.last, func(e Event) error { s.events = append(s.events, e); return nil })
			check("watch", err)
			if err != nil {
				s.err = err.Error()
			}
			return s
		}
		want := watch(whole.pieces)
		if len(body) > 4096 {
			return
		}
		for _, pieces := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader} {
			if got := watch(pieces); !reflect.DeepEqual(got, want) {
				t.Errorf("in pieces %+v, whole %+v", got, want)
			}
		}
	})
}
