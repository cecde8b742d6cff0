package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// WatchOptions say what to watch; the zero value is everything from now on.
type WatchOptions struct {
	// Since is the log position after which changes are wanted, nil for now.
	Since *uint64
	// Kinds are names of registry.ChangeKinds; none is all.
	Kinds []string
	// Retry is how long to wait before a stream that broke is opened again; 0
	// is 1 s.
	Retry time.Duration
	// Silence is for how long a stream may carry nothing, not even the coordinator's
	// heartbeat, before it counts as broken; 0 is 1 min, four heartbeats.
	Silence time.Duration
}

// maxEvent is the largest event that is read: a group's coefficients are some
// hundred KiB.
const maxEvent = 16 << 20

// Watch calls on for every event, in order, until ctx ends or on fails. A stream
// that breaks is opened again, at whichever coordinator answers, with the id of
// the last event: what changed meanwhile comes then, once, as it is by then. It
// returns nil when ctx ends; and an error when on failed, or when the
// coordinators refuse the question.
func (c *Client) Watch(ctx context.Context, o WatchOptions, on func(Event) error) error {
	last := ""
	if o.Since != nil {
		last = strconv.FormatUint(*o.Since, 10)
	}
	for {
		err := c.watchOnce(ctx, o, &last, on)
		var p *Problem
		var ours *watcherError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &ours):
			return ours.err
		case errors.As(err, &p) && p.status < http.StatusInternalServerError:
			return err
		}
		c.first.Add(1) // of another coordinator, if there is one
		c.first.CompareAndSwap(int32(len(c.bases)), 0)
		pause := time.NewTimer(or(o.Retry, time.Second))
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// watcherError is what the watcher itself returned.
type watcherError struct{ err error }

func (e *watcherError) Error() string { return e.err.Error() }

// watchOnce reads one stream to its end. last is the newest id; with the first
// event of a stream that begins now it becomes the position of now.
func (c *Client) watchOnce(ctx context.Context, o WatchOptions, last *string, on func(Event) error) error {
	path := "/v1/watch"
	if len(o.Kinds) > 0 {
		path += "?kinds=" + url.QueryEscape(strings.Join(o.Kinds, ","))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer, err := c.do(ctx, request{method: http.MethodGet, path: path, accept: "text/event-stream", lastEvent: *last})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	silence := or(o.Silence, time.Minute)
	silent := time.AfterFunc(silence, cancel)
	defer silent.Stop()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxEvent)
	id := ""
	for {
		silent.Reset(silence)
		if !lines.Scan() {
			return lines.Err()
		}
		silent.Stop() // the watcher takes its time
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			id = value
		case "data":
			var e Event
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				return fmt.Errorf("read an event: %.300w", err)
			}
			if id != "" {
				if e.ID, err = strconv.ParseUint(id, 10, 64); err != nil {
					return fmt.Errorf("read an event's id: %.300w", err)
				}
			}
			if err := on(e); err != nil {
				return &watcherError{err}
			}
			switch {
			case id != "":
				*last, id = id, ""
			case e.Kind == EventHello && *last == "":
				*last = strconv.FormatUint(e.Index, 10)
			}
		}
	}
}
