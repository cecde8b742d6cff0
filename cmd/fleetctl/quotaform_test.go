package main

import (
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
)

// TestFormsAreNotInjected: whatever a coordinator says, a line of a form is a
// comment, one of its own, or a value within quotes.
func TestFormsAreNotInjected(t *testing.T) {
	const evil = "2.9.0\ntouch /tmp/owned #\r\u2028"
	for _, format := range []string{formatEnv, formatSlurm, formatKubernetes, formatHAMi, formatMPS} {
		r := recommendation(func(r *api.Recommendation) {
			r.Torch, r.Driver, r.GPU, r.Workload = evil, evil, evil, evil
			r.Basis, r.Origin = "boundary"+evil, "measured"+evil
			if format == formatHAMi || format == formatMPS {
				r.QuotaKind = proto.QuotaProcess
			}
		})
		text, err := form(t, format, r, formFlags{})
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' || r == '\u2028' }) {
			if strings.HasPrefix(strings.TrimSpace(line), "touch") {
				t.Errorf("%s:\n%s", format, text)
			}
		}
		if format == formatEnv && !strings.Contains(text, `# torch 2.9.0\ntouch`) {
			t.Errorf("%s", text)
		}
	}
}

// TestFormsOfNoQuota: an answer of an older coordinator that is none, and a card
// smaller than a quota, are refused by every form.
func TestFormsOfNoQuota(t *testing.T) {
	for _, format := range []string{formatEnv, formatSlurm, formatKubernetes, formatHAMi, formatMPS} {
		for _, quota := range []proto.Bytes{0, -proto.MiB, 1 << 61} {
			r := recommendation(func(r *api.Recommendation) { r.QuotaKind, r.Quota = proto.QuotaProcess, quota })
			if text, err := form(t, format, r, formFlags{shards: maxShards}); err == nil || text != "" {
				t.Errorf("%s of %d: %s", format, int64(quota), text)
			}
		}
	}
	if _, err := form(t, formatMPS, recommendation(), formFlags{}); err == nil || !strings.Contains(err.Error(), "what an allocator quota counts") {
		t.Errorf("%v", err)
	}
}

func TestShardsAreBounded(t *testing.T) {
	for shards, ok := range map[int]bool{0: true, 1: true, maxShards: true, -1: false, maxShards + 1: false, 1 << 62: false} {
		f := formFlags{format: formatSlurm, shards: shards}
		if err := f.check(&quotaFlags{}, false); (err == nil) != ok {
			t.Errorf("%d: %v", shards, err)
		}
	}
}
