"""The runner of OOMFleet: one warm parent, one forked child for each run.

The parent imports torch once and never touches CUDA, so that every child starts
with a fresh CUDA context in a second or two. Requests come as JSON lines on
stdin; events go out as JSON lines on file descriptor 3 (docs/design.md,
"Runner protocol"). Nothing is ever pickled.
"""

import ctypes
import gc
import importlib
import importlib.machinery
import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings

PROTOCOL = 1
EVENTS_FD = int(os.environ.get("OOMFLEET_EVENTS_FD", "3"))
ROWS_PER_EVENT = 20_000
MAX_TRACE_ENTRIES = 8_000_000
ACTION_LETTERS = {
    "alloc": "a", "free_requested": "r", "free_completed": "f", "segment_alloc": "s", "segment_free": "x",
    "segment_map": "m", "segment_unmap": "u", "oom": "o", "snapshot": "p",
}


def emit(event, **fields):
    """Writes one event whole, however long; a closed pipe means that the agent is gone."""
    data = memoryview((json.dumps({"ev": event, **fields}, separators=(",", ":")) + "\n").encode())
    try:
        while data:
            data = data[os.write(EVENTS_FD, data):]
    except BrokenPipeError:
        os._exit(0)


# --- the card, seen from outside any CUDA context -----------------------------------------------------------


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Card:
    """NVML's view of the agent's GPU ($OOMFLEET_CARD, a UUID). It makes no CUDA context, so the parent may use it."""

    def __init__(self):
        self.lib, self.handle = None, ctypes.c_void_p()
        try:
            lib = ctypes.CDLL("libnvidia-ml.so.1")
            if lib.nvmlInit_v2() != 0:
                return
            uuid = os.environ.get("OOMFLEET_CARD", "").encode()
            if uuid:
                found = lib.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(self.handle))
            else:
                found = lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle))
            if found == 0:
                self.lib = lib
        except OSError:
            return  # no driver library: the agent says so, in its own words

    def used(self):
        """Bytes in use on the whole card, or None where NVML does not tell."""
        if self.lib is None:
            return None
        memory = _Memory()
        if self.lib.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(memory)) != 0:
            return None
        return memory.used


# --- ESMFold ------------------------------------------------------------------------------------------------

# What the published checkpoints' configurations say; memory depends on nothing else of them.
STEMS = {
    "esmfold_v1": {"hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 40, "intermediate_size": 10240},
    "esmfold_8b": {"hidden_size": 4096, "num_hidden_layers": 40, "num_attention_heads": 64, "intermediate_size": 16384},
}
TRUNK = {"num_blocks": 48, "sequence_state_dim": 1024, "pairwise_state_dim": 128, "max_recycles": 4, "chunk_size": None}


def esmfold_config(name):
    from transformers import EsmConfig

    return EsmConfig(
        vocab_size=33, mask_token_id=32, pad_token_id=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        max_position_embeddings=1026, layer_norm_eps=1e-5, position_embedding_type="rotary", token_dropout=True,
        emb_layer_norm_before=False, is_folding_model=True, use_cache=False,
        esmfold_config={"fp16_esm": True, "esm_type": "esm2_3B", "trunk": TRUNK}, **STEMS[name])


def fill_buffers(model, torch, device):
    """to_empty leaves buffers undefined; three kinds hold values that are computed when the model is built."""
    for name, buffer in list(model.named_buffers()):
        owner, _, leaf = name.rpartition(".")
        if leaf == "af2_to_esm":
            value = model._af2_to_esm_from_vocab_list(model.config.vocab_list)
        elif leaf == "position_ids":
            value = torch.arange(buffer.shape[-1]).expand(buffer.shape)
        elif leaf == "inv_freq":
            dim = 2 * buffer.shape[0]
            value = 1.0 / (10000 ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim))
        else:
            raise RuntimeError(f"this version of transformers has a buffer {name!r} that the runner cannot fill: use a local checkpoint")
        setattr(model.get_submodule(owner), leaf, value.to(device=device, dtype=buffer.dtype))


