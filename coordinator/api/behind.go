package api

import "net/http"

// behind is the answer of a node that has not applied its log yet: that it knows
// nothing of something does not mean that there is no such thing. Without a leader
// nobody tells it what it lacks, and to wait is no advice.
type behind struct {
	http.ResponseWriter
	leaderless bool
	replaced   bool
}

// Unwrap is for http.ResponseController.
func (w *behind) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *behind) WriteHeader(status int) {
	if status != http.StatusNotFound {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.replaced = true
	w.Header().Del("Content-Length")
	why := "this coordinator is catching up with its log and knows no such thing yet; try again in a second, or ask another one"
	if w.leaderless {
		why = "no coordinator leads, and without a leader this one does not know how far its log goes, so whether there is such a thing; fleetctl cluster status says which coordinators do not answer"
	}
	writeProblem(w.ResponseWriter, problem(http.StatusServiceUnavailable, CodeUnavailable, why))
}

// Write implements http.ResponseWriter.
func (w *behind) Write(text []byte) (int, error) {
	if w.replaced {
		return len(text), nil
	}
	return w.ResponseWriter.Write(text)
}
