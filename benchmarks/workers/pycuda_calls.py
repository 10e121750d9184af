"""PyCUDA: prepared calls, and the calls around them."""

from __future__ import annotations

import sys

import numpy as np

from benchmarks import kernels
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
from benchmarks.workers.cuda_setup import as_seen, values


def main(library: str) -> None:
    pin()
    import pycuda
    import pycuda.driver as driver
    from pycuda.tools import DeviceMemoryPool

    driver.init()
    context = driver.Device(0).retain_primary_context()
    context.push()
    stream = driver.Stream()
    module = driver.module_from_buffer(kernels.ptx())
    x, out = driver.mem_alloc(4096), driver.mem_alloc(4096)
    eight = (1000, 1, 0, int(x), int(out), 1.0, 2.0, 3)
    forms = [control()]
    for entry, layout, given in (
        ("three", "QPP", (1000, int(x), int(out))),
        ("eight", "QQPPPffI", eight),
    ):
        function = module.get_function(entry)
        function.prepare(layout)
        listed, names = spelled(given)
        run = loop(
            f"prepared((8, 1), (256, 1, 1), stream, {listed})",
            prepared=function.prepared_async_call,
            stream=stream,
            **names,
        )
        arrived = as_seen(values(entry, int(x), int(out)))
        forms.append(launch_form("prepared_async_call", run, arrived))
    page = np.zeros(1024, np.float32)
    event = driver.Event()
    pool = DeviceMemoryPool()
    forms += [
        Form("mem_alloc, free", "alloc+free", calls(lambda: driver.mem_alloc(4096).free())),
        Form("DeviceMemoryPool", "alloc+free", calls(lambda: pool.allocate(4096))),
        Form("memcpy_htod", "copy 4 KiB", calls(lambda: driver.memcpy_htod(x, page))),
        Form("get_function", "get_function", calls(lambda: module.get_function("three"))),
        Form("Stream.synchronize", "sync", calls(stream.synchronize)),
        Form("Event.record", "record", calls(lambda: event.record(stream))),
    ]
    rows = measure("PyCUDA", forms, NullDriver(library))
    pool.stop_holding()
    report(rows, versions={"pycuda": pycuda.VERSION_TEXT})
    sys.stdout.flush()
    context.pop()


if __name__ == "__main__":
    main(sys.argv[1])
