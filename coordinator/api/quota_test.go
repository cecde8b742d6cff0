package api_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/coordinator/quota"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// measuredFleet has cells of several drivers, environments and workloads.
func measuredFleet(t *testing.T) (*cluster, *api.Client) {
	c := newCluster(t)
	client := c.client(c.serve("n1", nil))
	const m = proto.OriginMeasured
	var row []proto.Cell
	for _, n := range []int{64, 128, 192, 256} {
		row = append(row, cell(n))
	}
	pending := cell(32) // sorts before all others and was never recorded
	env := cell(64, func(c *proto.Cell) {
		c.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:True", "EMPTY": ""}
	})
	chunked := cell(64, func(c *proto.Cell) { c.ChunkSize = 64 })
	coarse := cell(64, func(c *proto.Cell) { c.Step = 64 * proto.MiB })
	older := cell(64, func(c *proto.Cell) { c.Driver, c.ChunkSize = "550.1", 32 })
	newer := cell(64, func(c *proto.Cell) { c.Driver, c.ChunkSize = "590.1", 32 })
	small := cell(64, func(c *proto.Cell) { c.Workload = proto.Workload{Name: "esm", Params: map[string]string{"model": "a"}} })
	large := cell(64, func(c *proto.Cell) { c.Workload = proto.Workload{Name: "esm", Params: map[string]string{"model": "b"}} })
	c.addSweep("all", m, append(row, pending, env, chunked, coarse, older, newer, small, large)...)
	for _, cell := range row {
		c.record(m, cell, "")
	}
	c.fit(m, row...)
	settle := func(cell proto.Cell, state proto.CellState, b proto.Boundary) {
		c.settle(m, cell, registry.Settlement{State: state, Boundary: b})
	}
	settle(row[0], proto.CellCertified, proto.Boundary{Boundary: 100 * proto.MiB, NoRetry: 120 * proto.MiB, BandsKnown: true})
	settle(coarse, proto.CellCertified, proto.Boundary{Boundary: 128 * proto.MiB})
	settle(env, proto.CellPredicted, proto.Boundary{Boundary: 200 * proto.MiB, BandsKnown: true})
	settle(chunked, proto.CellBisected, proto.Boundary{Boundary: 300 * proto.MiB})
	settle(older, proto.CellCertified, proto.Boundary{Boundary: 400 * proto.MiB})
	settle(newer, proto.CellCertified, proto.Boundary{Boundary: 500 * proto.MiB})
	settle(small, proto.CellCertified, proto.Boundary{Boundary: 600 * proto.MiB})
	settle(large, proto.CellCertified, proto.Boundary{Boundary: 700 * proto.MiB})
	return c, client
}

