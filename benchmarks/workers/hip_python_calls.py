"""hip-python in the form its documentation shows, and with everything prebuilt."""

from __future__ import annotations

import ctypes
import importlib.metadata
import sys
from typing import Any

import numpy as np

from benchmarks import kernels
from benchmarks.measuring import (
    Form,
    Gap,
    NullDriver,
    calls,
    control,
    launch_form,
    load,
    loop,
    measure,
    pin,
    report,
)
from benchmarks.workers.opened import BLOCK, GRID, PAGE, as_seen, pointers_to, values

_EIGHT = "c_uint64(1000), c_uint64(1), c_uint64(0), x, out, c_float(1.0), c_float(2.0), c_uint32(3)"
EXTRA = {
    "none": "",
    "three": "c_uint64(1000), x, out",
    "eight": _EIGHT,
    "sixteen": f"{_EIGHT}, {_EIGHT}",
}
TYPES = {"c_uint64": ctypes.c_uint64, "c_float": ctypes.c_float, "c_uint32": ctypes.c_uint32}
GAPS = (
    Gap("launch", "Python ints and floats", "takes ctypes values and addresses"),
    Gap("launch", "numpy scalars", "takes ctypes values and addresses"),
)


def main(library: str, backend: str) -> None:
    pin()
    hip: Any = load("hip").hip
    _, x = hip.hipMalloc(PAGE)
    _, out = hip.hipMalloc(PAGE)
    _, module = hip.hipModuleLoadData(b"nothing of this is read")
    _, stream = hip.hipStreamCreate()
    forms = [control()]
    kept = []
    for entry in kernels.KERNELS:
        _, function = hip.hipModuleGetFunction(module, entry.encode())
        given = values(entry, int(x), int(out))
        pointers = pointers_to(given)
        kept.append((given, pointers))
        names = {"launch": hip.hipModuleLaunchKernel, "function": function, "stream": stream}
        sizes = f"{GRID}, 1, 1, {BLOCK}, 1, 1, 0"
        per_call = loop(
            f"launch(function, {sizes}, stream, None, ({EXTRA[entry]}))",
            x=x,
            out=out,
            **TYPES,
            **names,
        )
        prebuilt = loop(
            f"launch(function, {sizes}, stream, pointers, None)",
            pointers=ctypes.addressof(pointers),
            **names,
        )
        forms.append(launch_form("extra, built per call", per_call, as_seen(given)))
        forms.append(launch_form("void** address, prebuilt", prebuilt, as_seen(given)))
    forms += around(hip, x, stream)
    version = importlib.metadata.version("hip-python")
    rows = measure("hip-python", forms, NullDriver(library))
    report(rows, gaps=GAPS, versions={"hip-python": version})


def around(hip: Any, x: object, stream: object) -> list[Form]:
    page = np.zeros(PAGE // 4, np.float32)
    _, event = hip.hipEventCreate()

    def allocate() -> None:
        _, address = hip.hipMalloc(PAGE)
        hip.hipFree(address)

    def copy() -> None:
        hip.hipMemcpyHtoDAsync(x, page, PAGE, stream)

    return [
        Form(
            *("hipMalloc, hipFree", "alloc+free", calls(allocate)),
            expected={"allocations": 1, "frees": 1},
        ),
        Form(
            *("hipMemcpyHtoDAsync", "copy 4 KiB", calls(copy)),
            expected={"copies": 1, "copied_bytes": PAGE},
        ),
        Form(
            *("hipStreamSynchronize", "sync", calls(lambda: hip.hipStreamSynchronize(stream))),
            expected={"waits": 1},
        ),
        Form(
            *("hipEventRecord", "record", calls(lambda: hip.hipEventRecord(event, stream))),
            expected={"records": 1},
        ),
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
