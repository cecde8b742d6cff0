package fit

import (
	"fmt"
	"testing"
)

// realSide reads the measured runs of default ESMFold under one environment.
func realSide(t *testing.T, chunk int, env string) Side {
	t.Helper()
	var s Side
	for _, r := range readRuns(t) {
		if r.Weights == esmfold && r.Chunk == chunk && r.envText() == env {
			s.Points = append(s.Points, r.point())
		}
	}
	if len(s.Points) == 0 {
		t.Fatalf("no runs under %q", env)
	}
	return s
}

// What settings really did to ESMFold on the real card is named from few runs,
// also where one cell is all that was run.
func TestRealChangesAreNamed(t *testing.T) {
	for _, c := range []struct {
		chunk     int
		env, want string
	}{
		{0, "CUDA_MODULE_LOADING=EAGER", "changed: context +642 MiB, modules +447 MiB"},
		{0, "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128", "changed: slack +1118 MiB"},
		{0, "NVIDIA_TF32_OVERRIDE=0", "same"},
		{0, "CUBLAS_WORKSPACE_CONFIG=:0:0", "changed: activations -33 MiB at L256 B1, modules -64 MiB"},
		{0, "CUBLAS_WORKSPACE_CONFIG=:4096:8", "changed: modules -32 MiB"},
		{64, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "changed: slack -1174 MiB"},
	} {
		t.Run(fmt.Sprint(c.env, c.chunk), func(t *testing.T) {
			got := compared(t, realSide(t, c.chunk, ""), realSide(t, c.chunk, c.env), CompareOptions{})
			if got.String() != c.want {
				t.Errorf("said %q, want %q\nterms %+v\ncells %+v", got, c.want, got.Terms, got.Cells)
			}
		})
	}
}
