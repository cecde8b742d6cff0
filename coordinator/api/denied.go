package api

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// deniedBurst is how many refusals the log has of a minute: each is for an
	// operator to see, and a stranger must not fill the disk with them.
	deniedBurst = 30
	deniedEvery = time.Minute
	// deniedPath cuts the path that a refused request may bring.
	deniedPath = 128
)

// denials writes refused requests to the log: who, from where, what, and why;
// never what was shown. Methods are safe for concurrent use.
type denials struct {
	log *slog.Logger

	mu      sync.Mutex // guards the rest
	since   time.Time
	logged  int
	dropped int
}

// note logs one refusal. holder is the token's where it is known.
func (d *denials) note(r *http.Request, p *Problem, holder Holder) {
	now := time.Now()
	d.mu.Lock()
	if now.Sub(d.since) >= deniedEvery {
		if d.dropped > 0 {
			d.log.Warn("more requests were refused than the log shows", "refused", d.dropped, "since", d.since)
		}
		d.since, d.logged, d.dropped = now, 0, 0
	}
	d.logged++
	full := d.logged > deniedBurst
	if full {
		d.dropped++
	}
	d.mu.Unlock()
	if full {
		return
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	path := r.URL.Path // never the query: somebody may have put a token there
	args := []any{"code", p.Code, "from", host, "method", r.Method, "path", path[:min(deniedPath, len(path))]}
	if holder.Name != "" {
		args = append(args, "holder", holder.Name, "role", holder.Role)
	}
	d.log.Warn("request refused", args...)
}
