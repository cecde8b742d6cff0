package raftnode

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

func TestLoggerIsQuiet(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := newLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))).Named("raft").With("peer", "n2")
	logger.Info("entering follower state")
	if out.Len() > 0 {
		t.Fatalf("said %s", out.String())
	}
	logger.Warn("election timeout reached")
	logger.Error("could not reach", "servers", hclog.Fmt("%+v", []string{"a"}))
	for _, want := range []string{"level=INFO", "level=WARN", "peer=n2", "part=raft"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out.String())
		}
	}
	newLogger(nil).Error("to nobody")
}
