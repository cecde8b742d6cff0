package child

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// inherited reports whether a runner gets a variable of the agent's environment.
// Everything else stays behind: a stray allocator setting or CUDA_* variable
// would change what a cell measures without being part of the cell.
func inherited(name string) bool {
	switch name {
	case "PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "GOCOVERDIR",
		"HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "TORCH_HOME", "XDG_CACHE_HOME",
		"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH",
		"CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
		"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES":
		return true
	}
	return false
}

// runnerEnv filters an environment down to the allowed names and adds extra.
func runnerEnv(environ, extra []string) []string {
	var env []string
	for _, entry := range environ {
		if name, _, _ := strings.Cut(entry, "="); inherited(name) {
			env = append(env, entry)
		}
	}
	return append(env, extra...)
}

// agentsOwn reports whether a variable is not a cell's to set: it would make the
// run load code from somewhere, find other programs or folders, or speak for the
// agent. A matrix that sets one is refused when it is submitted; this is for a
// task that came another way.
func agentsOwn(name string) bool {
	for _, prefix := range []string{"LD_", "PYTHON", "OPENSSL_", "OOMFLEET_", "NATS_", "AWS_", "CUDA_MPS_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	switch name {
	case "PATH", "HOME", "TMPDIR", "SHELL", "BASH_ENV", "ENV", "IFS", "GCONV_PATH", "GLIBC_TUNABLES", "VIRTUAL_ENV",
		"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NCCL_NET_PLUGIN",
		"TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_COREDUMP_FILE":
		return true
	}
	return false
}

// refuseEnv says why a cell's environment is not handed to a run, empty when it
// is.
func refuseEnv(env map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(env[name], "\x00"):
			return fmt.Sprintf("%q is no variable that a process can have", name)
		case agentsOwn(name):
			return fmt.Sprintf("%s is the agent's own, a cell may not set it", name)
		}
	}
	return ""
}
