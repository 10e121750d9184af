"""PyCUDA: prepared calls, the convenient call, and the calls around them."""

from __future__ import annotations

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
    spelled,
)
from benchmarks.workers.opened import PAGE, as_seen, values

LAYOUTS = {"none": "", "three": "QPP", "eight": "QQPPPffI", "sixteen": 2 * "QQPPPffI"}
GAPS = (
    Gap("launch", "prepared, __cuda_array_interface__", "prepared calls take addresses"),
    Gap("launch", "Python ints and floats, unprepared", "takes numpy's sized scalars"),
)


class Foreign:
    """Another library's memory, by the CUDA array interface."""

    def __init__(self, address: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (PAGE // 4,),
            "typestr": "<f4",
            "data": (address, False),
            "version": 3,
        }


def main(library: str, backend: str) -> None:
    pin()
    driver: Any = load("pycuda.driver")
    driver.init()
    context = driver.Device(0).retain_primary_context()
    context.push()
    try:
        rows = measure("PyCUDA", list(forms_of(driver)), NullDriver(library))
        report(rows, gaps=GAPS, versions={"pycuda": load("pycuda").VERSION_TEXT})
        sys.stdout.flush()
    finally:
        context.pop()


def forms_of(driver: Any) -> list[Form]:
    stream = driver.Stream()
    module = driver.module_from_buffer(kernels.ptx())
    x, out = driver.mem_alloc(PAGE), driver.mem_alloc(PAGE)
    eight = (1000, 1, 0, int(x), int(out), 1.0, 2.0, 3)
    arguments = {"none": (), "three": (1000, int(x), int(out)), "eight": eight}
    arguments["sixteen"] = 2 * eight
    forms = [control()]
    for entry, given in arguments.items():
        function = module.get_function(entry)
        function.prepare(LAYOUTS[entry])
        listed, names = spelled(given)
        run = loop(
            f"prepared((8, 1), (256, 1, 1), stream, {listed})",
            prepared=function.prepared_async_call,
            stream=stream,
            **names,
        )
        arrived = as_seen(values(entry, int(x), int(out)))
        forms.append(launch_form("prepared_async_call", run, arrived))
    foreign = loop(
        "function(n, x, out, grid=(8, 1), block=(256, 1, 1), stream=stream)",
        function=module.get_function("three"),
        n=np.uint64(1000),
        x=Foreign(int(x)),
        out=Foreign(int(out)),
        stream=stream,
    )
    arrived = as_seen(values("three", int(x), int(out)))
    forms.append(launch_form("function(), __cuda_array_interface__", foreign, arrived))
    return forms + around(driver, module, stream, x)


def around(driver: Any, module: Any, stream: Any, x: object) -> list[Form]:
    page = np.zeros(PAGE // 4, np.float32)
    event = driver.Event()
    pool = load("pycuda.tools").DeviceMemoryPool()
    pair = {"allocations": 1, "frees": 1}
    copied = {"copies": 1, "copied_bytes": PAGE}
    return [
        Form(
            *("mem_alloc, free", "alloc+free", calls(lambda: driver.mem_alloc(PAGE).free())),
            expected=pair,
        ),
        Form("DeviceMemoryPool", "alloc+free", calls(lambda: pool.allocate(PAGE))),
        Form(
            *("memcpy_htod", "copy 4 KiB", calls(lambda: driver.memcpy_htod(x, page))),
            expected=copied,
        ),
        Form("get_function", "get_function", calls(lambda: module.get_function("three"))),
        Form("Stream.synchronize", "sync", calls(stream.synchronize), expected={"waits": 1}),
        Form(
            *("Event.record", "record", calls(lambda: event.record(stream))),
            expected={"records": 1},
        ),
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
