package matrix

import "strings"

// ownedVariable is a variable that a matrix may not set, with the reason that
// the user reads. A name that ends in * stands for all that begin so.
type ownedVariable struct{ name, reason string }

// owned lists them. The list guards a fleet against mistakes; whoever may submit
// a program of their own can run anything an agent can, and the agent's
// isolation is what bounds that.
func owned() []ownedVariable {
	return []ownedVariable{
		{"LD_*", "it makes the loader take other code into the runner"},
		{"GLIBC_TUNABLES", "it changes the loader of the runner"},
		{"GCONV_PATH", "it makes the C library load other code into the runner"},
		{"CUDA_INJECTION64_PATH", "it makes CUDA load other code into the runner"},
		{"NVTX_INJECTION64_PATH", "it makes NVTX load other code into the runner"},
		{"OPENSSL_*", "it makes OpenSSL load other code into the runner"},
		{"TORCH_EXTENSIONS_DIR", "it makes torch load other code into the runner"},
		{"TORCHINDUCTOR_CACHE_DIR", "it makes torch load other code into the runner"},
		{"TRITON_CACHE_DIR", "it makes Triton load other code into the runner"},
		{"NCCL_NET_PLUGIN", "it makes NCCL load other code into the runner"},
		{"CUDA_COREDUMP_FILE", "the folders of the host are the agent's"},
		{"PYTHON*", "the interpreter and its path are the agent's"},
		{"VIRTUAL_ENV", "the interpreter and its path are the agent's"},
		{"PATH", "the programs of the host are the agent's"},
		{"HOME", "the folders of the host are the agent's"},
		{"TMPDIR", "the folders of the host are the agent's"},
		{"SHELL", "the programs of the host are the agent's"},
		{"BASH_ENV", "it makes shells run other code"},
		{"ENV", "it makes shells run other code"},
		{"IFS", "it changes how shells read commands"},
		{"CUDA_VISIBLE_DEVICES", "the agent chooses the card"},
		{"CUDA_DEVICE_ORDER", "the agent chooses the card"},
		{"NVIDIA_VISIBLE_DEVICES", "the agent chooses the card"},
		{"NVIDIA_DRIVER_CAPABILITIES", "the agent chooses the card"},
		{"CUDA_MPS_*", "the fleet sets process quotas with it"},
		{"PYTORCH_NO_CUDA_MEMORY_CACHING", "without the caching allocator there is no quota and no trace"},
		{"OOMFLEET_*", "names that begin so are the fleet's own"},
		{"NATS_*", "it belongs to the agent's connections"},
		{"AWS_*", "it belongs to the agent's connections"},
	}
}

// owner returns why a matrix may not set a variable, "" where it may.
func owner(name string) string {
	for _, o := range owned() {
		prefix, all := strings.CutSuffix(o.name, "*")
		if name == o.name || (all && strings.HasPrefix(name, prefix)) {
			return o.reason
		}
	}
	return ""
}