def load_esmfold(torch, params, device):
    from transformers import EsmForProteinFolding

    stem, trunk = getattr(torch, params.get("stem", "bfloat16")), getattr(torch, params.get("trunk", "float32"))
    weights = params.get("weights", "random")
    if weights != "random":
        model = EsmForProteinFolding.from_pretrained(weights, local_files_only=True, device_map={"": device})
        model = model.to(trunk)
        model.esm = model.esm.to(stem)
        return model.eval()
    with torch.device("meta"):
        model = EsmForProteinFolding(esmfold_config(params.get("model", "esmfold_v1")))
    model = model.to(trunk)
    model.esm = model.esm.to(stem)
    model = model.to_empty(device=device)
    for parameter in model.parameters():  # the order is part of the recording: keep it
        parameter.normal_(0, 0.02)
    fill_buffers(model, torch, device)
    return model.eval()


def run_esmfold(run, torch):
    params = run.params
    model = run.keep = load_esmfold(torch, params, run.device)
    run.weights = sum(t.numel() * t.element_size() for t in [*model.parameters(), *model.buffers()])
    run.dtypes = {name: str(next(module.parameters()).dtype).removeprefix("torch.")
                  for name, module in model.named_children() if next(module.parameters(), None) is not None}
    run.phase("load")
    model.trunk.set_chunk_size(run.chunk_size or None)
    aatype = torch.randint(0, 20, (run.batch, run.seq_len), device=run.device, dtype=torch.int64)
    run.phase("forward")
    return model(aatype, attention_mask=torch.ones_like(aatype), num_recycles=int(params.get("recycles", "1")))


# --- the agent's own look at its card ------------------------------------------------------------------------

CHECK_SIDE = 2048  # a matrix of float32 is 16 MiB


def run_check(run, torch):
    """The product of two matrices of ones. Each number of it is CHECK_SIDE, exactly: every partial sum is a whole number below 2^24."""
    ones = torch.ones(CHECK_SIDE, CHECK_SIDE, device=run.device, dtype=torch.float32)
    run.phase("forward")
    product = ones @ ones
    wrong = int((product != CHECK_SIDE).sum())
    if wrong:
        raise RuntimeError(f"{wrong} of {CHECK_SIDE * CHECK_SIDE} numbers came out wrong")
    return product


# --- one run, in its own process ------------------------------------------------------------------------------


class Run:
    """What a workload gets: its axes and parameters, the device, and phase() to say how far it is."""

    def __init__(self, request, torch, card, used_before):
        self.id, self.params = request["id"], request["workload"].get("params") or {}
        self.seq_len, self.batch, self.chunk_size = request["seq_len"], request["batch"], request.get("chunk_size", 0)
        self.device, self.weights, self.dtypes = "cuda:0", None, {}
        self.keep = None  # what must outlive the workload's function, so that a trace ends with it alive
        self.now, self._torch, self._card, self._before = "start", torch, card, used_before
        self._meters, self._peak = {}, 0

    def phase(self, name):
        """Marks that a phase is over ("load": the weights are on the card) or begins ("forward")."""
        self._torch.cuda.synchronize()
        self.now = name
        self.read_meters()
        if name == "load":
            stats = self._torch.cuda.memory_stats()
            self._meters["loaded_allocated_bytes"] = stats.get("allocated_bytes.all.current", 0)
            self._meters["loaded_reserved_bytes"] = stats.get("reserved_bytes.all.current", 0)
        emit("phase", id=self.id, phase=name, meters=self._meters)

    def read_meters(self):
        """The allocator's counters, and what the card holds more than before this process began."""
        stats = self._torch.cuda.memory_stats()
        meters = self._meters
        meters["peak_allocated_bytes"] = stats.get("allocated_bytes.all.peak", 0)
        meters["peak_reserved_bytes"] = stats.get("reserved_bytes.all.peak", 0)
        meters["num_alloc_retries"] = stats.get("num_alloc_retries", 0)
        meters["num_ooms"] = stats.get("num_ooms", 0)
        if self.weights is not None:
            meters["weights_bytes"] = self.weights
        used = self._card.used()
        if used is not None and self._before is not None:
            # What the allocator gave back before this reading was held at the same time as its peak.
            given_back = meters["peak_reserved_bytes"] - stats.get("reserved_bytes.all.current", 0)
            self._peak = max(self._peak, used - self._before + given_back)
            if self.now == "start":
                meters["context_bytes"] = used - self._before
            meters["process_peak_bytes"] = self._peak
        return meters


