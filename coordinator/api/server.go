package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// Sweeps takes submissions; only the leader's can.
type Sweeps interface {
	Submit(ctx context.Context, r coordinator.SubmitRequest) (coordinator.SubmitReply, error)
	Cancel(ctx context.Context, id proto.MatrixID) (closed int, err error)
}

// Registry is this node's view of the replicated state.
type Registry interface {
	View() registry.View
	// LeaderID is the leader's id, empty while none is known.
	LeaderID() string
	// Changed returns a channel that is closed once the applied index of View
	// is above after.
	Changed(after uint64) <-chan struct{}
	// Consistent returns once View holds everything that was acknowledged
	// before; only the leader can, and it fails with registry.ErrNotLeader or
	// what else keeps it from a majority.
	Consistent(ctx context.Context) error
	// Standing is how old View may be, and whether this node has applied what
	// it had to when it began to lead or to follow.
	Standing() (age time.Duration, ready bool)
	// Restore replaces everything by a backup; see raftnode.Node.
	Restore(ctx context.Context, from io.Reader, force bool) (registry.Restored, error)
}

// Imports takes coefficients that were made elsewhere; only the leader's can.
type Imports interface {
	Import(ctx context.Context, models []proto.Coefficients) (coordinator.ImportReply, error)
}

// Traces reads the trace store; see trace.Store for how it fails.
type Traces interface {
	Open(ctx context.Context, digest proto.Digest) (io.ReadCloser, proto.Bytes, error)
	GetTrace(ctx context.Context, digest proto.Digest) ([]allocator.Event, trace.Meta, error)
	GetProgram(ctx context.Context, digest proto.Digest) ([]byte, error)
}

// Agents lists the agents that are announced now.
type Agents interface {
	Agents(ctx context.Context) ([]proto.AgentInfo, error)
}

// Deps are what the API answers from; all down to Agents are required.
type Deps struct {
	// ID is this coordinator's, to tell whether it leads.
	ID       string
	Version  string
	Sweeps   Sweeps
	Registry Registry // and Cluster, where members can be changed
	Traces   Traces
	Agents   Agents
	// Imports takes coefficients of other origins; nil refuses them.
	Imports Imports
	// Watch bounds those who watch; the zero value is the default.
	Watch WatchLimits
	// Metrics is served at /metrics.
	Metrics http.Handler
	// Tokens say who may ask; nil lets everybody.
	Tokens *Tokens
	// Peers is how this coordinator reaches the leader; its token is not used,
	// since a caller's own is passed on.
	Peers Access
	Log   *slog.Logger
}

// server holds what the operations share.
type server struct {
	Deps
	proxy *http.Client
	feed  feed
}

// New returns the handler of the whole API. It starts nothing.
func New(deps Deps) (http.Handler, error) {
	if deps.Sweeps == nil || deps.Registry == nil || deps.Traces == nil || deps.Agents == nil || deps.ID == "" {
		return nil, errors.New("the API needs an id, sweeps, a registry, traces and agents")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	s := &server{Deps: deps, proxy: &http.Client{Timeout: time.Minute, CheckRedirect: stay, Transport: peerTransport(deps.Peers)}}
	mux := http.NewServeMux()
	config := huma.DefaultConfig("OOMFleet", "1")
	config.Info.Description = "How much GPU memory a workload really needs: sweeps, boundaries, coefficients, traces."
	config.CreateHooks = nil // documents without $schema links
	config.DocsPath = ""     // its page would load scripts from elsewhere
	config.Transformers = []huma.Transformer{ours}
	config.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	describeTokens(&config)
	h := humago.New(mux, config)
	s.registerStatus(h)
	s.registerSweeps(h)
	s.registerAnswers(h)
	s.registerQuota(h)
	s.registerTraces(h, mux)
	s.registerHistory(h)
	s.registerImport(h)
	s.registerWatch(h, mux)
	s.registerBackup(h, mux)
	s.registerCluster(h)
	s.registerLifecycle(h)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	document(h, plain{"health", "/healthz", "Whether this process answers", "text/plain", nil})
	mux.HandleFunc("GET /readyz", s.readyz)
	document(h, plain{"ready", "/readyz", "Whether this process has caught up and should be asked", "text/plain", nil})
	if deps.Metrics != nil {
		mux.Handle("GET /metrics", deps.Metrics)
		document(h, plain{"metrics", "/metrics", "Metrics for Prometheus", "text/plain", nil})
	}
	documentProblems(h)
	return s.recovered(unread(readWithin, hurried(strangersBody, s.authenticate(unhurried(s.forward(s.check(mux, queriesOf(h)))))))), nil
}

// leads is whether this node believes that it leads.
func (s *server) leads() bool { return s.Registry.LeaderID() == s.ID }
