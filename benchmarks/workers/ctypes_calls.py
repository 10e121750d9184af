"""The driver's calls through ctypes, as in a program without any binding."""

from __future__ import annotations

import ctypes
import platform
import sys

from benchmarks import kernels
from benchmarks.measuring import (
    Form,
    calls,
    control,
    launch_form,
    loop,
    measure,
    pin,
    report,
    spelled,
)
from benchmarks.workers.opened import PAGE, Opened, as_seen, open_driver, pointers_to, values


def main(library: str, backend: str) -> None:
    pin()
    opened = open_driver(backend, library)
    stream = ctypes.c_void_p(opened.stream)
    shape = (opened.grid, 1, 1, opened.block, 1, 1, 0)
    forms = [control()]
    kept = []
    for entry in kernels.KERNELS:
        given = values(entry, opened.x, opened.out)
        pointers = pointers_to(given)
        function = ctypes.c_void_p(opened.functions[entry])
        kept.append((given, pointers))
        sizes = map(ctypes.c_uint, shape)
        listed, names = spelled((function, *sizes, stream, pointers, None))
        prebuilt = loop(f"launch({listed})", launch=opened.launch, **names)
        per_call = loop(
            f"now = values(entry, x, out); launch(function, {', '.join(map(str, shape))}, stream, "
            "(pointer * len(now))(*map(addressof, now)), None)",
            launch=opened.launch,
            values=values,
            entry=entry,
            x=opened.x,
            out=opened.out,
            function=function,
            stream=stream,
            pointer=ctypes.c_void_p,
            addressof=ctypes.addressof,
        )
        forms.append(launch_form("prebuilt objects", prebuilt, as_seen(given)))
        forms.append(launch_form("built per call", per_call, as_seen(given)))
    forms += around(opened, stream)
    report(measure("ctypes", forms, opened.counts), versions={"python": platform.python_version()})


def around(opened: Opened, stream: ctypes.c_void_p) -> list[Form]:
    names = opened.names
    address = ctypes.c_uint64()
    pointer = ctypes.byref(address)
    nbytes = ctypes.c_size_t(PAGE)
    page = (ctypes.c_char * PAGE)()
    to = ctypes.c_uint64(opened.x)
    event = ctypes.c_void_p(opened.event)
    alloc, free, copy = opened.alloc, opened.free, opened.copy
    synchronize, record = opened.sync, opened.record

    def allocate() -> None:
        alloc(pointer, nbytes)
        free(address)

    counted = {"copies": 1, "copied_bytes": PAGE}
    return [
        Form(
            f"{names.alloc}, {names.free}",
            *("alloc+free", calls(allocate)),
            expected={"allocations": 1, "frees": 1},
        ),
        Form(names.copy, "copy 4 KiB", calls(lambda: copy(to, page, nbytes)), expected=counted),
        Form(names.sync, "sync", calls(lambda: synchronize(stream)), expected={"waits": 1}),
        Form(names.record, "record", calls(lambda: record(event, stream)), expected={"records": 1}),
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
