"""Launches by cuda.core with buffers and numpy scalars; the configuration is made once."""

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
from benchmarks.workers.opened import BLOCK, GRID, PAGE, as_seen, values

_EIGHT = "uint64(1000), uint64(1), uint64(0), x, out, float32(1.0), float32(2.0), uint32(3)"
BUILT_PER_CALL = {
    "none": "",
    "three": "uint64(1000), x, out",
    "eight": _EIGHT,
    "sixteen": f"{_EIGHT}, {_EIGHT}",
}
GAPS = (
    Gap("launch", "Python floats for f32", "a float is always passed as 8 bytes"),
    Gap("launch", "None", "a null pointer is passed as an integer"),
    Gap("launch", "__cuda_array_interface__", "takes Buffers and addresses"),
    Gap("copy 4 KiB", "from pageable memory", "copies between Buffers only"),
)


def main(library: str, backend: str) -> None:
    pin()
    core: Any = load("cuda.core")
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    module = core.ObjectCode.from_ptx(kernels.ptx())
    x = device.allocate(PAGE, stream=stream)
    out = device.allocate(PAGE, stream=stream)
    config = core.LaunchConfig(grid=GRID, block=BLOCK)
    eight = (
        *(np.uint64(1000), np.uint64(1), np.uint64(0), x, out),
        *(np.float32(1), np.float32(2), np.uint32(3)),
    )
    arguments = {"none": (), "three": (eight[0], x, out), "eight": eight, "sixteen": 2 * eight}
    forms = [control()]
    for entry, given in arguments.items():
        kernel = module.get_kernel(entry)
        listed, names = spelled(given)
        names |= {"launch": core.launch, "stream": stream, "config": config, "kernel": kernel}
        arrived = as_seen(values(entry, int(x.handle), int(out.handle)))
        reused = loop(f"launch(stream, config, kernel, {listed})", **names)
        forms.append(launch_form("numpy scalars, reused", reused, arrived))
        if given:
            per_call = loop(
                f"launch(stream, config, kernel, {BUILT_PER_CALL[entry]})",
                x=x,
                out=out,
                uint64=np.uint64,
                float32=np.float32,
                uint32=np.uint32,
                **names,
            )
            forms.append(launch_form("numpy scalars, built per call", per_call, arrived))
    event = stream.record(options=core.EventOptions())

    def allocate() -> None:
        device.allocate(PAGE, stream=stream).close(stream)

    forms += [
        Form(
            *("Device.allocate, close", "alloc+free", calls(allocate)),
            expected={"allocations": 1, "frees": 1},
        ),
        Form("get_kernel", "get_function", calls(lambda: module.get_kernel("three"))),
        Form("Stream.sync", "sync", calls(stream.sync), expected={"waits": 1}),
        Form(
            *("Stream.record", "record", calls(lambda: stream.record(event))),
            expected={"records": 1},
        ),
        pinned_copy(core, stream, x),
    ]
    rows = measure("cuda.core", forms, NullDriver(library))
    report(rows, gaps=GAPS, versions={"cuda-core": core.__version__})


def pinned_copy(core: Any, stream: object, x: object) -> Form:
    page = core.LegacyPinnedMemoryResource().allocate(PAGE)
    run = loop("x.copy_from(page, stream=stream)", x=x, page=page, stream=stream)
    expected = {"copies": 1, "copied_bytes": PAGE}
    return Form("Buffer.copy_from, pinned", "copy 4 KiB", run, expected=expected)


if __name__ == "__main__":
    main(*sys.argv[1:])
