"""Cost of a driver's calls from C: the lower bound of every other row."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks import kernels
from benchmarks.measuring import Form, control, launch_form, measure, pin, report
from benchmarks.workers.opened import PAGE, Opened, as_seen, open_driver, pointers_to, values

SOURCE = Path(__file__).with_name("floor.c")


def main(library: str, backend: str) -> None:
    pin()
    loops = build()
    opened = open_driver(backend, library)
    forms = [control()]
    kept = []
    for entry in kernels.KERNELS:
        given = values(entry, opened.x, opened.out)
        pointers = pointers_to(given)
        kept.append((given, pointers))
        function = ctypes.c_void_p(opened.functions[entry])
        launch, stream = _pointer(opened, "launch"), ctypes.c_void_p(opened.stream)
        run = partial(
            *(loops.launch_loop, launch, function, opened.grid, opened.block, stream, pointers)
        )
        forms.append(launch_form("C loop", run, as_seen(given)))
    forms += around(loops, opened)
    report(measure("floor", forms, opened.counts), versions={})


def around(loops: ctypes.CDLL, opened: Opened) -> list[Form]:
    page = (ctypes.c_char * PAGE)()
    alloc, free, copy = (_pointer(opened, role) for role in ("alloc", "free", "copy"))
    sync, record = (_pointer(opened, role) for role in ("sync", "record"))
    stream, event = ctypes.c_void_p(opened.stream), ctypes.c_void_p(opened.event)
    address = ctypes.c_uint64(opened.x)
    return [
        Form("C loop", "alloc+free", lambda n: loops.alloc_loop(alloc, free, n)),
        Form("C loop", "copy 4 KiB", lambda n: loops.copy_loop(copy, address, page, stream, n)),
        Form("C loop", "sync", lambda n: loops.sync_loop(sync, stream, n)),
        Form("C loop", "record", lambda n: loops.record_loop(record, event, stream, n)),
    ]


def _pointer(opened: Opened, role: str) -> ctypes.c_void_p:
    return ctypes.cast(getattr(opened, role), ctypes.c_void_p)


def build() -> ctypes.CDLL:
    """Compile the loops."""
    with tempfile.TemporaryDirectory(prefix="uhal-floor-") as folder:
        library = Path(folder, "floor.so")
        command = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", str(SOURCE)]
        subprocess.run([*command, "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))


if __name__ == "__main__":
    main(*sys.argv[1:])
