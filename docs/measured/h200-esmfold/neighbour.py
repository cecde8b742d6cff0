"""Moves the first card's memory for some seconds: a GiB taken and given back, twice a second."""

import sys
import time

import torch

torch.cuda.init()
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    block = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    time.sleep(0.25)
    del block
    torch.cuda.empty_cache()
    time.sleep(0.25)
