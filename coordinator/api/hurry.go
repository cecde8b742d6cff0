package api

import (
	"io"
	"net/http"
	"time"
)

// How long a client may take to send a request's body: little until it is known
// who asks, since a connection that dawdles costs memory and a file descriptor;
// then as long as a slow line needs for the most that may be sent.
const (
	strangersBody = 10 * time.Second
	matrixBody    = time.Minute
	backupBody    = 15 * time.Minute
)

// hurried bounds the time for a request's body before anything is known about
// who sends it. The server's own limit covers the header alone: one for whole
// requests would end watches.
func hurried(limit time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		within(w, r, limit)
		next.ServeHTTP(w, r)
	})
}

// unhurried gives those who may ask their time.
func unhurried(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := matrixBody
		if r.URL.Path == restorePath {
			limit = backupBody
		}
		within(w, r, limit)
		next.ServeHTTP(w, r)
	})
}

// within sets when a body must have come. A request without one has no end, and
// once a body has come its request has none any more: the answer may take long.
func within(w http.ResponseWriter, r *http.Request, limit time.Duration) {
	if r.ContentLength == 0 || r.Body == nil {
		return
	}
	control := http.NewResponseController(w)
	if control.SetReadDeadline(time.Now().Add(limit)) != nil {
		return // no connection: a test's recorder
	}
	if late, ok := r.Body.(*awaited); ok {
		late.control = control
		return
	}
	r.Body = &awaited{r.Body, control}
}

// awaited is a body that takes its deadline away once it has come.
type awaited struct {
	io.ReadCloser
	control *http.ResponseController
}

// Read implements io.Reader.
func (b *awaited) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.control.SetReadDeadline(time.Time{}) // it took the deadline before
	}
	return n, err
}
