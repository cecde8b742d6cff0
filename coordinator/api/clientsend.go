package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// silence is how long a coordinator may take to begin its answer before it
	// is asked whether it lives, and sign how long that may take. One that is
	// busy says so at once; one that is stopped takes connections and says nothing.
	silence = 2 * time.Second
	sign    = 3 * time.Second
	// documentType is the media type of documents.
	documentType = "application/json"
)

// request is one question to whichever coordinator answers it.
type request struct {
	method, path string
	body         []byte
	kind         string // of body; empty is documentType
	accept       string // the media type of a good answer
	lastEvent    string // header Last-Event-ID; empty for none
	key          string // header Idempotency-Key; empty for none
}

// unreachedError is one coordinator that gave no answer of its own.
type unreachedError struct {
	base string
	why  string
	err  error // may be nil
	// sent is whether the request may have arrived.
	sent bool
}

func (e *unreachedError) Error() string {
	return fmt.Sprintf("no coordinator answers at %s: %s", e.base, e.why)
}

func (e *unreachedError) Unwrap() error { return e.err }

// do sends a request to the coordinators in turn until one answers. What one of
// them refuses, all refuse; a server that is none of them, one that is silent
// and one that knows no leader are passed over.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	var failed []error
	first := int(c.first.Load())
	for i := range c.bases {
		n := (first + i) % len(c.bases)
		answer, err := c.send(ctx, c.bases[n], r)
		if err == nil {
			c.first.Store(int32(n))
			if r.method != http.MethodGet {
				c.remember(answer.Header.Get(headerIndex))
			}
			return answer, nil
		}
		var p *Problem
		if ctx.Err() != nil || errors.As(err, &p) && p.status < http.StatusInternalServerError {
			return nil, err
		}
		failed = append(failed, err) // another one may know the leader, or reach what this one cannot
	}
	// The coordinators' own word says more than that others are not there.
	slices.SortStableFunc(failed, func(a, b error) int { return rank(a) - rank(b) })
	if len(failed) == 1 {
		return nil, failed[0]
	}
	return nil, &severalError{failed}
}

// remember keeps the log position of a write, so that a later read at another
// coordinator does not miss it.
func (c *Client) remember(position string) {
	index, err := strconv.ParseUint(position, 10, 64)
	for seen := c.wrote.Load(); err == nil && index > seen; seen = c.wrote.Load() {
		if c.wrote.CompareAndSwap(seen, index) {
			return
		}
	}
}

func rank(err error) int {
	var p *Problem
	if errors.As(err, &p) {
		return 0
	}
	return 1
}

// severalError is what each of several coordinators said.
type severalError struct{ errs []error }

func (e *severalError) Error() string {
	var texts []string
	for _, err := range e.errs {
		if text := err.Error(); !slices.Contains(texts, text) { // two may well say the same
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "; ")
}

func (e *severalError) Unwrap() []error { return e.errs }

// send asks one coordinator.
func (c *Client) send(parent context.Context, base string, r request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(parent)
	req, err := http.NewRequestWithContext(ctx, r.method, base+r.path, bytes.NewReader(r.body))
	if err != nil {
		cancel(nil)
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if len(r.body) > 0 {
		req.Header.Set("Content-Type", or(r.kind, documentType))
	}
	if r.lastEvent != "" {
		req.Header.Set("Last-Event-ID", r.lastEvent)
	}
	if r.key != "" {
		req.Header.Set(headerKey, r.key)
	}
	if index := c.wrote.Load(); index > 0 && r.method == http.MethodGet {
		req.Header.Set(headerAtLeast, strconv.FormatUint(index, 10))
	}
	show(req, c.token)
	// Which of the two comes first holds: an answer that has begun is not given up
	// because a look at its server, which began before, ends behind it.
	var said atomic.Bool
	doubt := time.AfterFunc(silence, func() {
		if !c.lives(ctx, base) && said.CompareAndSwap(false, true) {
			cancel(errSilent)
		}
	})
	answer, err := c.http.Do(req)
	silent := !said.CompareAndSwap(false, true)
	doubt.Stop()
	if err == nil && silent {
		answer.Body.Close()
		err = errSilent
	}
	if err != nil {
		cancel(nil)
		switch {
		case parent.Err() != nil:
			return nil, fmt.Errorf("ask the coordinator at %s: %w", base, parent.Err())
		case silent:
			return nil, &unreachedError{base, "it takes connections and says nothing; is it stopped, or something else?", errSilent, true}
		}
		return nil, &unreachedError{base, fmt.Sprintf("is it running? (%v)", errors.Unwrap(err)), err, !refused(err)}
	}
	answer.Body = &cancelBody{answer.Body, func() { cancel(nil) }}
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if answer.StatusCode < 300 && (r.accept == "" || kind == r.accept) {
		return answer, nil
	}
	defer answer.Body.Close()
	return nil, refusal(answer, base)
}

var errSilent = errors.New("the server is silent")

// lives asks a server for the least that there is.
func (c *Client) lives(ctx context.Context, base string) bool {
	ctx, cancel := context.WithTimeout(ctx, sign)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/healthz", nil)
	if err != nil {
		return false
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return false
	}
	return answer.Body.Close() == nil
}

// cancelBody ends a request's context with its body.
type cancelBody struct {
	io.ReadCloser
	cancel func()
}

func (b *cancelBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// refusal is what an answer that is not the one that was asked for says: a
// coordinator's problem, or that this is no coordinator.
func refusal(answer *http.Response, base string) error {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	p := &Problem{status: answer.StatusCode}
	if answer.StatusCode >= 300 && json.Unmarshal(text, p) == nil && p.Code != "" && p.Message != "" {
		return p
	}
	// Not one of ours: something stands in between, or in its place.
	if answer.StatusCode >= http.StatusInternalServerError {
		p.Code, p.Message = CodeUnavailable, fmt.Sprintf("what answers at %s says %s, and not as a coordinator does", base, answer.Status)
		return p
	}
	return &unreachedError{base, fmt.Sprintf("what answers there says %s, and its answer is not the document that was asked for; is the address right?", answer.Status), nil, false}
}
