"""A job whose last rank dies or stops before a collective: the others name it, and end.

mpirun -n 3 --enable-recovery python -m tests.collectives.missing_rank KILL|STOP CALLS
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import uhal
from uhal import DeviceBuffer, Stream
from uhal.collectives import Communicator, Place, share, unique_id

how, calls = sys.argv[1], int(sys.argv[2])
uhal.Api.quick_init(0, "host")
place = Place.of()
one = Communicator(place.ranks, share(unique_id()), place.rank)
last = place.ranks - 1
stream = Stream()  # stays stuck on the host
x = DeviceBuffer.from_numpy(np.ones(1000, "f4"))
one.all_reduce(x, stream=stream)
one.wait(60, stream)
print(f"rank {place.rank} is process {os.getpid()}", flush=True)
mapped = {
    line.split()[5] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line
}
for segment in sorted(path for path in mapped if path.startswith("/dev/shm/")):
    print(f"rank {place.rank} has segment {segment}", flush=True)
seconds = 60 if how == "KILL" else 3
began = time.monotonic()
try:
    for turn in range(calls):
        is_end = turn == calls - 1
        if place.rank == last and is_end:
            time.sleep(0.5)  # the others wait in their calls, or soon will
            os.kill(os.getpid(), signal.SIGKILL if how == "KILL" else signal.SIGSTOP)
        one.all_reduce(x, stream=stream)
        began = time.monotonic()
        one.wait(seconds if is_end else 60, stream)
except (uhal.DeviceError, TimeoutError) as error:
    taken = time.monotonic() - began
    print(f"rank {place.rank}, {taken:.2f} s, {type(error).__name__}: {error}", flush=True)
one.abort()
assert (DeviceBuffer.zeros(4, "f4").to_numpy() == 0).all()  # the device goes on
print(f"rank {place.rank} goes on", flush=True)
