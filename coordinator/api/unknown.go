package api

import (
	"fmt"
	"net/http"
)

// unknown answers a request that the mux has no operation for: with the same
// form as every refusal, where the mux has plain text. It reports whether it
// did; a redirect to a cleaner path is left to the mux.
func unknown(w http.ResponseWriter, r *http.Request, mux http.Handler) bool {
	said := verdict{header: http.Header{}}
	mux.ServeHTTP(&said, r)
	switch said.status {
	case http.StatusNotFound:
		writeProblem(w, problem(said.status, CodeNotFound, "there is no such path here; /openapi.json lists those that there are"))
	case http.StatusMethodNotAllowed:
		allow := said.header.Get("Allow")
		w.Header().Set("Allow", allow)
		writeProblem(w, problem(said.status, CodeMethodNotAllowed, fmt.Sprintf("this path takes %s, and not %s", allow, r.Method)))
	default:
		return false
	}
	return true
}

// verdict is a ResponseWriter that keeps how an answer begins.
type verdict struct {
	header http.Header
	status int
}

func (v *verdict) Header() http.Header         { return v.header }
func (v *verdict) Write(b []byte) (int, error) { return len(b), nil }
func (v *verdict) WriteHeader(status int)      { v.status = status }
