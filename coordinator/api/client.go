package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/internal/secret"
	"github.com/oomfleet/oomfleet/proto"
)

// answerWithin bounds the wait for one coordinator's answer to begin: a follower
// waits up to a minute for its leader. A trace may take longer to arrive.
const answerWithin = 90 * time.Second

// Client talks to the coordinators of one fleet. It tries each base URL in turn
// and stays with the one that answered. It is safe for concurrent use.
type Client struct {
	bases []string
	http  *http.Client
	first atomic.Int32 // of bases: the one that answered last
	token secret.Text
}

// NewClient returns a client for base URLs like "http://127.0.0.1:7400",
// separated by commas. It does no I/O, and shows no token; see With.
func NewClient(servers string) (*Client, error) {
	c := &Client{http: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: answerWithin,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, IdleConnTimeout: time.Minute}}}
	for _, s := range strings.Split(servers, ",") {
		s = strings.TrimRight(strings.TrimSpace(s), "/")
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("coordinator address %q is not a URL like http://127.0.0.1:7400", s)
		}
		c.bases = append(c.bases, s)
	}
	return c, nil
}

// Submit submits a matrix.
func (c *Client) Submit(ctx context.Context, s Submission) (coordinator.SubmitReply, error) {
	return ask[coordinator.SubmitReply](ctx, c, http.MethodPost, "/v1/sweeps", s)
}

// Sweep reads where a sweep stands.
func (c *Client) Sweep(ctx context.Context, id proto.MatrixID) (proto.Report, error) {
	return ask[proto.Report](ctx, c, http.MethodGet, "/v1/sweeps/"+url.PathEscape(string(id)), nil)
}

// Sweeps lists all sweeps.
func (c *Client) Sweeps(ctx context.Context) (SweepList, error) {
	return ask[SweepList](ctx, c, http.MethodGet, "/v1/sweeps", nil)
}

// Cancel cancels a sweep.
func (c *Client) Cancel(ctx context.Context, id proto.MatrixID) (Cancelled, error) {
	return ask[Cancelled](ctx, c, http.MethodPost, "/v1/sweeps/"+url.PathEscape(string(id))+"/cancel", nil)
}

// Agents lists the agents that are announced now.
func (c *Client) Agents(ctx context.Context) (AgentList, error) {
	return ask[AgentList](ctx, c, http.MethodGet, "/v1/agents", nil)
}

// Status asks the answering coordinator about itself.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return ask[Status](ctx, c, http.MethodGet, "/v1/status", nil)
}

// Coefficients reads coefficients; see coefficientQuery for the filters.
func (c *Client) Coefficients(ctx context.Context, filter url.Values) (CoefficientList, error) {
	return ask[CoefficientList](ctx, c, http.MethodGet, "/v1/coefficients?"+filter.Encode(), nil)
}

// Quota asks for a quota; see quotaQuery for the parameters.
func (c *Client) Quota(ctx context.Context, question url.Values) (Recommendation, error) {
	return ask[Recommendation](ctx, c, http.MethodGet, "/v1/quota?"+question.Encode(), nil)
}

// Traces lists recorded traces, of one sweep or of all.
func (c *Client) Traces(ctx context.Context, sweep proto.MatrixID) (TraceList, error) {
	return ask[TraceList](ctx, c, http.MethodGet, "/v1/traces?sweep="+url.QueryEscape(string(sweep)), nil)
}

// Trace streams a trace file; the caller closes it and checks the digest.
func (c *Client) Trace(ctx context.Context, digest proto.Digest) (io.ReadCloser, error) {
	answer, err := c.do(ctx, http.MethodGet, "/v1/traces/"+url.PathEscape(string(digest)), nil)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// ask sends in as JSON (nil for nothing) and reads the answer's document.
func ask[T any](ctx context.Context, c *Client, method, path string, in any) (out T, err error) {
	var text []byte
	if in != nil {
		if text, err = json.Marshal(in); err != nil {
			return out, fmt.Errorf("encode the request: %w", err)
		}
	}
	answer, err := c.do(ctx, method, path, text)
	if err != nil {
		return out, err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil {
		return out, fmt.Errorf("the coordinator's answer is not the document that was asked for: %w", err)
	}
	return out, nil
}

// do sends a request to the coordinators in turn until one answers.
func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	var last error
	first := int(c.first.Load())
	for i := range c.bases {
		n := (first + i) % len(c.bases)
		req, err := http.NewRequestWithContext(ctx, method, c.bases[n]+path, bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("make the request: %w", err)
		}
		if len(body) > 0 {
			req.Header.Set("Content-Type", "application/json")
		}
		show(req, c.token)
		answer, err := c.http.Do(req)
		if err != nil && ctx.Err() != nil {
			return nil, fmt.Errorf("ask the coordinator at %s: %w", c.bases[n], ctx.Err())
		}
		if err != nil {
			last = fmt.Errorf("no coordinator answers at %s: is it running? (%w)", c.bases[n], errors.Unwrap(err))
			continue
		}
		if answer.StatusCode < 300 {
			c.first.Store(int32(n))
			return answer, nil
		}
		p := readProblem(answer)
		if p.status < http.StatusInternalServerError {
			return nil, p
		}
		last = p // another one may know the leader, or reach what this one cannot
	}
	return nil, last
}

func readProblem(answer *http.Response) *Problem {
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	p := &Problem{status: answer.StatusCode}
	if json.Unmarshal(text, p) == nil && p.Message != "" {
		return p
	}
	// Not one of ours: something stands in between.
	p.Code, p.Message = CodeUnavailable, fmt.Sprintf("the coordinator answered %s", answer.Status)
	return p
}