def cap_fraction(cap, total):
    """The fraction of total that truncates to exactly cap bytes, found by steps of one unit in the last place. NVML shows more
    memory than torch does, so a cap may lie above total: it limits nothing, and torch takes no fraction above 1."""
    if cap >= total:
        return 1.0
    fraction = cap / total
    for _ in range(64):
        got = int(fraction * total)
        if got == cap:
            return fraction
        fraction = math.nextafter(fraction, math.inf if got < cap else -math.inf)
    raise RuntimeError(f"no fraction of {total} bytes gives exactly {cap}")


def send_trace(torch, run_id, snapshot):
    entries = (snapshot.get("device_traces") or [[]])[0]
    for at in range(0, len(entries), ROWS_PER_EVENT):
        rows = entries[at:at + ROWS_PER_EVENT]
        emit("trace", id=run_id,
             actions="".join(ACTION_LETTERS.get(e["action"], "?") for e in rows),
             addr=[e.get("addr", e.get("device_free", 0)) for e in rows],
             size=[e["size"] for e in rows],
             stream=[e.get("stream", 0) for e in rows],
             time_us=[e.get("time_us", 0) for e in rows])
    return len(entries) >= MAX_TRACE_ENTRIES


def tensors_of(value):
    """Every tensor in a nest of dicts, lists, tuples and model outputs."""
    if hasattr(value, "is_floating_point"):
        yield value
    elif isinstance(value, dict) or hasattr(value, "items"):
        for _, item in value.items():
            yield from tensors_of(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)


def workload_of(name):
    """ESMFold without gradients; a workload of the user's own as any script of theirs would run, so that it may train. A matrix
    cannot name check, which has no colon."""
    if name == "esmfold":
        def fold(run, torch):
            with torch.no_grad():
                return run_esmfold(run, torch)

        return fold
    if name == "check":
        return run_check
    own = own_workload(name)
    return lambda run, _torch: own(run)


def own_workload(name):
    """The function that module:function names. An agent says in $OOMFLEET_WORKLOADS in which folder workloads lie;
    then nothing else is imported, so that a matrix cannot name a function of the interpreter's own libraries."""
    module, _, function = name.partition(":")
    folder = os.environ.get("OOMFLEET_WORKLOADS")
    if folder is None:  # the runner was started by hand
        return getattr(importlib.import_module(module), function)
    top = module.partition(".")[0]
    outside = ModuleNotFoundError(f"the agent's --python-path {folder or '(none)'} has no module {top}: a workload of your own lies there", name=top)
    if not folder or importlib.machinery.PathFinder.find_spec(top, [folder]) is None:
        raise outside
    found = importlib.import_module(module)
    inside = os.path.join(os.path.realpath(folder), "")
    if not os.path.realpath(getattr(found, "__file__", None) or "/").startswith(inside):  # a module of that name is part of the interpreter
        raise outside
    own = getattr(found, function)
    if not os.path.realpath(getattr(getattr(own, "__code__", None), "co_filename", "/")).startswith(inside):
        raise AttributeError(f"{name} is no function that is written in the agent's --python-path")
    return own


CONFIG_WORDS = ("unrecognized key", "allocator config", "cachingallocator", "allocatorconfig", "max_split_size",
                "garbage_collection_threshold", "roundup_power2", "expandable_segments", "expected a single True/False",
                "error parsing", "per_process_memory_fraction")


def is_bad_setting(phase, error, env):
    """Whether the run was refused because of the environment that its cell asks for, not for want of memory."""
    if phase != "start" or not any(name in env for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")):
        return False
    text = str(error).lower()
    return "out of memory" not in text and any(word.lower() in text for word in CONFIG_WORDS)


def child(request, used_before):
    """One run from first CUDA call to last event. Never returns."""
    began = time.monotonic()
    os.environ.update(request.get("env") or {})
    emit("started", id=request["id"], pid=os.getpid())
    code = 1
    run = None
    try:
        import torch

        run = Run(request, torch, Card(), used_before)
        if not torch.cuda.is_available():
            emit("fault", id=request["id"], message="torch finds no CUDA device: check the driver with nvidia-smi, and that torch was built for CUDA")
            os._exit(1)
        code = guarded_run(request, run, torch, began)
    except BaseException as error:  # everything is reported; the process ends either way
        report_failure(request, run, error, began)
    sys.stderr.flush()
    os._exit(code)


def guarded_run(request, run, torch, began):
    torch.cuda.init()
    torch.zeros(0, device=run.device)  # makes the context; zero bytes never reach the allocator
    torch.cuda.synchronize()
    run.phase("start")
    if request.get("record"):
        torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=MAX_TRACE_ENTRIES)
    if request.get("quota_kind") == "allocator" and request.get("quota_bytes"):
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(cap_fraction(request["quota_bytes"], total), 0)
    output = workload_of(request["workload"]["name"])(run, torch)
    torch.cuda.synchronize()
    run.now = "done"
    meters = run.read_meters()
    seconds = time.monotonic() - began
    snapshot = take_snapshot(torch)
    truncated = send_trace(torch, run.id, snapshot) if request.get("record") else False
    # Only now may the check itself allocate: peaks and trace are taken.
    finite = all(bool(torch.isfinite(t.detach().cpu()).all()) for t in tensors_of(output) if t.is_floating_point())
    emit("done", id=run.id, meters=meters, output_finite=finite, dtypes=run.dtypes, seconds=seconds,
         settings=settings_of(snapshot), trace_truncated=truncated)
    return 0


