package child

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestSecretsStayBehind: no name under which this project or its neighbours keep
// a secret reaches a runner or a run, and a name nobody thought of does not either.
func TestSecretsStayBehind(t *testing.T) {
	const planted = "planted-7c1f"
	for _, name := range []string{"OOMFLEET_S3_ACCESS_KEY", "OOMFLEET_S3_SECRET_KEY", "OOMFLEET_TOKEN", "OOMFLEET_TOKEN_FILE",
		"OOMFLEET_QUEUE_NKEY_FILE", "AWS_SECRET_ACCESS_KEY", "NATS_CREDS", "HF_TOKEN", "GITHUB_TOKEN", "SOMEBODY_ELSES", "LD_PRELOAD_"} {
		t.Setenv(name, planted)
	}
	p := newTestProber(t, "hello", func(cfg *Config) { cfg.Environ = os.Environ() })
	o, err := p.Run(t.Context(), taskOf("env"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(o.Evidence.StderrTail, "PATH=") {
		t.Errorf("the run does not show its environment:\n%s", o.Evidence.StderrTail)
	}
	if strings.Contains(o.Evidence.StderrTail, planted) {
		t.Errorf("a planted secret reached the run:\n%s", o.Evidence.StderrTail)
	}
	for _, pid := range []int{p.tree.cmd.Process.Pid, p.tree.hello.PID} { // guard and runner
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), planted) {
			t.Errorf("a planted secret reached process %d", pid)
		}
	}
}

// TestCellCannotReachOut: variables that load code or move folders are not
// handed to a run, and its cell is given up with the reason.
func TestCellCannotReachOut(t *testing.T) {
	p := newTestProber(t, "hello", nil)
	for _, env := range []map[string]string{
		{"LD_PRELOAD": "/tmp/x.so"}, {"LD_LIBRARY_PATH": "/tmp"}, {"PATH": "/tmp"}, {"PYTHONPATH": "/tmp"}, {"PYTHONSTARTUP": "/tmp/x.py"},
		{"BASH_ENV": "/tmp/x"}, {"HOME": "/tmp"}, {"TMPDIR": "/tmp"}, {"OOMFLEET_CARD": "GPU-2"}, {"OOMFLEET_WORKLOADS": "/tmp"}, {"AWS_PROFILE": "x"},
		{"OPENSSL_CONF": "/tmp/x"}, {"TRITON_CACHE_DIR": "/tmp"}, {"TORCH_EXTENSIONS_DIR": "/tmp"}, {"NCCL_NET_PLUGIN": "/tmp/x.so"}, {"CUDA_COREDUMP_FILE": "/etc/x"},
		{"CUDA_VISIBLE_DEVICES": "1"}, {"CUDA_INJECTION64_PATH": "/tmp/x.so"}, {"A=B": "c"}, {"": "x"}, {"A": "b\x00LD_PRELOAD=/tmp/x.so"},
		{"PYTORCH_CUDA_ALLOC_CONF": "a", "LD_AUDIT": "x"},
	} {
		task := taskOf("env")
		task.Cell.Env = env
		o, err := p.Run(t.Context(), task)
		if err != nil || !o.BadCell || o.Evidence.Message == "" || o.Evidence.StderrTail != "" {
			t.Errorf("%v: %+v, %v", env, o, err)
		}
	}
	if p.tree != nil {
		t.Error("a runner was started for them")
	}
	// What looks like a shell's is text like any other.
	task := taskOf("env")
	task.Cell.Env = map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "$(touch x); `id` ../../etc | cat"}
	task.Cell.Workload.Params = map[string]string{"a": "; rm -rf /"}
	if o, err := p.Run(t.Context(), task); err != nil || o.BadCell {
		t.Errorf("%+v, %v", o, err)
	}
}
