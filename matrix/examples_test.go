package matrix

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/oomfleet/oomfleet/proto"
)

func example(t *testing.T, name string, stacks []proto.Stack) *Expansion {
	t.Helper()
	source, err := os.ReadFile("../deploy/examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	expansion, err := Expand(source, Options{Installed: stacks})
	if err != nil {
		t.Fatalf("%s:\n%v", name, err)
	}
	if len(expansion.Notices) > 0 {
		t.Errorf("%s: an example gives no cause for notices:\n%v", name, expansion.Notices)
	}
	if expansion.Search != (proto.Search{Strategy: proto.StrategyPredict, Certify: proto.CertifyEdges}) {
		t.Errorf("%s: search is %+v", name, expansion.Search)
	}
	return expansion
}

// TestSmallIsRecorded: the demonstration runs without a GPU, so each of its cells
// needs a recording of the real model.
func TestSmallIsRecorded(t *testing.T) {
	expansion := example(t, "esmfold-small.yaml", fleet())
	if n := len(expansion.Cells); n != 18 {
		t.Errorf("%d cells, its comment says 18", n)
	}
	for _, cell := range expansion.Cells {
		name := fmt.Sprintf("L%d_B%d", cell.SeqLen, cell.Batch)
		if cell.ChunkSize > 0 {
			name += fmt.Sprintf("_c%d", cell.ChunkSize)
		}
		if _, err := os.Stat(filepath.Join("../agent/sim/traces", name+".parquet")); err != nil {
			t.Errorf("%v: %v", cell, err)
		}
	}
}

func TestExamplesHold(t *testing.T) {
	const expandable = "expandable_segments:True"
	tests := []struct {
		file  string
		cells int
		holds []string // cells as proto prints them, without the driver
	}{
		{"esmfold-small.yaml", 18, []string{
			"L128 B1 580.159.04", "L256 B1 580.159.04-synthetic", "L384 B1 580.159.04", "L256 B2 580.159.04",
			"L384 B1 580.159.04 PYTORCH_CUDA_ALLOC_CONF=" + expandable, "L384 B1 c64 580.159.04", "L512 B1 c64 580.159.04",
			"L512 B1 c64 580.159.04-synthetic PYTORCH_CUDA_ALLOC_CONF=" + expandable,
		}},
		{"esmfold-gpu.yaml", 14, []string{
			"L384 B1 580.159.04", "L384 B1 580.159.04 PYTORCH_CUDA_ALLOC_CONF=" + expandable,
			"L512 B1 c64 580.159.04", "L512 B1 c64 580.159.04 PYTORCH_CUDA_ALLOC_CONF=" + expandable,
			"L128 B2 580.159.04", "L256 B2 c64 580.159.04",
		}},
		{"sixty.yaml", 60, []string{
			"L768 B1 c64 580.159.04 PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128", "L320 B1 580.159.04",
		}},
	}
	for _, test := range tests {
		t.Run(test.file, func(t *testing.T) {
			stacks := fleet()
			if test.file != "esmfold-small.yaml" {
				stacks = stacks[:1] // one real card
			}
			expansion := example(t, test.file, stacks)
			if len(expansion.Cells) != test.cells {
				t.Errorf("%d cells, want %d", len(expansion.Cells), test.cells)
			}
			have := map[string]bool{}
			for _, cell := range expansion.Cells {
				have[cell.String()] = true
			}
			for _, cell := range test.holds {
				if !have[cell] {
					t.Errorf("no cell %q among %v", cell, expansion.Cells)
				}
			}
		})
	}
}
