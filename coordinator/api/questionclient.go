package api

import (
	"context"
	"net/http"
	"net/url"
)

// Quota asks for a quota; see PointQuery for the parameters.
func (c *Client) Quota(ctx context.Context, question url.Values) (Recommendation, error) {
	return ask[Recommendation](ctx, c, http.MethodGet, "/v1/quota?"+question.Encode(), nil)
}

// MaxSeqLen asks for the largest length that fits a quota; see lengthQuery.
func (c *Client) MaxSeqLen(ctx context.Context, question url.Values) (Largest, error) {
	return ask[Largest](ctx, c, http.MethodGet, "/v1/quota/max-seq-len?"+question.Encode(), nil)
}

// MaxBatch asks for the largest batch that fits a quota; see batchQuery.
func (c *Client) MaxBatch(ctx context.Context, question url.Values) (Largest, error) {
	return ask[Largest](ctx, c, http.MethodGet, "/v1/quota/max-batch?"+question.Encode(), nil)
}

// Replicas asks how many runs one card holds at once; see replicaQuery.
func (c *Client) Replicas(ctx context.Context, question url.Values) (Replicas, error) {
	return ask[Replicas](ctx, c, http.MethodGet, "/v1/quota/replicas?"+question.Encode(), nil)
}

// CompareQuotas asks for two quotas side by side; see compareQuery.
func (c *Client) CompareQuotas(ctx context.Context, question url.Values) (QuotaComparison, error) {
	return ask[QuotaComparison](ctx, c, http.MethodGet, "/v1/quota/compare?"+question.Encode(), nil)
}
