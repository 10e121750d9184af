"""CuPy: raw kernels. If its own copy of the CUDA runtime does not start, the row says why."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks import kernels
from benchmarks.measuring import (
    Form,
    NullDriver,
    absent,
    calls,
    control,
    launch_form,
    load,
    loop,
    measure,
    pin,
    report,
    spelled,
)
from benchmarks.workers.opened import PAGE, as_seen, values


def main(library: str, backend: str) -> None:
    pin()
    cupy: Any = load("cupy")
    try:
        cupy.cuda.Device(0).use()
        cupy.cuda.runtime.free(0)
    except cupy.cuda.runtime.CUDARuntimeError as failure:
        absent(
            f"{failure}: the CUDA runtime inside its wheel asks the driver for private tables "
            "(cuGetExportTable), which a stand-in does not have"
        )
    rows = measure("CuPy", list(forms_of(cupy)), NullDriver(library))
    report(rows, versions={"cupy": cupy.__version__})


def forms_of(cupy: Any) -> list[Form]:
    module = cupy.cuda.function.Module()
    module.load(kernels.ptx())
    stream = cupy.cuda.Stream(non_blocking=True)
    x, out = cupy.cuda.alloc(PAGE), cupy.cuda.alloc(PAGE)
    eight = (
        *(np.uint64(1000), np.uint64(1), np.uint64(0), x, out),
        *(np.float32(1), np.float32(2), np.uint32(3)),
    )
    arguments = {"none": (), "three": (eight[0], x, out), "eight": eight, "sixteen": 2 * eight}
    forms = [control()]
    for entry, given in arguments.items():
        listed, names = spelled(given)
        run = loop(
            f"function((8,), (256,), ({listed}{',' if len(given) == 1 else ''}), stream=stream)",
            function=module.get_function(entry),
            stream=stream,
            **names,
        )
        arrived = as_seen(values(entry, x.ptr, out.ptr))
        forms.append(launch_form("Function()", run, arrived))
    page = np.zeros(PAGE // 4, np.float32)
    event = cupy.cuda.Event()
    return [
        *forms,
        Form("cupy.cuda.alloc, pooled", "alloc+free", calls(lambda: cupy.cuda.alloc(PAGE))),
        Form(
            *("copy_from_host", "copy 4 KiB"),
            calls(lambda: x.copy_from_host(page.ctypes.data, PAGE)),
            expected={"copies": 1, "copied_bytes": PAGE},
        ),
        Form("get_function", "get_function", calls(lambda: module.get_function("three"))),
        Form("Stream.synchronize", "sync", calls(stream.synchronize)),
        Form("Event.record", "record", calls(lambda: event.record(stream))),
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
