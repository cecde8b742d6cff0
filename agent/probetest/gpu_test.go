//go:build gpu

package probetest

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/oomfleet/oomfleet/agent/child"
	"github.com/oomfleet/oomfleet/agent/gpu"
	"github.com/oomfleet/oomfleet/proto"
)

// TestRealProber is the suite on this machine's first GPU: go test -tags gpu.
// The table's numbers were measured on an NVIDIA H200 with driver 580.159.04 and
// torch 2.11.0+cu130; elsewhere the boundary is another, and the suite says so.
// PYTHON names the interpreter, python3 when it is not set.
func TestRealProber(t *testing.T) {
	card, id, err := gpu.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(card.Close)
	t.Logf("%s, driver %s, %v", id.GPU, id.Driver, id.Total)
	python := os.Getenv("PYTHON")
	if python == "" {
		python = "python3"
	}
	here, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	esmfold := proto.Cell{
		Workload: proto.Workload{Name: "esmfold", Params: map[string]string{"model": "esmfold_v1", "weights": "random", "stem": "bfloat16", "trunk": "float32", "recycles": "1"}},
		GPU:      id.GPU, Driver: id.Driver, SeqLen: 384, Batch: 1, QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep,
	}
	test := func(name string) proto.Cell {
		c := esmfold
		c.Workload = proto.Workload{Name: "misbehave:" + name}
		return c
	}
	start := func(t *testing.T) Prober {
		command, err := child.PythonCommand(python, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		p, err := child.New(child.Config{
			Guard: []string{os.Args[0], roleGuard}, Command: command, Environ: os.Environ(),
			Extra: []string{"PYTHONPATH=" + here, "CUDA_VISIBLE_DEVICES=" + id.UUID, "OOMFLEET_CARD=" + id.UUID},
			Meter: card, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	Suite(t, Table{
		Cell: esmfold, Boundary: 11_014 * proto.MiB, Tiny: 4 * proto.GiB,
		BadEnv: map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "bogus:1"},
		Hang:   test("hang"), Crash: test("crash"), Fork: test("fork"), Leave: test("leave"),
		TimeoutSeconds: 300, HangSeconds: 20,
	}, start)
	t.Run("lets a workload train", func(t *testing.T) {
		p := start(t)
		defer p.Close()
		s := &suite{Table: Table{TimeoutSeconds: 300}, prober: p}
		if s.description, err = p.Describe(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.pass(t, s.run(t, s.task(test("train"), 0)))
	})
}
