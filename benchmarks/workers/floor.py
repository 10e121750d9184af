"""What the driver's calls cost from C: the floor of every other row."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.measuring import Form, NullDriver, control, launch_form, measure, pin, report
from benchmarks.workers.cuda_setup import BLOCK, GRID, as_seen, open_driver, values

SOURCE = Path(__file__).with_name("floor.c")


def main(library: str) -> None:
    pin()
    loops = build()
    opened = open_driver(library)
    launch = ctypes.cast(opened.driver.cuLaunchKernel, ctypes.c_void_p)
    stream = ctypes.c_void_p(opened.stream)
    forms = [control()]
    kept = []
    for entry in ("none", "three", "eight"):
        given = values(entry, opened.x, opened.out)
        pointers = (ctypes.c_void_p * max(1, len(given)))(*map(ctypes.addressof, given))
        kept.append((given, pointers))
        function = ctypes.c_void_p(opened.functions[entry])

        run = partial(loops.launch_loop, launch, function, GRID, BLOCK, stream, pointers)
        forms.append(launch_form("C loop", run, as_seen(given)))
    event = ctypes.c_void_p()
    opened.driver.cuEventCreate(ctypes.byref(event), 0)
    page = (ctypes.c_char * 4096)()

    def pointer(name: str) -> ctypes.c_void_p:
        return ctypes.cast(getattr(opened.driver, name), ctypes.c_void_p)

    alloc, free = pointer("cuMemAlloc_v2"), pointer("cuMemFree_v2")
    copy, sync = pointer("cuMemcpyHtoD_v2"), pointer("cuStreamSynchronize")
    record = pointer("cuEventRecord")
    address = ctypes.c_uint64(opened.x)
    forms += [
        Form("C loop", "alloc+free", lambda n: loops.alloc_loop(alloc, free, n)),
        Form("C loop", "copy 4 KiB", lambda n: loops.copy_loop(copy, address, page, n)),
        Form("C loop", "sync", lambda n: loops.sync_loop(sync, stream, n)),
        Form("C loop", "record", lambda n: loops.record_loop(record, event, stream, n)),
    ]
    report(measure("floor", forms, NullDriver(library)), versions={})


def build() -> ctypes.CDLL:
    """Compile the loops."""
    folder = Path(tempfile.mkdtemp(prefix="uhal-floor-"))
    command = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", str(SOURCE)]
    subprocess.run([*command, "-o", str(folder / "floor.so")], check=True)
    return ctypes.CDLL(str(folder / "floor.so"))


if __name__ == "__main__":
    main(sys.argv[1])
