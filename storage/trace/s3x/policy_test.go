package s3x_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/oomfleet/oomfleet/internal/s3server/s3servertest"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/s3x"
	"github.com/oomfleet/oomfleet/storage/trace/tracetest"
)

// documented is the bucket policy that docs/security.md tells operators to set.
func documented(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```json\n")
	policy, _, end := strings.Cut(rest, "```")
	if !ok || !end || !strings.Contains(policy, "oomfleet-agent") {
		t.Fatal("docs/security.md has no bucket policy any more")
	}
	return policy
}

// TestAgentPolicy: with the documented policy an agent's keys can store and read
// traces, and do nothing to programs, to other buckets or to what is there.
func TestAgentPolicy(t *testing.T) {
	const bucket, agentSecret = "oomfleet", "an-agent-of-the-tests"
	accounts := t.TempDir()
	users := map[string]any{"accessAccounts": map[string]any{"oomfleet-agent": map[string]any{
		"access": "oomfleet-agent", "secret": agentSecret, "role": "user"}}}
	text, err := json.Marshal(users)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(accounts, "users.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	server := s3servertest.Start(t, s3servertest.Options{AccountsDir: accounts})
	coordinator := open(t, config(server, bucket))
	open(t, config(server, "another"))
	root, err := minio.New(server.Addr, &minio.Options{Creds: credentials.NewStaticV4(s3servertest.AccessKey, s3servertest.SecretKey, "")})
	if err != nil {
		t.Fatal(err)
	}
	if err := root.SetBucketPolicy(t.Context(), bucket, documented(t)); err != nil {
		t.Fatal(err)
	}
	as := func(bucket string) *s3x.Driver {
		d, err := s3x.New(s3x.Config{URL: server.URL(), Bucket: bucket, AccessKey: "oomfleet-agent", SecretKey: agentSecret})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		return d
	}
	agent := as(bucket)
	t.Run("its own work", func(t *testing.T) {
		store := trace.NewStore(agent)
		if err := store.CanaryPut(t.Context(), "agent"); err != nil {
			t.Error(err)
		}
		if err := store.CanaryPut(t.Context(), "agent"); err != nil {
			t.Errorf("again: %v", err)
		}
		events, meta := tracetest.Sample(1)
		ref, err := store.PutTrace(t.Context(), events, meta)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := trace.NewStore(coordinator).GetTrace(t.Context(), ref.Digest); err != nil {
			t.Errorf("the coordinator reads it: %v", err)
		}
	})
	program, err := trace.NewStore(coordinator).PutProgram(t.Context(), []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	content := []byte("forged")
	info := trace.Info{Size: proto.Bytes(len(content)), SHA256: trace.DigestOf(content)}
	put := func(d *s3x.Driver, key string) error { return d.Put(t.Context(), key, bytes.NewReader(content), info) }
	key := "programs/" + string(program) + ".json"
	for what, do := range map[string]func() error{
		"replace a program":     func() error { return put(agent, key) },
		"read a program":        func() error { _, _, err := agent.Open(t.Context(), key); return err },
		"delete a trace":        func() error { return agent.Delete(t.Context(), "traces/x.parquet") },
		"write beside":          func() error { return put(agent, "x") },
		"write another bucket":  func() error { return put(as("another"), "traces/x.parquet") },
		"make a bucket":         func() error { return as("new-one").EnsureBucket(t.Context()) },
		"change the policy":     func() error { return asMinio(t, server, agentSecret).SetBucketPolicy(t.Context(), bucket, "") },
		"wrong key of an agent": func() error { _, err := asMinio(t, server, "x").GetBucketPolicy(t.Context(), bucket); return err },
	} {
		t.Run(what, func(t *testing.T) {
			err := do()
			var answer minio.ErrorResponse
			if !errors.Is(err, trace.ErrRefused) && !(errors.As(err, &answer) && answer.StatusCode == 403) {
				t.Errorf("got %v, want a refusal", err)
			}
		})
	}
	if _, err := trace.NewStore(coordinator).GetProgram(t.Context(), program); err != nil {
		t.Errorf("the program: %v", err)
	}
}

func asMinio(t *testing.T, server *s3servertest.Server, secret string) *minio.Client {
	t.Helper()
	c, err := minio.New(server.Addr, &minio.Options{Creds: credentials.NewStaticV4("oomfleet-agent", secret, "")})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
