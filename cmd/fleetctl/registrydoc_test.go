package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/coordinator/quota/quotatest"
	"github.com/oomfleet/oomfleet/storage/registry"
)

// restorable is a coordinator's registry that a backup can replace, as raft
// would have it.
type restorable struct{ alone }

func (r restorable) Restore(_ context.Context, from io.Reader, force bool) (registry.Restored, error) {
	backup, err := registry.ReadBackup(from)
	if err != nil {
		return registry.Restored{}, err
	}
	now := r.View()
	if !force && !now.Empty() {
		return registry.Restored{}, registry.ErrNotEmpty
	}
	next := backup.Replacing(now, now.AppliedIndex+100)
	var file bytes.Buffer
	if err := next.WriteSnapshot(&file); err != nil {
		return registry.Restored{}, err
	}
	done := registry.Restored{Index: next.AppliedIndex, BackupIndex: backup.AppliedIndex, Sweeps: len(next.Sweeps), Cells: len(next.Records),
		Coefficients: len(next.Coefficients), Programs: len(next.Programs), Content: next.Content()}
	return done, r.Machine.Restore(&file)
}

// TestRegistryTranscripts runs every block of docs/registry.md, against a fleet
// in this process. A command that follows changes is stopped after the lines
// that the page shows.
func TestRegistryTranscripts(t *testing.T) {
	text, err := os.ReadFile("../../docs/registry.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../..")
	node := restorable{alone{quotatest.New(t, "agent/sim/traces")}}
	serve(t, api.Deps{ID: "a", Sweeps: node, Registry: node, Traces: node, Agents: node})
	blocks := consoleBlocks("docs/registry.md", strings.ReplaceAll(string(text), "```console fleet\n", "```console\n"))
	if len(blocks) < 3 {
		t.Fatalf("only %d blocks", len(blocks))
	}
	sh := &shell{files: map[string]string{}, dir: t.TempDir()}
	sh.files["oomfleet.backup"] = sh.dir + "/oomfleet.backup"
	for _, steps := range blocks {
		for _, s := range steps {
			if strings.Contains(s.command, " watch ") {
				s.check(t, follow(t, s))
			} else {
				s.check(t, sh.run(t, s))
			}
		}
	}
}

// follow runs a command without end until it has written as many lines as are
// shown.
func follow(t *testing.T, s step) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &untilLines{want: len(s.output), done: cancel}
	var errs bytes.Buffer
	run(ctx, shellWords(s.command)[1:], streams{in: strings.NewReader(""), out: out, err: &errs})
	if bytes.Count(out.Bytes(), []byte("\n")) < out.want {
		return fmt.Sprint(out.String(), errs.String())
	}
	return strings.Join(strings.SplitAfter(out.String(), "\n")[:out.want], "")
}

// untilLines calls done at a number of lines.
type untilLines struct {
	bytes.Buffer
	want int
	done func()
}

func (u *untilLines) Write(b []byte) (int, error) {
	defer func() {
		if bytes.Count(u.Bytes(), []byte("\n")) >= u.want {
			u.done()
		}
	}()
	return u.Buffer.Write(b)
}
