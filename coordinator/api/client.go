package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/proto"
)

// Client talks to the coordinators of one fleet. It tries each base URL in turn
// and stays with the one that answered.
type Client struct {
	bases []string
	http  *http.Client
	first int
}

// NewClient returns a client for base URLs like "http://127.0.0.1:7400",
// separated by commas. It does no I/O.
func NewClient(servers string) (*Client, error) {
	c := &Client{http: &http.Client{Timeout: 90 * time.Second}}
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
func (c *Client) Submit(ctx context.Context, s Submission) (out coordinator.SubmitReply, err error) {
	return out, c.call(ctx, http.MethodPost, "/v1/sweeps", s, &out)
}

// Sweep reads where a sweep stands.
func (c *Client) Sweep(ctx context.Context, id proto.MatrixID) (out proto.Report, err error) {
	return out, c.call(ctx, http.MethodGet, "/v1/sweeps/"+url.PathEscape(string(id)), nil, &out)
}

// Sweeps lists all sweeps.
func (c *Client) Sweeps(ctx context.Context) (out SweepList, err error) {
	return out, c.call(ctx, http.MethodGet, "/v1/sweeps", nil, &out)
}

// Cancel cancels a sweep.
func (c *Client) Cancel(ctx context.Context, id proto.MatrixID) (out Cancelled, err error) {
	return out, c.call(ctx, http.MethodPost, "/v1/sweeps/"+url.PathEscape(string(id))+"/cancel", nil, &out)
}

// Agents lists the agents that are announced now.
func (c *Client) Agents(ctx context.Context) (out AgentList, err error) {
	return out, c.call(ctx, http.MethodGet, "/v1/agents", nil, &out)
}

// Status asks the answering coordinator about itself.
func (c *Client) Status(ctx context.Context) (out Status, err error) {
	return out, c.call(ctx, http.MethodGet, "/v1/status", nil, &out)
}

// Coefficients reads coefficients; see coefficientQuery for the filters.
func (c *Client) Coefficients(ctx context.Context, filter url.Values) (out CoefficientList, err error) {
	return out, c.call(ctx, http.MethodGet, "/v1/coefficients?"+filter.Encode(), nil, &out)
}

// Quota asks for a quota; see quotaQuery for the parameters.
func (c *Client) Quota(ctx context.Context, question url.Values) (out Recommendation, err error) {
	return out, c.call(ctx, http.MethodGet, "/v1/quota?"+question.Encode(), nil, &out)
}

// Traces lists recorded traces, of one sweep or of all.
func (c *Client) Traces(ctx context.Context, sweep proto.MatrixID) (out TraceList, err error) {
	return out, c.call(ctx, http.MethodGet, "/v1/traces?sweep="+url.QueryEscape(string(sweep)), nil, &out)
}

// Trace streams a trace file; the caller closes it and checks the digest.
func (c *Client) Trace(ctx context.Context, digest proto.Digest) (io.ReadCloser, error) {
	answer, err := c.do(ctx, http.MethodGet, "/v1/traces/"+url.PathEscape(string(digest)), nil)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var text []byte
	if in != nil {
		var err error
		if text, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
	}
	answer, err := c.do(ctx, method, path, text)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(out); err != nil {
		return fmt.Errorf("the coordinator's answer is not the document that was asked for: %w", err)
	}
	return nil
}

// do sends a request to the coordinators in turn until one answers.
func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	var last error
	for i := range c.bases {
		n := (c.first + i) % len(c.bases)
		req, err := http.NewRequestWithContext(ctx, method, c.bases[n]+path, bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("make the request: %w", err)
		}
		if len(body) > 0 {
			req.Header.Set("Content-Type", "application/json")
		}
		answer, err := c.http.Do(req)
		if err != nil {
			last = fmt.Errorf("no coordinator answers at %s: is it running? (%w)", c.bases[n], errors.Unwrap(err))
			continue
		}
		if answer.StatusCode < 300 {
			c.first = n
			return answer, nil
		}
		p := readProblem(answer)
		if p.Code != CodeNoLeader || len(c.bases) == 1 {
			return nil, p
		}
		last = p
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
	var plain struct {
		Title  string `json:"title"`
		Detail string `json:"detail"`
		Errors []struct{ Message, Location string }
	}
	json.Unmarshal(text, &plain)
	p.Code, p.Message = CodeBadRequest, strings.TrimSpace(plain.Detail)
	for _, e := range plain.Errors {
		p.Message += "; " + e.Location + ": " + e.Message
	}
	if p.Message == "" {
		p.Message = fmt.Sprintf("the coordinator answered %s", answer.Status)
	}
	return p
}
