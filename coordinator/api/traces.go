package api

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/internal/secret"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// parquetType is the media type of a trace file.
const parquetType = "application/vnd.apache.parquet"

// TraceEntry is one recorded trace in a list: of a recording, or of a probe that
// did otherwise than was predicted. Two probes of one cell differ by their quota.
type TraceEntry struct {
	Ref    proto.TraceRef `json:"ref"`
	Cell   proto.Cell     `json:"cell"`
	CellID proto.CellID   `json:"cell_id"`
	Origin proto.Origin   `json:"origin"`
	Agent  proto.AgentID  `json:"agent"`
	// Task is the run's, Kind what it was for.
	Task proto.TaskID   `json:"task"`
	Kind proto.TaskKind `json:"task_kind"`
	// Quota is what the run was given, of the kind QuotaKind; 0 is none, as for
	// every recording.
	Quota     proto.Bytes     `json:"quota_bytes"`
	QuotaKind proto.QuotaKind `json:"quota_kind"`
	Outcome   proto.Outcome   `json:"outcome"`
}

// TraceList is the answer of the list of traces.
type TraceList struct {
	Traces []TraceEntry `json:"traces"`
	Position
}

// Linker gives out addresses of the trace store. Traces that have this method too
// can be asked for it; others refuse. See trace.Store for how it fails.
type Linker interface {
	Link(ctx context.Context, digest proto.Digest, within time.Duration) (secret.Text, proto.Bytes, error)
}

// linkFor is how long an address of a trace can be used.
const linkFor = 15 * time.Minute

// TraceURL is an address from which one trace file can be fetched.
type TraceURL struct {
	Digest proto.Digest `json:"digest" doc:"what the SHA-256 of the file has to be; whoever fetches it checks"`
	// URL is good for everybody who has it: a secret until Expires.
	URL     string      `json:"url" doc:"good for everybody who has it, without a token: keep it out of logs"`
	Expires time.Time   `json:"expires"`
	Size    proto.Bytes `json:"size_bytes"`
}

// linkAnswer is a TraceURL that nothing on the way keeps.
type linkAnswer struct {
	Cache string `header:"Cache-Control"`
	Body  TraceURL
}

func (s *server) link(ctx context.Context, digest proto.Digest) (TraceURL, error) {
	linker, ok := s.Traces.(Linker)
	if !ok {
		return TraceURL{}, s.problemOf(trace.ErrNoLink)
	}
	expires := time.Now().Add(linkFor)
	link, size, err := linker.Link(ctx, digest, linkFor)
	if err != nil {
		return TraceURL{}, s.problemAt(partTraces, err)
	}
	return TraceURL{Digest: digest, URL: link.Reveal(), Expires: expires.UTC().Truncate(time.Second), Size: size}, nil
}

func (s *server) registerTraces(h huma.API, mux *http.ServeMux) {
	huma.Register(h, huma.Operation{OperationID: "traces", Method: http.MethodGet, Path: "/v1/traces", Summary: "Recorded traces"},
		func(_ context.Context, in *struct {
			Sweep string `query:"sweep" doc:"only traces of this sweep's cells"`
		}) (*body[TraceList], error) {
			view, at := s.look()
			if in.Sweep != "" && view.Sweeps[proto.MatrixID(in.Sweep)] == nil {
				return nil, problem(http.StatusNotFound, CodeNotFound, "there is no such sweep; matrix list shows them")
			}
			return &body[TraceList]{TraceList{tracesOf(view, proto.MatrixID(in.Sweep)), at}}, nil
		})
	huma.Register(h, huma.Operation{OperationID: "trace-url", Method: http.MethodGet, Path: "/v1/traces/{digest}/url",
		Summary: "An address of the store from which one trace file can be fetched for a while"},
		func(ctx context.Context, in *struct {
			Digest string `path:"digest" pattern:"^[0-9a-f]{64}$" doc:"the trace's name"`
		}) (*linkAnswer, error) {
			link, err := s.link(ctx, proto.Digest(in.Digest))
			if err != nil {
				return nil, err
			}
			return &linkAnswer{Cache: "no-store", Body: link}, nil
		})
	mux.HandleFunc("GET /v1/traces/{digest}", s.download)
	document(h, plain{"trace", "/v1/traces/{digest}", "One trace file, as it is stored", parquetType, []string{"digest"}})
}

// tracesOf lists the traces that the registry's runs name, by cell, origin and
// quota.
func tracesOf(view registry.View, sweep proto.MatrixID) []TraceEntry {
	out := []TraceEntry{}
	for _, rec := range view.Records {
		if sweep != "" && !slices.Contains(rec.Sweeps, sweep) {
			continue
		}
		for _, run := range rec.Runs {
			if run.Trace != nil {
				out = append(out, TraceEntry{Ref: *run.Trace, Cell: rec.Cell, CellID: rec.Key.Cell, Origin: rec.Key.Origin, Agent: run.Agent,
					Task: run.Task, Kind: run.Kind, Quota: run.Quota, QuotaKind: rec.Cell.QuotaKind, Outcome: run.Outcome})
			}
		}
	}
	slices.SortFunc(out, func(a, b TraceEntry) int {
		if c := a.Cell.Compare(b.Cell); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Quota, b.Quota), cmp.Compare(a.Ref.Digest, b.Ref.Digest), cmp.Compare(a.Task, b.Task))
	})
	return out
}

// download streams a trace file as it is stored; whoever reads it checks it
// against the digest.
func (s *server) download(w http.ResponseWriter, r *http.Request) {
	digest := proto.Digest(r.PathValue("digest"))
	if !trace.ValidDigest(digest) {
		writeProblem(w, problem(http.StatusBadRequest, CodeBadRequest, "a trace is named by 64 lower-case hexadecimal digits"))
		return
	}
	content, size, err := s.Traces.Open(r.Context(), digest)
	if err != nil {
		writeProblem(w, s.problemAt(partTraces, err))
		return
	}
	defer content.Close()
	w.Header().Set("Content-Type", parquetType)
	w.Header().Set("Content-Length", strconv.FormatInt(int64(size), 10))
	if _, err := io.Copy(w, content); err != nil {
		s.Log.Warn("trace download broke off", "trace", digest, "error", err)
	}
}
