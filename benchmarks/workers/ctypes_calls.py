"""ctypes, as a program without any binding would call the driver."""

from __future__ import annotations

import ctypes
import platform
import sys

from benchmarks.measuring import (
    Form,
    NullDriver,
    calls,
    control,
    launch_form,
    loop,
    measure,
    pin,
    report,
    spelled,
)
from benchmarks.workers.cuda_setup import BLOCK, GRID, as_seen, open_driver, values


def main(library: str) -> None:
    pin()
    opened = open_driver(library)
    launch = opened.driver.cuLaunchKernel
    stream = ctypes.c_void_p(opened.stream)
    forms = [control()]
    kept = []
    for entry in ("three", "eight"):
        given = values(entry, opened.x, opened.out)
        pointers = (ctypes.c_void_p * len(given))(*map(ctypes.addressof, given))
        function = ctypes.c_void_p(opened.functions[entry])
        kept.append((given, pointers))
        sizes = [ctypes.c_uint(n) for n in (GRID, 1, 1, BLOCK, 1, 1, 0)]
        listed, names = spelled((function, *sizes, stream, pointers, None))
        prebuilt = loop(f"launch({listed})", launch=launch, **names)
        per_call = loop(
            "now = values(entry, x, out); launch(function, 8, 1, 1, 256, 1, 1, 0, stream, "
            "(pointer * len(now))(*map(addressof, now)), None)",
            launch=launch,
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
    forms += around(opened.driver, opened.x, stream)
    report(
        measure("ctypes", forms, NullDriver(library)),
        versions={"python": platform.python_version()},
    )


def around(driver: ctypes.CDLL, x: int, stream: ctypes.c_void_p) -> list[Form]:
    address = ctypes.c_uint64()
    place = ctypes.byref(address)
    bytes_ = ctypes.c_size_t(4096)
    page = (ctypes.c_char * 4096)()
    to = ctypes.c_uint64(x)
    event = ctypes.c_void_p()
    driver.cuEventCreate(ctypes.byref(event), 0)
    alloc, free, copy = driver.cuMemAlloc_v2, driver.cuMemFree_v2, driver.cuMemcpyHtoD_v2
    synchronize, record = driver.cuStreamSynchronize, driver.cuEventRecord

    def allocate() -> None:
        alloc(place, bytes_)
        free(address)

    return [
        Form("cuMemAlloc, cuMemFree", "alloc+free", calls(allocate)),
        Form("cuMemcpyHtoD", "copy 4 KiB", calls(lambda: copy(to, page, bytes_))),
        Form("cuStreamSynchronize", "sync", calls(lambda: synchronize(stream))),
        Form("cuEventRecord", "record", calls(lambda: record(event, stream))),
    ]


if __name__ == "__main__":
    main(sys.argv[1])
