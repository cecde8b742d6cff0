package probetest

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/oomfleet/oomfleet/agent/child"
	"github.com/oomfleet/oomfleet/agent/sim"
	"github.com/oomfleet/oomfleet/proto"
)

// The test binary plays every process of an agent with a simulated card.
const (
	roleGuard     = "role-guard"
	roleSimRunner = "role-simrunner"
	roleSimRun    = "role-simrun"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch args := os.Args[2:]; os.Args[1] {
		case roleGuard:
			os.Exit(child.Guard(args))
		case roleSimRunner:
			cfg, err := sim.ParseFlags(args)
			if err == nil {
				err = sim.Server{Config: cfg, Run: []string{os.Args[0], roleSimRun}}.Serve(context.Background(), os.Stdin, os.NewFile(3, "events"))
			}
			if err != nil {
				os.Stderr.WriteString(err.Error() + "\n")
				os.Exit(1)
			}
			os.Exit(0)
		case roleSimRun:
			os.Exit(sim.Run(args, os.Stdin))
		}
	}
	goleak.VerifyTestMain(m)
}

func TestSimulatedProber(t *testing.T) {
	esmfold := proto.Cell{
		Workload: proto.Workload{Name: "esmfold", Params: map[string]string{"model": "esmfold_v1", "weights": "random", "stem": "bfloat16", "trunk": "float32", "recycles": "1"}},
		GPU:      sim.GPU, Driver: sim.Driver, SeqLen: 384, Batch: 1, QuotaKind: proto.QuotaAllocator, Step: proto.DefaultStep,
	}
	test := func(name string) proto.Cell {
		c := esmfold
		c.Workload = proto.Workload{Name: "sim:" + name}
		return c
	}
	Suite(t, Table{
		Cell: esmfold, Boundary: 11_014 * proto.MiB, Tiny: 4 * proto.GiB,
		BadEnv: map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "bogus:1"},
		Hang:   test("hang"), Crash: test("crash"), Fork: test("fork"), Leave: test("leave"),
		TimeoutSeconds: 60, HangSeconds: 3, // enough to fork on a busy machine
	}, func(t *testing.T) Prober { return simulated(t, sim.Config{TestWorkloads: true}) })
}

func simulated(t *testing.T, cfg sim.Config) *child.Prober {
	t.Helper()
	p, err := child.New(child.Config{
		Guard: []string{os.Args[0], roleGuard}, Command: append([]string{os.Args[0], roleSimRunner}, cfg.Flags()...),
		Environ: os.Environ(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPlantedFaultsFailTheCheck: what breaks every run of a card breaks its check.
func TestPlantedFaultsFailTheCheck(t *testing.T) {
	for fault, want := range map[sim.Fault]string{
		sim.FaultBroken: "AcceleratorError: CUDA error: uncorrectable ECC error encountered; look at", sim.FaultCrash: "it ends by signal segmentation fault",
		sim.FaultDie: "ended in the middle of a run", sim.FaultGarbage: "broke the protocol",
	} {
		t.Run(string(fault), func(t *testing.T) {
			p := simulated(t, sim.Config{Fault: fault})
			defer p.Close()
			if err := p.Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}
