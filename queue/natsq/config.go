package natsq

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"
)

// Defaults for the zero values of Config.
const (
	DefaultLease       = 30 * time.Second
	DefaultReportLease = 5 * time.Second
	DefaultMaxTasks    = 100_000
	DefaultPatience    = 10 * time.Second
)

// Config says how to reach a queue. The zero value of every field but URL is a
// working default.
type Config struct {
	// URL is one NATS URL or several, separated by commas.
	URL string
	// Name is shown in the server's list of connections.
	Name string
	// Identity is who this client is and whom it trusts.
	Identity
	// Agent is for a connection that may only do an agent's part: pull, report
	// and announce. It makes and repairs nothing on the server; the
	// coordinators' connections do.
	Agent bool

	// Lease is how long a task stays with its agent without Extend. An
	// existing longer lease is kept: shortening it under an agent that
	// extends at its own pace would hand its task to a second one.
	Lease time.Duration
	// ReportLease is the same for reports: after it an unacked report goes to
	// the next leader.
	ReportLease time.Duration
	// MaxTasks is how many messages each stream takes. Zero keeps the limit
	// of an existing stream.
	MaxTasks int64
	// Replicas is how many servers keep each stream; for clusters.
	Replicas int
	// Patience is how long a wait stays with one pull before it asks again
	// and looks whether the consumer is healthy.
	Patience time.Duration
	// Log receives what healed itself; nil drops it.
	Log *slog.Logger
}

// Validate returns every problem of c at once.
func (c Config) Validate() error {
	var errs []error
	if c.URL == "" {
		errs = append(errs, errors.New("no queue URL"))
	}
	for _, u := range strings.Split(c.URL, ",") {
		if _, err := url.Parse(strings.TrimSpace(u)); err != nil {
			errs = append(errs, errors.New("queue URL cannot be parsed")) // the error would repeat a password
		}
	}
	errs = append(errs, c.Identity.problems()...)
	for _, d := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{{"lease", c.Lease, 100 * time.Millisecond}, {"report lease", c.ReportLease, 100 * time.Millisecond}, {"patience", c.Patience, 100 * time.Millisecond}} {
		if d.value != 0 && d.value < d.least {
			errs = append(errs, fmt.Errorf("%s %s is shorter than %s", d.name, d.value, d.least))
		}
	}
	if c.MaxTasks < 0 || c.Replicas < 0 {
		errs = append(errs, errors.New("max tasks and replicas cannot be negative"))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "oomfleet"
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.ReportLease == 0 {
		c.ReportLease = DefaultReportLease
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// shownURL is the URL without user and password, for errors and logs.
func (c Config) shownURL() string {
	var shown []string
	for _, part := range strings.Split(c.URL, ",") {
		part = strings.TrimSpace(part)
		u, err := url.Parse(part)
		if err != nil {
			continue
		}
		if u.User == nil {
			shown = append(shown, part)
			continue
		}
		u.User = nil
		shown = append(shown, u.String())
	}
	return strings.Join(shown, ",")
}
