"""uhal's own forms: `launch`, `subscripted`, bound, and the calls around a launch."""

from __future__ import annotations

import sys

import numpy as np

import uhal
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
from uhal import DeviceBuffer, Event, Module, Stream, launch


def main(library: str, name: str = "uhal") -> None:
    pin()
    device = uhal.Api.quick_init(0, backend="cuda")
    module = Module.from_bytes(kernels.ptx())
    stream = Stream()
    x = DeviceBuffer.uninitialized(1024, "f32")
    out = DeviceBuffer.uninitialized(1024, "f32")
    arguments = {
        "none": (),
        "three": (1000, x, out),
        "eight": (1000, 1, None, x, out, 1.0, 2.0, 3),
        "sixteen": 2 * (1000, 1, None, x, out, 1.0, 2.0, 3),
    }
    forms = [control()]
    for entry, values in arguments.items():
        forms += launches(module.get_function(entry), values, stream)
    forms += numpy_scalars(module.get_function("eight"), x, out, stream)
    forms += around(module, x, out, stream)
    rows = measure(name, forms, NullDriver(library))
    report(rows, versions={name: uhal.__version__}, device=device.name)


def launches(function: uhal.Function, values: tuple[object, ...], stream: Stream) -> list[Form]:
    """The three forms of one launch."""
    listed, names = spelled(values)
    names |= {"launch": launch, "k": function, "stream": stream}
    args = f"({listed}{',' if len(values) == 1 else ''})"
    arrived = as_seen(function.name, values)
    statements = {
        "launch, keywords": f"launch(k, grid=(8,), block=(256,), args={args}, stream=stream)",
        "launch, positions": f"launch(k, (8,), (256,), {args}, 0, stream)",
        "subscripted": f"k[8, 256, 0, stream]({listed})",
    }
    forms = [
        launch_form(name, loop(statement, **names), arrived)
        for name, statement in statements.items()
    ]
    bound = loop(f"bound({listed})", bound=function[8, 256, 0, stream], **names)
    return [*forms, launch_form("bound", bound, arrived)]


def numpy_scalars(
    function: uhal.Function, x: DeviceBuffer, out: DeviceBuffer, stream: Stream
) -> list[Form]:
    uint64, float32 = np.uint64, np.float32
    values = (uint64(1000), uint64(1), None, x, out, float32(1), float32(2), np.uint32(3))
    listed, names = spelled(values)
    statement = f"launch(k, grid=(8,), block=(256,), args=({listed}), stream=stream)"
    run = loop(statement, launch=launch, k=function, stream=stream, **names)
    return [launch_form("launch, numpy scalars", run, as_seen(function.name, values))]


def as_seen(entry: str, values: tuple[object, ...]) -> list[tuple[int, int]]:
    """Sizes and bits of the parameters as a driver reads them."""
    seen = []
    for size, value in zip(kernels.sizes(entry), values, strict=True):
        if isinstance(value, DeviceBuffer):
            bits = int(value.as_device_ptr())
        elif isinstance(value, (float, np.floating)):
            bits = int(np.float32(value).view(np.uint32))
        else:
            bits = 0 if value is None else int(value)  # type: ignore[call-overload]
        seen.append((size, bits))
    return seen


def around(module: Module, x: DeviceBuffer, out: DeviceBuffer, stream: Stream) -> list[Form]:
    """What a program does between launches."""
    page = np.zeros(1024, np.float32)
    event = Event()
    allocate = loop('uninitialized(1024, "f32")', uninitialized=DeviceBuffer.uninitialized)
    copy_in = loop("x.copy_from(page, stream=stream)", x=x, page=page, stream=stream)
    record = loop("event.record(stream)", event=event, stream=stream)
    get_function = loop('module.get_function("three")', module=module)
    return [
        Form("DeviceBuffer, pooled", "alloc+free", allocate),
        Form("copy_from", "copy 4 KiB", copy_in, expected={"copies": 1, "copied_bytes": 4096}),
        Form("get_function", "get_function", get_function),
        Form("Stream.synchronize", "sync", calls(stream.synchronize)),
        Form("Event.record", "record", record, expected={"records": 1}),
    ]


if __name__ == "__main__":
    main(sys.argv[1])
