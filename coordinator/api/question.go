package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/oomfleet/oomfleet/coordinator/quota"
	"github.com/oomfleet/oomfleet/proto"
)

// Questions asked backwards, and two answers side by side.
type (
	// Largest is the largest length or batch that a quota holds.
	Largest = quota.Largest
	// Replicas is how many runs a card holds at once.
	Replicas = quota.Replicas
	// QuotaComparison is two recommendations side by side.
	QuotaComparison = quota.SideBySide
)

// lengthQuery asks for the largest length.
type lengthQuery struct {
	SubjectQuery
	Quota int64 `query:"quota_bytes" required:"true" minimum:"1"`
	Batch int   `query:"batch" minimum:"1" default:"1"`
}

// batchQuery asks for the largest batch.
type batchQuery struct {
	SubjectQuery
	Quota  int64 `query:"quota_bytes" required:"true" minimum:"1"`
	SeqLen int   `query:"seq_len" required:"true" minimum:"1"`
}

// replicaQuery asks how many runs a card holds.
type replicaQuery struct {
	PointQuery
	Card int64 `query:"card_memory_bytes" minimum:"0" default:"0" doc:"0 takes the card that the evidence comes from"`
}

// compareQuery asks for two answers.
type compareQuery struct {
	PointQuery
	With []string `query:"with,explode" required:"true" doc:"FIELD=VALUE in which the second question differs: seq_len, batch, chunk_size, gpu, driver, workload, param=KEY=VALUE, env=KEY=VALUE (env= for none); may be repeated"`
}

func (d *desk) registerBackward(h huma.API) {
	huma.Register(h, huma.Operation{OperationID: "max-seq-len", Method: http.MethodGet, Path: "/v1/quota/max-seq-len", Summary: "The largest length that fits a quota"},
		func(ctx context.Context, in *lengthQuery) (*body[Largest], error) {
			q, err := in.question()
			if err != nil {
				return nil, err
			}
			q.Batch = in.Batch
			return answered(ctx, d, func(a quota.Adviser) (Largest, error) {
				return a.MaxSeqLen(q, proto.Bytes(in.Quota))
			})
		})
	huma.Register(h, huma.Operation{OperationID: "max-batch", Method: http.MethodGet, Path: "/v1/quota/max-batch", Summary: "The largest batch that fits a quota"},
		func(ctx context.Context, in *batchQuery) (*body[Largest], error) {
			q, err := in.question()
			if err != nil {
				return nil, err
			}
			q.SeqLen = in.SeqLen
			return answered(ctx, d, func(a quota.Adviser) (Largest, error) {
				return a.MaxBatch(q, proto.Bytes(in.Quota))
			})
		})
	huma.Register(h, huma.Operation{OperationID: "replicas", Method: http.MethodGet, Path: "/v1/quota/replicas", Summary: "How many runs one card holds at once"},
		func(ctx context.Context, in *replicaQuery) (*body[Replicas], error) {
			q, err := in.question()
			if err != nil {
				return nil, err
			}
			return answered(ctx, d, func(a quota.Adviser) (Replicas, error) {
				return a.ReplicasOn(q, proto.Bytes(in.Card))
			})
		})
}

func (d *desk) registerCompare(h huma.API) {
	huma.Register(h, huma.Operation{OperationID: "compare-quotas", Method: http.MethodGet, Path: "/v1/quota/compare", Summary: "Two quotas side by side"},
		func(ctx context.Context, in *compareQuery) (*body[QuotaComparison], error) {
			one, err := in.question()
			if err != nil {
				return nil, err
			}
			other, err := differing(one, in.With)
			if err != nil {
				return nil, err
			}
			return answered(ctx, d, func(a quota.Adviser) (QuotaComparison, error) {
				return a.Compare(one, other)
			})
		})
}

// differing is a question with some fields changed; env and param replace the
// whole set.
func differing(q quota.Question, with []string) (quota.Question, error) {
	var env, params []string
	envGiven := false
	for _, text := range with {
		name, value, ok := strings.Cut(text, "=")
		numbers := map[string]*int{"seq_len": &q.SeqLen, "batch": &q.Batch, "chunk_size": &q.ChunkSize}
		words := map[string]*string{"gpu": &q.GPU, "driver": &q.Driver, "workload": &q.Workload, "origin": (*string)(&q.Origin)}
		switch {
		case ok && numbers[name] != nil:
			n, err := strconv.Atoi(value)
			if err != nil {
				return q, problem(http.StatusBadRequest, CodeBadRequest, fmt.Sprintf("with %s takes a whole number, not %q", name, value))
			}
			*numbers[name] = n
		case ok && words[name] != nil:
			*words[name] = value
		case ok && name == "env":
			if envGiven = true; value != "" {
				env = append(env, value)
			}
		case ok && name == "param":
			params = append(params, value)
		default:
			return q, problem(http.StatusBadRequest, CodeBadRequest, fmt.Sprintf("with takes FIELD=VALUE of seq_len, batch, chunk_size, gpu, driver, workload, param or env, not %q", text))
		}
	}
	var err error
	if envGiven {
		if q.Env, err = pairs("with env", env); err != nil {
			return q, err
		}
	}
	if len(params) > 0 {
		q.Params, err = pairs("with param", params)
	}
	return q, err
}
