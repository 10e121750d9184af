"""uhal's own forms of a launch, whose packets it writes into a device's queue itself."""

from __future__ import annotations

import sys

import uhal
from benchmarks import kernels
from benchmarks.measuring import Form, NullDriver, calls, control, measure, pin, report
from benchmarks.workers.uhal_calls import launches, numpy_scalars
from uhal import DeviceBuffer, Module, Stream


def main(library: str) -> None:
    pin()
    device = uhal.Api.quick_init(0, backend="rocm")
    module = Module.from_bytes(kernels.hsaco())
    functions = {
        entry: module.get_function(entry, kernels.declaration(entry)) for entry in kernels.KERNELS
    }
    stream = Stream()
    x = DeviceBuffer.uninitialized(1024, "f32")
    out = DeviceBuffer.uninitialized(1024, "f32")
    forms = [
        control(),
        *launches(functions["three"], (1000, x, out), stream),
        *launches(functions["eight"], (1000, 1, None, x, out, 1.0, 2.0, 3), stream),
        *numpy_scalars(functions["eight"], x, out, stream),
        Form("Stream.synchronize", "sync", calls(stream.synchronize)),
    ]
    rows = measure("uhal", forms, NullDriver(library))
    report(rows, versions={"uhal": uhal.__version__}, device=device.name)


if __name__ == "__main__":
    main(sys.argv[1])
