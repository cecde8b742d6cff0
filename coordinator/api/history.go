package api

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// CoefficientRevision is one committed set of coefficients.
type CoefficientRevision struct {
	Origin    proto.Origin    `json:"origin"`
	QuotaKind proto.QuotaKind `json:"quota_kind"`
	Group     proto.Group     `json:"group"`
	// Revision counts the group's sets from 1; Newest is whether it is the one
	// that answers come from.
	Revision     int                  `json:"revision"`
	Newest       bool                 `json:"newest"`
	Index        uint64               `json:"index"`
	Fitted       time.Time            `json:"fitted"`
	Evidence     []proto.TaskID       `json:"evidence"`
	Coefficients []proto.Coefficients `json:"coefficients"`
}

// CoefficientHistory is the answer of the coefficients' history: oldest first
// within a group.
type CoefficientHistory struct {
	History []CoefficientRevision `json:"history"`
	Position
}

// BoundaryEntry is a cell that has settled.
type BoundaryEntry struct {
	proto.CellReport
	// Revision counts the cell's settlements from 1, Index is the log's.
	Revision int    `json:"revision"`
	Index    uint64 `json:"index"`
}

// BoundaryList is the answer of the boundaries.
type BoundaryList struct {
	Boundaries []BoundaryEntry `json:"boundaries"`
	Position
}

// BoundaryHistory is all that one cell was settled as, oldest first.
type BoundaryHistory struct {
	Cell    proto.CellID          `json:"cell"`
	Origin  proto.Origin          `json:"origin"`
	History []registry.Settlement `json:"history"`
	Position
}

// ProgramList is the answer of the programs: references into the trace store.
type ProgramList struct {
	Programs []registry.Program `json:"programs"`
	Position
}

// historyQuery asks for earlier sets.
type historyQuery struct {
	CoefficientQuery
	Revision int `query:"revision" minimum:"0" doc:"only this revision of each group; 0 is all"`
}

// boundaryQuery filters boundaries; an empty field matches all.
type boundaryQuery struct {
	CoefficientQuery
	SeqLen int `query:"seq_len" minimum:"0"`
	Batch  int `query:"batch" minimum:"0"`
}

// cellQuery names a cell and what is wanted of it.
type cellQuery struct {
	Cell     string `path:"cell"`
	Origin   string `query:"origin" enum:"measured,simulated" default:"measured"`
	Revision int    `query:"revision" minimum:"0" doc:"only this revision; 0 is all"`
}

// programQuery filters programs.
type programQuery struct {
	Origin string `query:"origin" enum:"measured,simulated"`
	Digest string `query:"digest" doc:"only the family that has or had this program"`
}

func (s *server) registerHistory(h huma.API) {
	huma.Register(h, huma.Operation{OperationID: "coefficient-history", Method: http.MethodGet, Path: "/v1/coefficients/history", Summary: "Coefficients by revision"},
		func(_ context.Context, q *historyQuery) (*body[CoefficientHistory], error) {
			view, at := s.look()
			return &body[CoefficientHistory]{CoefficientHistory{q.of(view), at}}, nil
		})
	huma.Register(h, huma.Operation{OperationID: "boundaries", Method: http.MethodGet, Path: "/v1/boundaries", Summary: "Boundaries of settled cells"},
		func(_ context.Context, q *boundaryQuery) (*body[BoundaryList], error) {
			view, at := s.look()
			return &body[BoundaryList]{BoundaryList{q.of(view), at}}, nil
		})
	huma.Register(h, huma.Operation{OperationID: "boundary-history", Method: http.MethodGet, Path: "/v1/boundaries/{cell}/history", Summary: "What a cell was settled as, by revision"},
		func(_ context.Context, q *cellQuery) (*body[BoundaryHistory], error) {
			view, at := s.look()
			key := registry.Key{Origin: proto.Origin(q.Origin), Cell: proto.CellID(q.Cell)}
			if view.Records[key] == nil {
				return nil, problem(http.StatusNotFound, CodeNotFound, "there is no such "+q.Origin+" cell; matrix status shows the cells of a sweep")
			}
			return &body[BoundaryHistory]{BoundaryHistory{key.Cell, key.Origin, settlements(view, key, q.Revision), at}}, nil
		})
	huma.Register(h, huma.Operation{OperationID: "programs", Method: http.MethodGet, Path: "/v1/programs", Summary: "Programs by family, with those before them"},
		func(_ context.Context, q *programQuery) (*body[ProgramList], error) {
			view, at := s.look()
			out := ProgramList{Programs: []registry.Program{}, Position: at}
			for _, key := range slices.SortedFunc(maps.Keys(view.Programs), registry.FamilyKey.Compare) {
				p, digest := view.Programs[key], proto.Digest(q.Digest)
				if (q.Origin == "" || q.Origin == string(key.Origin)) && (digest == "" || p.Digest == digest || slices.Contains(p.Earlier, digest)) {
					out.Programs = append(out.Programs, *p)
				}
			}
			return &body[ProgramList]{out}, nil
		})
}

