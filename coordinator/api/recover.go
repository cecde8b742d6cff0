package api

import (
	"fmt"
	"net/http"
	"runtime/debug"
)

// begun knows whether an answer has begun.
type begun struct {
	http.ResponseWriter
	yes bool
}

// Unwrap is for http.ResponseController.
func (w *begun) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *begun) WriteHeader(status int) {
	w.yes = true
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *begun) Write(text []byte) (int, error) {
	w.yes = true
	return w.ResponseWriter.Write(text)
}

// recovered answers for a handler that panics: one question that breaks an
// invariant of ours gets a document as every refusal, and the log the stack. An
// answer that has begun is cut off, which its reader notices.
func (s *server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &begun{ResponseWriter: w}
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.Log.Error("request panicked", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if out.yes {
				panic(http.ErrAbortHandler)
			}
			writeProblem(w, problem(http.StatusInternalServerError, CodeInternal, "the coordinator made a mistake with this request; its log says which, please report it"))
		}()
		next.ServeHTTP(out, r)
	})
}
