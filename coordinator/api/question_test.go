package api_test

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/coordinator/quota"
	"github.com/oomfleet/oomfleet/proto"
)

func query(t *testing.T, text string) url.Values {
	t.Helper()
	q, err := url.ParseQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestBackwardQuestions asks over HTTP; package quota tests the answers.
func TestBackwardQuestions(t *testing.T) {
	_, client := measuredFleet(t)
	ctx := t.Context()
	given := reserved(200, 1) + 200*proto.MiB
	length, err := client.MaxSeqLen(ctx, query(t, "quota_bytes="+strconv.FormatInt(int64(given), 10)))
	if err != nil || length.Value < 200 || length.Value > 256 || length.At.Quota > given || length.Role != "leader" || length.AppliedIndex == 0 ||
		length.At.AppliedIndex != length.AppliedIndex || length.At.Basis != quota.BasisCoefficients {
		t.Errorf("%+v, %v", length, err)
	}
	batch, err := client.MaxBatch(ctx, query(t, "seq_len=64&quota_bytes=104857600"))
	if err != nil || batch.Value != 1 || batch.LimitedBy != "domain" || batch.At.Basis != quota.BasisBoundary {
		t.Errorf("%+v, %v", batch, err)
	}
	replicas, err := client.Replicas(ctx, query(t, "seq_len=64&card_memory_bytes=85899345920"))
	if each := 1140 * proto.MiB; err != nil || replicas.Each != each || replicas.Replicas != int(80*proto.GiB/each) || replicas.Role != "leader" {
		t.Errorf("100 MiB, 1 GiB outside the allocator and 16 MiB of margin: %+v, %v", replicas, err)
	}
	two, err := client.CompareQuotas(ctx, query(t, "seq_len=64&chunk_size=32&driver=550.1&with=driver%3D590.1"))
	if err != nil || two.Difference != 100*proto.MiB || two.A.Driver != "550.1" || two.B.Driver != "590.1" || two.Role != "leader" {
		t.Errorf("%+v, %v", two, err)
	}
	two, err = client.CompareQuotas(ctx, query(t, "seq_len=64&workload=esm&param=model%3Da&with=param%3Dmodel%3Db&with=batch%3D1&with=env%3D"))
	if err != nil || two.Difference != 100*proto.MiB || two.B.Params["model"] != "b" {
		t.Errorf("%+v, %v", two, err)
	}
	for _, tt := range []struct {
		path, words string
		status      int
		code        quota.Code
	}{
		{"max-seq-len?quota_bytes=0", "quota_bytes", 422, quota.BadQuestion},
		{"max-seq-len?batch=-1&quota_bytes=9", "batch", 422, quota.BadQuestion},
		{"max-seq-len?quota_bytes=2097152", "no seq_len fits 2 MiB", 422, quota.NothingFits},
		{"max-seq-len?quota_bytes=2097152&driver=1.2", "drivers covered: 550.1, 580.1, 590.1", 404, quota.UnknownDriver},
		{"max-batch?seq_len=300&quota_bytes=99999999999", "nothing is known of this combination", 404, quota.NotCovered},
		{"replicas?seq_len=64", "give card_memory_bytes", 400, quota.BadQuestion},
		{"compare?seq_len=64&with=batch%3Dmany", "with batch takes a whole number", 400, quota.BadQuestion},
		{"compare?seq_len=64&with=quota_kind%3Ddevice", "with takes FIELD=VALUE", 400, quota.BadQuestion},
		{"compare?seq_len=64", "query.with", 422, quota.BadQuestion},
	} {
		path, text, _ := strings.Cut(tt.path, "?")
		q := query(t, text)
		var err error
		switch path {
		case "max-seq-len":
			_, err = client.MaxSeqLen(ctx, q)
		case "max-batch":
			_, err = client.MaxBatch(ctx, q)
		case "replicas":
			_, err = client.Replicas(ctx, q)
		case "compare":
			_, err = client.CompareQuotas(ctx, q)
		}
		var p *api.Problem
		if !errors.As(err, &p) || p.GetStatus() != tt.status || p.Code != string(tt.code) || !strings.Contains(p.Message, tt.words) {
			t.Errorf("%s: %+v, want %d %s with %q", tt.path, err, tt.status, tt.code, tt.words)
		}
	}
}