func TestQuotaOfACell(t *testing.T) {
	_, client := measuredFleet(t)
	for _, tt := range []struct {
		query string
		want  proto.Bytes // in MiB
		state proto.CellState
		bands bool
	}{
		{"seq_len=64", 100, proto.CellCertified, true},
		{"seq_len=64&batch=1&chunk_size=0&gpu=&driver=&workload=esmfold&quota_kind=allocator&origin=measured", 100, proto.CellCertified, true},
		{"seq_len=64&chunk_size=64", 300, proto.CellBisected, false},
		{"seq_len=64&chunk_size=32&driver=550.1", 400, proto.CellCertified, false},
		{"seq_len=64&chunk_size=32&driver=590.1", 500, proto.CellCertified, false},
		{"seq_len=64&workload=esm&param=model%3Db", 700, proto.CellCertified, false},
	} {
		q, err := url.ParseQuery(tt.query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.Quota(t.Context(), q)
		if err != nil || got.Survive != tt.want*proto.MiB || got.Basis != quota.BasisBoundary || got.Quota != got.Survive || got.Margin != 0 || got.CellState != tt.state || got.BandsKnown != tt.bands ||
			got.CellID == "" || got.GPU != card || got.Driver == "" || got.Origin != proto.OriginMeasured || got.QuotaKind != proto.QuotaAllocator ||
			got.Role != "leader" || got.AppliedIndex == 0 {
			t.Errorf("%s: %+v, %v", tt.query, got, err)
		}
		if known := got.NoRetry != nil; known != (tt.want == 100) || known && *got.NoRetry != 120*proto.MiB {
			t.Errorf("%s: no retry from %v", tt.query, got.NoRetry)
		}
	}
}

func TestQuotaFromCoefficients(t *testing.T) {
	_, client := measuredFleet(t)
	got, err := client.Quota(t.Context(), url.Values{"seq_len": {"160"}})
	if err != nil {
		t.Fatal(err)
	}
	truth := reserved(160, 1)
	if got.Basis != quota.BasisCoefficients || got.Survive < truth || got.Survive > truth+truth/20 || got.Survive%proto.DefaultStep != 0 ||
		got.Predicted < truth-truth/50 || got.Predicted > got.Survive || got.Domain == nil || got.Domain.SeqLen != (proto.Range{64, 256}) ||
		got.CellID != "" || got.CellState != "" {
		t.Errorf("peak is %s, got %+v", truth, got)
	}
	// A cell of the matrix that has not settled is answered likewise.
	if same, err := client.Quota(t.Context(), url.Values{"seq_len": {"128"}}); err != nil || same.Basis != quota.BasisCoefficients {
		t.Errorf("%+v, %v", same, err)
	}
}

func TestQuotaRefuses(t *testing.T) {
	c, client := measuredFleet(t)
	for _, tt := range []struct {
		query, words string
		status       int
		code         quota.Code
	}{
		{"seq_len=300", "outside what was fitted (lengths 64 to 256, batches 1 to 1)", 422, quota.OutsideDomain},
		{"seq_len=160&batch=2", "outside what was fitted", 422, quota.OutsideDomain},
		{"seq_len=64&chunk_size=32", "several stacks are known (NVIDIA H200 under driver 550.1; NVIDIA H200 under driver 590.1)", 400, quota.Ambiguous},
		{"seq_len=64&workload=esm", "several variants of workload esm are known (model=a; model=b)", 400, quota.Ambiguous},
		{"seq_len=64&workload=esm&param=model%3Dc", "no measured sweep covers workload esm", 404, quota.NotCovered},
		{"seq_len=64&driver=1.2", "driver 1.2 is not known to any measured sweep of esmfold; drivers covered: 550.1, 580.1, 590.1", 404, quota.UnknownDriver},
		{"seq_len=64&gpu=Voodoo", "GPUs covered: NVIDIA H200", 404, quota.NotCovered},
		{"seq_len=64&origin=simulated", "no simulated sweep has run: submit a matrix first; measured has drivers 550.1, 580.1, 590.1: ask with origin measured", 404, quota.NotCovered},
		{"seq_len=64&chunk_size=7", "no measured sweep covers chunk size 7; covered: ", 404, quota.NotCovered},
		{"seq_len=64&env=EMPTY%3D", "no boundary and its group no coefficients yet", 404, quota.NotCovered},
		{"seq_len=65&chunk_size=64", "no boundary and its group no coefficients yet", 404, quota.NotCovered},
		{"seq_len=64&risk=0.9", "risk", 422, quota.BadQuestion},
		{"seq_len=64&risk=0", "risk", 422, quota.BadQuestion},
		{"seq_len=64&risk=NaN", "risk is NaN", 400, quota.BadQuestion},
		{"seq_len=64&seq_len=128", "seq_len is given more than once", 422, quota.BadQuestion},
		{"seq_len=64&env=PYTORCH_CUDA_ALLOC_CONF%3Dgarbage:1", "garbage", 400, quota.BadQuestion},
		{"seq_len=2000000", "seq_len is 2000000", 400, quota.BadQuestion},
	} {
		q, err := url.ParseQuery(tt.query)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Quota(t.Context(), q)
		var p *api.Problem
		if !errors.As(err, &p) || p.Code != string(tt.code) || p.GetStatus() != tt.status || !strings.Contains(p.Message, tt.words) {
			t.Errorf("%s: %v, want %q", tt.query, err, tt.words)
		}
	}
	c.believe("n1", "n2")
	if got, err := client.Quota(t.Context(), url.Values{"seq_len": {"64"}}); err != nil || got.Role != "follower" {
		t.Errorf("a follower answers %+v, %v", got, err)
	}
}

// TestQuotaOfAProcess: a process quota has to hold context and libraries too.
func TestQuotaOfAProcess(t *testing.T) {
	c := newCluster(t)
	client := c.client(c.serve("n1", nil))
	var row []proto.Cell
	for _, n := range []int{64, 128, 192, 256} {
		row = append(row, cell(n, func(c *proto.Cell) { c.QuotaKind = proto.QuotaProcess }))
	}
	c.addSweep("s", proto.OriginMeasured, row...)
	for _, cell := range row {
		c.record(proto.OriginMeasured, cell, "")
	}
	c.fit(proto.OriginMeasured, row...)
	got, err := client.Quota(t.Context(), url.Values{"seq_len": {"160"}, "quota_kind": {"process"}})
	if truth := reserved(160, 1) + proto.GiB; err != nil || got.Survive < truth || got.Survive > truth+truth/20 {
		t.Errorf("process peak is %s, got %+v, %v", truth, got, err)
	}
}
