package child

import "strings"

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
