package outcome

import "testing"

const g = "CUDA out of memory. "

// kindCases are texts beside the samples, whole kinds rather than examples;
// want is the reading without the numbers that are not known.
var kindCases = []struct{ name, text, want string }{
	// The caching allocator, all generations.
	{"1.0 kib", "RuntimeError: CUDA out of memory. Tried to allocate 576.00 KiB (GPU 0; 7.93 GiB total capacity; 7.12 GiB already allocated; 0 bytes free; 1024.00 KiB cached)",
		`{"Kind":"oom","Tried":589824,"Total":8514772664,"Free":0,"Allocated":7645041787,"Reserved":7646090363}`},
	{"2.0 cap", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.90 GiB total capacity; 3.00 GiB already allocated; 11.00 GiB free; 4.00 GiB allowed; 3.50 GiB reserved in total by PyTorch)",
		`{"Kind":"oom_at_cap","Tried":2147483648,"Total":17072495002,"Free":11811160064,"Allocated":3221225472,"Reserved":3758096384,"Allowed":4294967296}`},
	{"larger than cap, free and total", g + "Tried to allocate 300.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 130.00 GiB is free. 10.00 GiB allowed; Of the allocated memory 1.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.",
		`{"Kind":"oom_at_cap","Tried":322122547200,"Total":150109106995,"Free":139586437120,"Allocated":1073741824,"Reserved":1073741824,"Allowed":10737418240}`},
	{"cap that cannot bind, own memory fills the card", g + "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 23.00 GiB memory in use. 26.00 GiB allowed; Of the allocated memory 21.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.",
		`{"Kind":"oom","Tried":2147483648,"Total":25769803776,"Free":1073741824,"Allocated":22548578304,"Reserved":23622320128,"Allowed":27917287424}`},
	{"2.12 rejection", "torch.OutOfMemoryError: CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit. Requested size: 1.50 GiB",
		`{"Kind":"oom_at_cap","Tried":1610612736}`},
	{"npu", "RuntimeError: NPU out of memory. Tried to allocate 20.00 MiB (NPU 0; 60.97 GiB total capacity; 59.50 GiB already allocated; 59.50 GiB current active; 4.00 MiB free; 60.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb.",
		`{"Kind":"oom","Tried":20971520,"Total":65466039009,"Free":4194304,"Allocated":63887638528,"Reserved":64424509440}`},
	{"mps", "RuntimeError: MPS backend out of memory (MPS allocated: 5.05 GB, other allocations: 3.50 GB, max allowed: 9.07 GB). Tried to allocate 1.25 GB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure).",
		`{"Kind":"oom_at_cap","Tried":1342177280,"Allocated":5422396211,"Allowed":9738838344}`},
	{"the first full sentence counts", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU\nretrying\n" +
		g + "Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 0 bytes is free. Of the allocated memory 7.50 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.\n" +
		g + "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free. Of the allocated memory 6.50 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.",
		`{"Kind":"oom","Tried":1073741824,"Total":8589934592,"Free":0,"Allocated":8053063680,"Reserved":8053063680}`},
	{"cut after the free memory", g + "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is fr",
		`{"Kind":"oom_truncated","Tried":2147483648,"Total":8589934592}`},
	{"a quarter of the card is a neighbour's", g + "Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 0 bytes is free. Process 11 has 6.00 GiB memory in use. Process 12 has 17.50 GiB memory in use. Of the allocated memory 16.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.",
		`{"Kind":"oom_other_tenant","Tried":1073741824,"Total":25769803776,"Free":0,"Allocated":17179869184,"Reserved":18253611008}`},
	// Other allocators.
	{"async, whole table", "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 9.43 GiB\nRequested               : 640.00 MiB\nDevice limit            : 11.59 GiB\nFree (according to CUDA): 7.12 MiB\nPyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB",
		`{"Kind":"oom_async_backend","Tried":671088640,"Total":12444667740,"Free":7465861,"Allocated":10125385400}`},
	{"async, with a limit", "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 3.50 GiB\nRequested               : 2.00 GiB\nDevice limit            : 24.00 GiB\nFree (according to CUDA): 18.00 GiB\nPyTorch limit (set by user-supplied memory fraction)\n                        : 5.00 GiB",
		`{"Kind":"oom_async_backend","Tried":2147483648,"Total":25769803776,"Free":19327352832,"Allocated":3758096384,"Allowed":5368709120}`},
	{"xla request", "RuntimeError: Resource exhausted: Failed to allocate request for 7.33GiB (7866899248B) on device ordinal 0", `{"Kind":"oom_xla","Tried":7866899248}`},
	{"xla bytes", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 7866899248 bytes.", `{"Kind":"oom_xla","Tried":7866899248}`},
	{"xla on a TPU", "RESOURCE_EXHAUSTED: Attempting to allocate 4.00G. That was not possible. There are 3.50G free.; (0x0x0_HBM0)", `{"Kind":"oom_xla","Tried":4294967296,"Free":3758096384}`},
	{"tf bfc", "W tensorflow/core/common_runtime/bfc_allocator.cc:419] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.14GiB (rounded to 2297794560)requested by op conv2d", `{"Kind":"oom_tf","Tried":2297794560}`},
	{"onnxruntime", "onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 1073741824", `{"Kind":"oom_tf","Tried":1073741824}`},
	{"cupy", "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so far: 1,024 bytes).", `{"Kind":"oom","Tried":8589934592,"Allocated":1024}`},
	{"nccl in torch", "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled cuda error\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'", `{"Kind":"oom_nccl"}`},
	{"nccl, another failure", "NCCL WARN Cuda failure 700 'an illegal memory access was encountered'\nNCCL WARN Failed to CUDA calloc 4 bytes", `{"Kind":"not_oom"}`},
	// Without sizes.
	{"runtime error 2", "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCTensorRandom.cu:25", `{"Kind":"oom_no_size"}`},
	{"accelerator", "torch.AcceleratorError: CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in https://docs.nvidia.com/", `{"Kind":"oom_no_size"}`},
	{"class alone", "torch.OutOfMemoryError", `{"Kind":"oom_no_size"}`},
	{"hip", "RuntimeError: HIP error: out of memory", `{"Kind":"oom_no_size"}`},
	{"llama.cpp", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5000.00 MiB on device 0: cudaMalloc failed: out of memory", `{"Kind":"oom_no_size"}`},
	{"numba", "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY", `{"Kind":"oom_no_size"}`},
	// May be.
	{"cublas alloc", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", `{"Kind":"maybe_oom"}`},
	{"cudnn not supported", "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input.", `{"Kind":"maybe_oom"}`},
	{"cudnn on a lost card", "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR\nNVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.", `{"Kind":"env_fault"}`},
	// The host.
	{"linux", "DefaultCPUAllocator: can't allocate memory: you tried to allocate 34359738368 bytes. Error code 12", `{"Kind":"host_oom","Tried":34359738368}`},
	{"old torch", "RuntimeError: $ Torch: not enough memory: you tried to allocate 31GB. Buy new RAM! at /pytorch/aten/src/TH/THGeneral.cpp:201", `{"Kind":"host_oom","Tried":33285996544}`},
	{"numpy", "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array with shape (1000000000,) and data type float64", `{"Kind":"host_oom","Tried":7999376589}`},
	{"errno", "OSError: [Errno 12] Cannot allocate memory", `{"Kind":"host_oom"}`},
	{"python", "Traceback (most recent call last):\n  File \"a.py\", line 1\nMemoryError", `{"Kind":"host_oom"}`},
	{"java", "java.lang.OutOfMemoryError: Java heap space", `{"Kind":"host_oom"}`},
	{"tf host", "failed to alloc 4294967296 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory", `{"Kind":"host_oom","Tried":4294967296}`},
	{"kernel", "Out of memory: Killed process 4711 (python3) total-vm:66G, anon-rss:60G", `{"Kind":"host_oom_kill"}`},
	{"kubernetes", "State: Terminated\n  Reason: OOMKilled\n  Exit Code: 137", `{"Kind":"host_oom_kill"}`},
	{"137", "command terminated with exit code 137", `{"Kind":"host_oom_kill"}`},
	{"247", "Process exited with code 247", `{"Kind":"host_oom_kill"}`},
	{"json", `{"state": "failed", "exitCode": 137}`, `{"Kind":"host_oom_kill"}`},
	{"systemd", "fold.service: Main process exited, code=killed, status=9/KILL", `{"Kind":"host_oom_kill"}`},
	{"subprocess", "Command '['python']' died with <Signals.SIGKILL: 9>.", `{"Kind":"host_oom_kill"}`},
	{"1370 is no code", "exit code 1370", `{"Kind":"not_oom"}`},
	{"bash", "run.sh: line 3:  7741 Killed                  python fold.py", `{"Kind":"host_oom_kill"}`},
	{"dataloader", "RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed.", `{"Kind":"host_oom_kill"}`},
	{"underflow on the host", "DefaultCPUAllocator: can't allocate memory: you tried to allocate 18446744065119617024 bytes.", `{"Kind":"bogus_request"}`},
	// Faults.
	{"mismatch", "Failed to initialize NVML: Driver/library version mismatch", `{"Kind":"env_fault"}`},
	{"no device", "RuntimeError: No CUDA GPUs are available", `{"Kind":"env_fault"}`},
	{"no capable device", "CUDA error: no CUDA-capable device is detected", `{"Kind":"env_fault"}`},
	{"busy", "CUDA error: CUDA-capable device(s) is/are busy or unavailable", `{"Kind":"env_fault"}`},
	{"dso", "kernel version 470.57.2 does not match DSO version 465.19.1 -- cannot find working devices in this configuration", `{"Kind":"env_fault"}`},
	{"mps daemon", "RuntimeError: CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server", `{"Kind":"env_fault"}`},
	{"lost", "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU", `{"Kind":"env_fault"}`},
	{"page fault of a program", "NVRM: Xid (PCI:0000:02:00): 31, pid=4711, MMU Fault", `{"Kind":"not_oom"}`},
	{"contained ECC", "NVRM: Xid (PCI:0000:02:00): 94, pid=4711, Contained: SM", `{"Kind":"env_fault"}`},
	{"nvidia-smi's word for lost", "42, [GPU is lost]", `{"Kind":"env_fault"}`},
	{"the same alone", "[GPU is lost]", `{"Kind":"env_fault"}`},
	{"a value that is not offered", "0, NVIDIA GB10, [N/A], [Not Supported]", `{"Kind":"not_oom"}`},
	{"code that compares", "if err != cudaSuccess: raise RuntimeError", `{"Kind":"not_oom"}`},
	{"key", "ValueError: Unrecognized key 'bogus' in CUDA allocator config.", `{"Kind":"env_fault"}`},
	{"warning", "UserWarning: expandable_segments not supported on this platform (Triggered internally at CUDAAllocatorConfig.h:28.)", `{"Kind":"env_fault"}`},
	// Not out of memory: words are no evidence.
	{"colabfold", "Could not predict 7bz5. Not Enough GPU memory? FAILED_PRECONDITION: DNN library initialization failed", `{"Kind":"not_oom"}`},
	{"question", "did you get CUDA out of memory?", `{"Kind":"not_oom"}`},
	{"advice", "Tip: lower the batch size to avoid CUDA out of memory errors", `{"Kind":"not_oom"}`},
	{"handler", "    except torch.cuda.OutOfMemoryError:\nValueError: bad shape", `{"Kind":"not_oom"}`},
	{"input", "parse input: out of memory budget of the plan", `{"Kind":"not_oom"}`},
	{"grpc", "RESOURCE_EXHAUSTED: Received message larger than max (5 vs. 4)", `{"Kind":"not_oom"}`},
	{"assert", "RuntimeError: CUDA error: device-side assert triggered", `{"Kind":"not_oom"}`},
	{"empty", "", `{"Kind":"not_oom"}`},
}

func TestReadKinds(t *testing.T) {
	for _, c := range kindCases {
		t.Run(c.name, func(t *testing.T) {
			if got := brief(Read(c.text)); got != c.want {
				t.Errorf("%q\n got %s\nwant %s", c.text, got, c.want)
			}
		})
	}
}
