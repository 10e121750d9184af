"""cuda.bindings in the forms its documentation shows, and with everything prebuilt."""

from __future__ import annotations

import ctypes
import sys

import numpy as np

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
)
from benchmarks.workers.cuda_setup import as_seen, open_driver, values


def main(library: str) -> None:
    pin()
    import cuda.bindings
    from cuda.bindings import driver

    opened = open_driver(library)
    driver.cuInit(0)
    stream = driver.CUstream(opened.stream)
    launch = driver.cuLaunchKernel
    forms = [control()]
    kept = []
    for entry in ("three", "eight"):
        given = values(entry, opened.x, opened.out)
        pointers = (ctypes.c_void_p * len(given))(*map(ctypes.addressof, given))
        address = ctypes.addressof(pointers)
        array = np.array([ctypes.addressof(value) for value in given], np.uint64)
        function = driver.CUfunction(opened.functions[entry])
        tuples = (tuple(value.value for value in given), tuple(type(value) for value in given))
        kept.append((given, pointers, array))
        for name, parameters in (
            ("void** address, prebuilt", address),
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
    forms += around(driver, opened.x, stream, opened.module)
    versions = {"cuda-bindings": cuda.bindings.__version__}
    report(measure("cuda.bindings", forms, NullDriver(library)), versions=versions)


def around(driver: object, x: int, stream: object, module: int) -> list[Form]:
    page = np.zeros(1024, np.float32)
    to = driver.CUdeviceptr(x)
    _, event = driver.cuEventCreate(0)
    handle = driver.CUmodule(module)

    def allocate() -> None:
        _, address = driver.cuMemAlloc(4096)
        driver.cuMemFree(address)

    def allocate_async() -> None:
        _, address = driver.cuMemAllocAsync(4096, stream)
        driver.cuMemFreeAsync(address, stream)

    return [
        Form("cuMemAlloc, cuMemFree", "alloc+free", calls(allocate)),
        Form("cuMemAllocAsync, cuMemFreeAsync", "alloc+free", calls(allocate_async)),
        Form("cuMemcpyHtoD", "copy 4 KiB", calls(lambda: driver.cuMemcpyHtoD(to, page, 4096))),
        Form(
            "cuModuleGetFunction",
            "get_function",
            calls(lambda: driver.cuModuleGetFunction(handle, b"three")),
        ),
        Form("cuStreamSynchronize", "sync", calls(lambda: driver.cuStreamSynchronize(stream))),
        Form("cuEventRecord", "record", calls(lambda: driver.cuEventRecord(event, stream))),
    ]


if __name__ == "__main__":
    main(sys.argv[1])
