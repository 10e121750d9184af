"""cuda.core: its launch with buffers and numpy scalars, the configuration made once."""

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
from benchmarks.workers.cuda_setup import BLOCK, GRID, as_seen, values

BUILT_PER_CALL = {
    "three": "uint64(1000), x, out",
    "eight": "uint64(1000), uint64(1), uint64(0), x, out, float32(1.0), float32(2.0), uint32(3)",
}


def main(library: str) -> None:
    pin()
    import cuda.core
    from cuda.core import Device, EventOptions, LaunchConfig, ObjectCode, launch

    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    module = ObjectCode.from_ptx(kernels.ptx())
    x = device.allocate(4096, stream=stream)
    out = device.allocate(4096, stream=stream)
    config = LaunchConfig(grid=GRID, block=BLOCK)
    eight = (
        *(np.uint64(1000), np.uint64(1), np.uint64(0), x, out),
        *(np.float32(1), np.float32(2), np.uint32(3)),
    )
    forms = [control()]
    for entry, given in (("three", (eight[0], x, out)), ("eight", eight)):
        kernel = module.get_kernel(entry)

        listed, names = spelled(given)
        names |= {"launch": launch, "stream": stream, "config": config, "kernel": kernel}
        reused = loop(f"launch(stream, config, kernel, {listed})", **names)
        per_call = loop(
            f"launch(stream, config, kernel, {BUILT_PER_CALL[entry]})",
            x=x,
            out=out,
            uint64=np.uint64,
            float32=np.float32,
            uint32=np.uint32,
            **names,
        )
        arrived = as_seen(values(entry, int(x.handle), int(out.handle)))
        forms.append(launch_form("numpy scalars, reused", reused, arrived))
        forms.append(launch_form("numpy scalars, built per call", per_call, arrived))
    event = stream.record(options=EventOptions())

    def allocate() -> None:
        device.allocate(4096, stream=stream).close(stream)

    forms += [
        Form("Device.allocate, close", "alloc+free", calls(allocate)),
        Form("get_kernel", "get_function", calls(lambda: module.get_kernel("three"))),
        Form("Stream.sync", "sync", calls(stream.sync)),
        Form("Stream.record", "record", calls(lambda: stream.record(event))),
        *copies(device, stream, x),
    ]
    versions = {"cuda-core": cuda.core.__version__}
    report(measure("cuda.core", forms, NullDriver(library)), versions=versions)


def copies(device: object, stream: object, x: object) -> list[Form]:
    from cuda.core import LegacyPinnedMemoryResource

    page = LegacyPinnedMemoryResource().allocate(4096)
    run = loop("x.copy_from(page, stream=stream)", x=x, page=page, stream=stream)
    return [Form("Buffer.copy_from, pinned", "copy 4 KiB", run)]


if __name__ == "__main__":
    main(sys.argv[1])
