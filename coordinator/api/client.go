package api

import (
	"context"
	"encoding/json"
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
// and stays with the one that answered. What it has written it reads, whichever
// coordinator answers. It is safe for concurrent use. A fleet that was made anew
// behind the same addresses needs a new Client: its log counts from 1 again.
type Client struct {
	bases []string
	http  *http.Client
	first atomic.Int32 // of bases: the one that answered last
	token secret.Text
	// wrote is the log position of the newest write that this client was
	// answered; its reads are answered from there on.
	wrote atomic.Uint64
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

// Submit submits a matrix. It counts once: where an answer is lost, the same is
// asked again for a while, under a key that is made up here unless s has one.
func (c *Client) Submit(ctx context.Context, s Submission) (coordinator.SubmitReply, error) {
	return askOnce[coordinator.SubmitReply](ctx, c, s.Request, "/v1/sweeps", s)
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

// LeaderStatus asks the leader about itself, without the hashes: what it cannot
// use it alone knows. It fails with CodeNoLeader where none leads a majority.
func (c *Client) LeaderStatus(ctx context.Context) (Status, error) {
	return ask[Status](ctx, c, http.MethodGet, "/v1/status?consistent=true&hashes=false", nil)
}

// Coefficients reads coefficients; see CoefficientQuery for the filters.
func (c *Client) Coefficients(ctx context.Context, filter url.Values) (CoefficientList, error) {
	return ask[CoefficientList](ctx, c, http.MethodGet, "/v1/coefficients?"+filter.Encode(), nil)
}

// CoefficientHistory reads coefficients by revision; see historyQuery.
func (c *Client) CoefficientHistory(ctx context.Context, filter url.Values) (CoefficientHistory, error) {
	return ask[CoefficientHistory](ctx, c, http.MethodGet, "/v1/coefficients/history?"+filter.Encode(), nil)
}

// Boundaries reads the boundaries of settled cells; see boundaryQuery.
func (c *Client) Boundaries(ctx context.Context, filter url.Values) (BoundaryList, error) {
	return ask[BoundaryList](ctx, c, http.MethodGet, "/v1/boundaries?"+filter.Encode(), nil)
}

// BoundaryHistory reads what one cell was settled as; see cellQuery.
func (c *Client) BoundaryHistory(ctx context.Context, cell proto.CellID, filter url.Values) (BoundaryHistory, error) {
	return ask[BoundaryHistory](ctx, c, http.MethodGet, "/v1/boundaries/"+url.PathEscape(string(cell))+"/history?"+filter.Encode(), nil)
}

// Programs lists the programs of families; see programQuery.
func (c *Client) Programs(ctx context.Context, filter url.Values) (ProgramList, error) {
	return ask[ProgramList](ctx, c, http.MethodGet, "/v1/programs?"+filter.Encode(), nil)
}

// Import commits coefficients of origin imported.
func (c *Client) Import(ctx context.Context, models []proto.Coefficients) (coordinator.ImportReply, error) {
	return ask[coordinator.ImportReply](ctx, c, http.MethodPost, "/v1/coefficients", Import{models})
}

// Traces lists recorded traces, of one sweep or of all.
func (c *Client) Traces(ctx context.Context, sweep proto.MatrixID) (TraceList, error) {
	return ask[TraceList](ctx, c, http.MethodGet, "/v1/traces?sweep="+url.QueryEscape(string(sweep)), nil)
}

// Trace streams a trace file; the caller closes it and checks the digest.
func (c *Client) Trace(ctx context.Context, digest proto.Digest) (io.ReadCloser, error) {
	answer, err := c.do(ctx, request{method: http.MethodGet, path: "/v1/traces/" + url.PathEscape(string(digest)), accept: parquetType})
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// TraceURL asks for an address from which one trace file can be fetched for a
// while, by whoever has it.
func (c *Client) TraceURL(ctx context.Context, digest proto.Digest) (TraceURL, error) {
	return ask[TraceURL](ctx, c, http.MethodGet, "/v1/traces/"+url.PathEscape(string(digest))+"/url", nil)
}

// ask sends in as JSON (nil for nothing) and reads the answer's document.
func ask[T any](ctx context.Context, c *Client, method, path string, in any) (out T, err error) {
	return exchange[T](ctx, c, request{method: method, path: path}, in)
}

// exchange is ask for a request that has more to it; in becomes its body.
func exchange[T any](ctx context.Context, c *Client, r request, in any) (out T, err error) {
	if in != nil {
		if r.body, err = json.Marshal(in); err != nil {
			return out, fmt.Errorf("encode the request: %w", err)
		}
	}
	r.accept = documentType
	answer, err := c.do(ctx, r)
	if err != nil {
		return out, err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil {
		return out, fmt.Errorf("the answer of %s is not the document that was asked for: %.300w", answer.Request.URL.Host, err)
	}
	return out, nil
}
