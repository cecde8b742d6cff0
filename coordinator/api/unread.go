package api

import (
	"net/http"
	"time"
)

// readWithin is how long a client may take to read unreadPiece of an answer: a
// fraction of what the slowest line carries. One that has stopped reading would
// keep its connection, and what the answer is made from, for ever.
const (
	readWithin  = 2 * time.Minute
	unreadPiece = 64 << 10
)

// unread ends answers that nobody reads. The server's own limit is for whole
// answers, and would end large ones that are well on their way.
func unread(within time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&awaitedAnswer{ResponseWriter: w, control: http.NewResponseController(w), within: within}, r)
	})
}

// awaitedAnswer gives each piece of an answer a deadline of its own. An answer
// whose handler sets deadlines itself, as a watch does, is left to it.
type awaitedAnswer struct {
	http.ResponseWriter
	control *http.ResponseController
	within  time.Duration
	others  bool // deadlines are the handler's
}

// Unwrap is for http.ResponseController.
func (w *awaitedAnswer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// SetWriteDeadline is for http.ResponseController.
func (w *awaitedAnswer) SetWriteDeadline(at time.Time) error {
	w.others = true
	return w.control.SetWriteDeadline(at)
}

// Write implements http.ResponseWriter.
func (w *awaitedAnswer) Write(text []byte) (written int, err error) {
	for first := true; first || len(text) > 0; first = false {
		if !w.others {
			_ = w.control.SetWriteDeadline(time.Now().Add(w.within)) // what has no connection needs none
		}
		piece := text[:min(len(text), unreadPiece)]
		n, err := w.ResponseWriter.Write(piece)
		if written += n; err != nil {
			return written, err
		}
		text = text[len(piece):]
	}
	return written, nil
}