def take_snapshot(torch):
    """The allocator's snapshot; the cudaMallocAsync backend has none and keeps no trace."""
    if torch.cuda.get_allocator_backend() != "native":
        return {"allocator_settings": {"backend": torch.cuda.get_allocator_backend()}}
    return torch.cuda.memory._snapshot()


def settings_of(snapshot):
    values = (snapshot.get("allocator_settings") or {}).items()
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values}


def report_failure(request, run, error, began):
    phase = run.now if run else "start"
    meters, settings = {}, {}
    try:
        import torch

        if run and torch.cuda.is_initialized():
            meters = run.read_meters()
            snapshot = take_snapshot(torch)
            settings = settings_of(snapshot)
            if request.get("record"):
                send_trace(torch, run.id, snapshot)
    except BaseException:
        pass  # a broken context cannot be asked; what was read before it broke stands
    emit("failed", id=request["id"], phase=phase, exception=type(error).__name__, message=str(error)[:16000],
         traceback="".join(traceback.format_exception(error))[-4000:], meters=meters, settings=settings,
         seconds=time.monotonic() - began, bad_cell=is_bad_setting(phase, error, request.get("env") or {}))


# --- the quotas that need another process ------------------------------------------------------------------------


def ballast(leave, ready_fd):
    """Takes all of the card but leave bytes through the driver's API, or nothing but a context of its own where leave is 0, and
    holds it until killed."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()

    def check(status, what):
        if status != 0:
            os.write(ready_fd, f"error {what}: CUDA status {status}".encode())
            os._exit(1)

    check(cuda.cuInit(0), "cuInit")
    device = ctypes.c_int()
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    step = 2 << 20
    for _ in range(64 if leave else 0):  # the driver rounds, so approach from above until less than a step is left over
        check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
        take = (free.value - leave) // step * step
        if take <= 0:
            break
        while take > 0 and cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(take)) != 0:
            take = take // 2 // step * step
        if take <= 0:
            break
    check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
    os.write(ready_fd, f"ok {free.value} {total.value}".encode())
    os.close(ready_fd)
    while True:
        signal.pause()


class Mps:
    """An MPS control daemon in a pipe folder of its own; the card's settings stay as they are."""

    def __init__(self):
        self.folder = None

    @staticmethod
    def present():
        return shutil.which("nvidia-cuda-mps-control") is not None

    def env(self):
        if self.folder is None:
            self.folder = tempfile.mkdtemp(prefix="oomfleet-mps-")
            subprocess.run(["nvidia-cuda-mps-control", "-d"], env=self._own(), check=True, timeout=30,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=True)
        return self._own()

    def _own(self):
        return {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": self.folder, "CUDA_MPS_LOG_DIRECTORY": self.folder}

    def stop(self):
        if self.folder is None:
            return
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", env=self._own(), timeout=30, check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)


# --- the warm parent ----------------------------------------------------------------------------------------------


class Parent:
    def __init__(self):
        self.card, self.mps = Card(), Mps()
        self.run_id, self.pid, self.ballast_pid = None, None, None
        self.buffer = b""

    def hello(self):
        # Threads of imported libraries are idle at a fork and gone in the child, which uses none of them.
        warnings.filterwarnings("ignore", message=".*use of fork.*", category=DeprecationWarning)
        import torch

        try:
            import transformers
            from transformers import EsmForProteinFolding  # noqa: F401  warms the import that costs most

            transformers_version = transformers.__version__
        except ImportError:
            transformers_version = ""  # a user's own workload may do without
        if torch.cuda.is_initialized():
            raise RuntimeError("importing torch or transformers made a CUDA context; children could not be forked")
        kinds = ["allocator", "device"] + (["process"] if self.mps.present() else [])
        emit("hello", protocol=PROTOCOL, pid=os.getpid(), python=sys.version.split()[0], torch=torch.__version__,
             transformers=transformers_version, cuda=torch.version.cuda or "", quota_kinds=kinds)
        gc.collect()
        gc.freeze()

    def start(self, request):
        self.run_id = request["id"]
        kind, quota, extra = request.get("quota_kind"), request.get("quota_bytes") or 0, {}
        try:
            if kind == "process" and (quota or self.mps.present()):
                extra = {key: value for key, value in self.mps.env().items() if key.startswith("CUDA_MPS_")}
            # What a process holds outside the allocator depends on who else has a context on the card, so a recording is made in
            # the company that its cell's probes have.
            if kind == "device" or extra and not quota:
                self.start_ballast(quota if kind == "device" else 0, extra)
            if extra and quota:
                extra["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={quota >> 20}M"
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            emit("fault", id=self.run_id, message=f"the {request['quota_kind']} quota could not be set up: {error}")
            self.end_run(code=1)
            return
        before = self.card.used()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.environ.update(extra)
            if "backend:" in str(request.get("env") or {}):
                # Read when the library loads: a fork is too late, so begin with a new interpreter.
                os.environ.update(request["env"])
                os.set_inheritable(EVENTS_FD, True)
                os.execv(sys.executable, [sys.executable, os.path.abspath(__file__), "--once", json.dumps([request, before])])
            child(request, before)
        self.pid = pid

    def start_ballast(self, leave, env):
        read_fd, write_fd = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read_fd)
            os.setpgid(0, 0)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.environ.update(env)
            ballast(leave, write_fd)
        self.ballast_pid = pid
        os.close(write_fd)
        with os.fdopen(read_fd, "rb") as answer:
            words = answer.read().decode().split()
        if not words or words[0] != "ok":
            raise RuntimeError(" ".join(words) or "the ballast process died")
        if not leave:
            return
        if not leave - (2 << 20) < int(words[1]) <= leave + (2 << 20):
            raise RuntimeError(f"the card has {words[1]} bytes free where {leave} were wanted: another process holds memory")
        emit("phase", id=self.run_id, phase="start",
             meters={"device_free_before_bytes": int(words[1]), "device_total_bytes": int(words[2])})

    def kill(self):
        for pid in (self.pid, self.ballast_pid):
            if pid:
                try:
                    os.killpg(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def reap(self):
        while self.pid or self.ballast_pid:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.end_run(status=status)
            elif pid == self.ballast_pid:
                self.ballast_pid = None

    def end_run(self, status=None, code=None):
        self.pid = None
        if self.ballast_pid:
            os.killpg(self.ballast_pid, signal.SIGKILL)
            os.waitpid(self.ballast_pid, 0)
            self.ballast_pid = None
        if status is not None and os.WIFSIGNALED(status):
            emit("exited", id=self.run_id, signal=signal.Signals(os.WTERMSIG(status)).name)
        else:
            emit("exited", id=self.run_id, code=os.WEXITSTATUS(status) if status is not None else code)
        self.run_id = None

    def serve(self):
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: (self.kill(), self.mps.stop(), os._exit(0)))
        while True:
            ready, _, _ = select.select([0, wake_read], [], [])
            if wake_read in ready:
                os.read(wake_read, 4096)
                self.reap()
            if 0 in ready and not self.read_requests():
                break
        self.kill()
        self.mps.stop()

    def read_requests(self):
        data = os.read(0, 1 << 16)
        if not data:
            return False
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if request["op"] == "exit":
                return False
            if request["op"] == "kill" and request.get("id") == self.run_id:
                self.kill()
            if request["op"] == "run":
                if self.run_id is not None:
                    emit("fault", id=request["id"], message="the runner was asked for a second run while one is on")
                    continue
                self.start(request)
        return True


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--once":
        child(*json.loads(sys.argv[2]))
    parent = Parent()
    try:
        parent.hello()
    except ImportError as error:
        emit("fault", message=f"{sys.executable} cannot import {error.name}: install it there, or name another interpreter with --python")
        return 1
    except RuntimeError as error:
        emit("fault", message=str(error))
        return 1
    parent.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