// of lists what the query selects, by group and revision.
func (q historyQuery) of(view registry.View) []CoefficientRevision {
	out := []CoefficientRevision{}
	for _, key := range slices.SortedFunc(maps.Keys(view.Coefficients), registry.GroupKey.Compare) {
		for _, set := range append(slices.Clip(view.History[key]), view.Coefficients[key]) {
			if (q.Revision == 0 || q.Revision == set.Revision) && len(set.Models) > 0 && q.matches(key, set.Models[0]) {
				out = append(out, revisionOf(set, set == view.Coefficients[key]))
			}
		}
	}
	return out
}

func revisionOf(set *registry.CoefficientSet, newest bool) CoefficientRevision {
	out := CoefficientRevision{Origin: set.Key.Origin, QuotaKind: set.Key.QuotaKind, Group: set.Models[0].Group, Revision: set.Revision, Newest: newest,
		Index: set.Index, Fitted: set.Fitted, Evidence: set.Evidence, Coefficients: set.Models}
	if out.Evidence == nil {
		out.Evidence = []proto.TaskID{}
	}
	return out
}

// of lists the settled cells that the query selects, by cell.
func (q boundaryQuery) of(view registry.View) []BoundaryEntry {
	out := []BoundaryEntry{}
	for key, r := range view.Records {
		c := &r.Cell
		if r.Settled != nil && (q.SeqLen == 0 || q.SeqLen == c.SeqLen) && (q.Batch == 0 || q.Batch == c.Batch) &&
			(q.GPU == "" || q.GPU == c.GPU) && (q.Driver == "" || q.Driver == c.Driver) && (q.Workload == "" || q.Workload == c.Workload.Name) &&
			(q.Origin == "" || q.Origin == string(key.Origin)) && (q.QuotaKind == "" || q.QuotaKind == string(c.QuotaKind)) {
			out = append(out, boundaryOf(r))
		}
	}
	slices.SortFunc(out, func(a, b BoundaryEntry) int {
		if c := view.Records[registry.Key{Origin: a.Origin, Cell: a.ID}].Cell.Compare(view.Records[registry.Key{Origin: b.Origin, Cell: b.ID}].Cell); c != 0 {
			return c
		}
		return strings.Compare(string(a.Origin), string(b.Origin))
	})
	return out
}

func boundaryOf(r *registry.Record) BoundaryEntry {
	return BoundaryEntry{CellReport: r.Report(), Revision: r.Settled.Revision, Index: r.Settled.Index}
}

// settlements are all that a cell was settled as; revision 0 is all.
func settlements(view registry.View, key registry.Key, revision int) []registry.Settlement {
	out := []registry.Settlement{}
	for _, s := range append(slices.Clip(view.Settlements[key]), view.Records[key].Settled) {
		if s != nil && (revision == 0 || revision == s.Revision) {
			out = append(out, *s)
		}
	}
	return out
}
