"""cuda.bindings in the forms its documentation shows, and with everything prebuilt."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from benchmarks import kernels
from benchmarks.measuring import (
    Form,
    Gap,
    calls,
    control,
    launch_form,
    load,
    loop,
    measure,
    pin,
    report,
)
from benchmarks.workers.opened import PAGE, Opened, as_seen, open_driver, pointers_to, values

GAPS = (
    Gap("launch", "Python ints and floats", "a ctypes type must come with every value"),
    Gap("launch", "numpy scalars", "values must be ones that the ctypes type takes"),
    Gap("launch", "__cuda_array_interface__", "takes addresses"),
)


def main(library: str, backend: str) -> None:
    pin()
    driver: Any = load("cuda.bindings.driver")
    opened = open_driver(backend, library)
    driver.cuInit(0)
    stream = driver.CUstream(opened.stream)
    launch = driver.cuLaunchKernel
    forms = [control()]
    kept = []
    for entry in kernels.KERNELS:
        given = values(entry, opened.x, opened.out)
        pointers = pointers_to(given)
        array = np.array([ctypes.addressof(value) for value in given], np.uint64)
        function = driver.CUfunction(opened.functions[entry])
        tuples = (tuple(value.value for value in given), tuple(type(value) for value in given))
        kept.append((given, pointers, array))
        for name, parameters in (
            ("void** address, prebuilt", ctypes.addressof(pointers)),
            ("numpy pointers, prebuilt", array),
            ("(values), (types)", tuples),
        ):
            run = loop(
                "launch(function, 8, 1, 1, 256, 1, 1, 0, stream, parameters, 0)",
                launch=launch,
                function=function,
                stream=stream,
                parameters=parameters,
            )
            forms.append(launch_form(name, run, as_seen(given)))
    forms += around(driver, opened, stream)
    versions = {"cuda-bindings": load("cuda.bindings").__version__}
    report(measure("cuda.bindings", forms, opened.counts), gaps=GAPS, versions=versions)


def around(driver: Any, opened: Opened, stream: object) -> list[Form]:
    page = np.zeros(PAGE // 4, np.float32)
    to = driver.CUdeviceptr(opened.x)
    _, event = driver.cuEventCreate(0)
    handle = driver.CUmodule(opened.module)

    def allocate() -> None:
        _, address = driver.cuMemAlloc(PAGE)
        driver.cuMemFree(address)

    def allocate_async() -> None:
        _, address = driver.cuMemAllocAsync(PAGE, stream)
        driver.cuMemFreeAsync(address, stream)

    pair = {"allocations": 1, "frees": 1}
    copied = {"copies": 1, "copied_bytes": PAGE}
    return [
        Form("cuMemAlloc, cuMemFree", "alloc+free", calls(allocate), expected=pair),
        Form(
            *("cuMemAllocAsync, cuMemFreeAsync", "alloc+free", calls(allocate_async)),
            expected=pair,
        ),
        Form(
            *("cuMemcpyHtoD", "copy 4 KiB", calls(lambda: driver.cuMemcpyHtoD(to, page, PAGE))),
            expected=copied,
        ),
        Form(
            "cuModuleGetFunction",
            "get_function",
            calls(lambda: driver.cuModuleGetFunction(handle, b"three")),
        ),
        Form(
            *("cuStreamSynchronize", "sync", calls(lambda: driver.cuStreamSynchronize(stream))),
            expected={"waits": 1},
        ),
        Form(
            *("cuEventRecord", "record", calls(lambda: driver.cuEventRecord(event, stream))),
            expected={"records": 1},
        ),
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
