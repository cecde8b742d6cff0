package config

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// guarded is the example that operators start from.
func guarded(t *testing.T) *Fleet {
	t.Helper()
	f, err := Read("../../deploy/fleet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestExposed(t *testing.T) {
	if err := guarded(t).Exposed(); err != nil {
		t.Errorf("the example: %v", err)
	}
	here := valid()
	if err := here.Exposed(); err != nil {
		t.Errorf("a fleet on one machine: %v", err)
	}
	for name, c := range map[string]struct {
		change func(*Fleet)
		says   string
	}{
		"no tokens":        {func(f *Fleet) { f.API.TokensFile = "" }, "api.tokens_file"},
		"plain API":        {func(f *Fleet) { f.Coordinators[1].API = "http://host-b.example:7400" }, "the API of coordinator b is plain http"},
		"open raft":        {func(f *Fleet) { f.Raft = TLSFiles{} }, "raft of coordinator c"},
		"plain queue":      {func(f *Fleet) { f.Queue.URL, f.Queue.CAFile = "nats://queue.example:4222", "" }, "the queue at queue.example:4222 is plain"},
		"one of two plain": {func(f *Fleet) { f.Queue.URL += ",nats://10.0.0.1:4222"; f.Queue.CAFile = "" }, "the queue at 10.0.0.1:4222 is plain"},
		"nobody's queue":   {func(f *Fleet) { f.Queue.NKeyFile = "" }, "queue.nkey_file"},
		"plain traces":     {func(f *Fleet) { f.Traces.URL = "http://s3.example" }, "trace store"},
		"plain links":      {func(f *Fleet) { f.Traces.PublicURL = "http://s3.example" }, "traces.public_url is plain"},
		"all interfaces":   {func(f *Fleet) { f.Coordinators[0].API = "http://0.0.0.0:7400" }, "plain http"},
	} {
		t.Run(name, func(t *testing.T) {
			f := guarded(t)
			c.change(f)
			err := f.Exposed()
			if !errors.Is(err, ErrExposed) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			f.Insecure = true
			if err := f.Exposed(); err != nil {
				t.Errorf("insecure: %v", err)
			}
		})
	}
	t.Run("a seed in the environment", func(t *testing.T) {
		t.Setenv(EnvQueueKeyFile, "/somewhere")
		f := guarded(t)
		f.Queue.NKeyFile = ""
		if err := f.Exposed(); err != nil || f.Queue.SeedFile() != "/somewhere" {
			t.Errorf("%v, %q", err, f.Queue.SeedFile())
		}
	})
}

func TestGuardsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Fleet)
		says   string
	}{
		"half a key":     {func(f *Fleet) { f.API.KeyFile = "" }, "api.cert_file and api.key_file"},
		"half a queue's": {func(f *Fleet) { f.Queue.CertFile = "x" }, "queue.cert_file and queue.key_file"},
		"raft alone":     {func(f *Fleet) { f.Raft.CAFile = "" }, "raft needs ca_file"},
		"https without":  {func(f *Fleet) { f.API.CertFile, f.API.KeyFile = "", "" }, "api.cert_file"},
		"http with":      {func(f *Fleet) { f.Coordinators[0].API = "http://127.0.0.1:7400" }, "write https"},
		"two identities": {func(f *Fleet) { f.Queue.CredsFile = "x" }, "nkey_file and creds_file"},
	} {
		t.Run(name, func(t *testing.T) {
			f := guarded(t)
			c.change(f)
			if err := f.Validate(); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestGuardsRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	want := guarded(t)
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Queue != want.Queue || got.API != want.API || got.Raft != want.Raft || got.Insecure {
		t.Errorf("got %+v", got)
	}
}
