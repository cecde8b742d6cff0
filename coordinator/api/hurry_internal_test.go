package api

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestSlowBodiesEnd: whoever is not known cannot hold a connection by sending a
// body byte by byte, and those who may ask are not cut off while they are answered.
func TestSlowBodiesEnd(t *testing.T) {
	const limit = 50 * time.Millisecond
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	s := httptest.NewServer(hurried(limit, refuse))
	defer s.Close()
	for _, body := range []string{"Content-Length: 1000\r\n\r\nx", "Content-Length: 90000000\r\n\r\nx", "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /v1/sweeps HTTP/1.1\r\nHost: x\r\n%s", body)
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("%q holds the connection: %v", body, err)
		}
	}

	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		select {
		case <-r.Context().Done():
			return
		case <-time.After(4 * limit): // the work takes longer than the body may
		}
		if err == nil {
			io.WriteString(w, "done")
		}
	})
	patient := httptest.NewServer(hurried(limit, slow))
	defer patient.Close()
	got, err := http.Post(patient.URL, "text/plain", strings.NewReader("a body"))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if text, err := io.ReadAll(got.Body); string(text) != "done" {
		t.Errorf("an answer that takes longer than its body was cut off: %q, %v", text, err)
	}
	http.DefaultClient.CloseIdleConnections()
}
