"""Kills the agent of card 0 with SIGKILL while its run holds the card, three times, and looks at what stays. The argument is dev's --data-dir."""

import os
import signal
import subprocess
import sys
import time


def used():
    """MiB in use on card 0."""
    return int(subprocess.check_output(["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], text=True))


def processes():
    """The command line and the parent of every process that is no zombie."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                command = f.read().split(b"\0")[:-1]
            with open(f"/proc/{pid}/stat") as f:
                state, parent = f.read().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if state != "Z" and command:
            found[int(pid)] = (command, int(parent))
    return found


def agent(folder):
    """The pid of the agent that works in this folder, 0 when there is none."""
    for pid, (command, _) in processes().items():
        if command[1:2] == [b"agent"] and folder.encode() in command:
            return pid
    return 0


def below(root):
    """All processes that descend from root."""
    everything, found, todo = processes(), [], [root]
    while todo:
        parent = todo.pop()
        children = [pid for pid, (_, p) in everything.items() if p == parent]
        found += children
        todo += children
    return found


before = used()
for number, held in enumerate((2500, 6000, 9500), 1):
    deadline = time.monotonic() + 90
    while not (pid := agent(sys.argv[1] + "/agent-0")) or used() - before < held:
        if time.monotonic() > deadline:
            sys.exit(f"kill {number}: no run held {held} MiB")
        time.sleep(0.02)
    tree, at = below(pid), used() - before
    os.kill(pid, signal.SIGKILL)
    began, gone, free = time.monotonic(), None, None
    while time.monotonic() < began + 30 and (gone is None or free is None):
        live, now = processes(), time.monotonic() - began
        gone = now if gone is None and not any(p in live for p in tree) else gone
        free = now if free is None and used() <= before else free
        time.sleep(0.02)
    print(f"kill {number}: the run held {at} MiB; {len(tree)} processes gone after {gone} s, the memory free after {free} s", flush=True)
