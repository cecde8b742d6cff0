"""Programs that misbehave, and one that trains, for the suite of probers on a real GPU. Each is a workload "misbehave:<function>"."""

import ctypes
import mmap
import os
import signal
import sys
import time


def hang(run):
    run.phase("forward")
    while True:
        time.sleep(3600)


def crash(run):
    run.phase("forward")
    ctypes.string_at(0)  # a real segmentation fault


def fork(run):
    leave(run)
    hang(run)


def leave(run):
    """Starts a child that leads a session of its own, ignores SIGTERM and holds memory; ends well itself."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        memory = mmap.mmap(-1, 8 << 20)
        memory[:: mmap.PAGESIZE] = b"x" * ((8 << 20) // mmap.PAGESIZE)
        os.close(read_fd)
        os.close(write_fd)
        while True:
            time.sleep(3600)
    os.close(write_fd)
    os.read(read_fd, 1)
    print(f"grandchild {pid}", file=sys.stderr, flush=True)
    return {}


def train(run):
    """Behaves well: one step of gradient descent, as a script of anybody's would do it."""
    import torch

    model = run.keep = torch.nn.Linear(1024, 1024, device=run.device)
    run.phase("load")
    run.phase("forward")
    loss = model(torch.ones(run.batch, run.seq_len, 1024, device=run.device)).square().mean()
    loss.backward()
    torch.optim.AdamW(model.parameters()).step()
    return loss
