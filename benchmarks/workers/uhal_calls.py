"""uhal's own forms on any backend: `launch`, subscripted, bound, and the calls around a launch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import uhal
from benchmarks import kernels
from benchmarks.measuring import (
    Driver,
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
from benchmarks.workers.opened import HostCounts
from uhal import DeviceBuffer, Event, Function, LaunchSequence, Module, Stream, launch

IMAGES: dict[str, Callable[[], bytes]] = {
    "cuda": kernels.ptx,
    "rocm": kernels.hsaco,
    "tops": kernels.topsfb,
    "host": kernels.host,
    "opencl": kernels.spirv,
}
OPERATION = "op on 16 elements"
OPERATIONS: dict[str, dict[str, str]] = {
    "host": {
        "add": "ubridge.add(x, y)",
        "add, operator": "x + y",
        "multiply by a number": "x * 1.5",
        "exp": "ubridge.exp(x)",
        "where": "ubridge.where(marks, x, y)",
        "cast to f64": "x.astype('f64')",
        "sum": "x.sum()",
        "largest of rows": "x.max(-1)",
        "softmax": "ubridge.softmax(x)",
        "rms norm": "ubridge.rms_norm(x, row)",
        "take rows": "ubridge.take(x, ids)",
    },
    "cuda": {"add": "x + y", "matmul": "a @ b"},
}
"""Statements of a program on tensors so small that only the overhead counts."""
SHAPES = {"cuda": (8, 256), "rocm": (8, 256), "tops": (8, 4), "host": (1, 1), "opencl": (1, 1)}
"""Grid and block. One thread on CPUs, where the kernels really run."""


class Foreign:
    """Another library's memory, by the CUDA array interface."""

    def __init__(self, buffer: DeviceBuffer) -> None:
        self._buffer = buffer
        # Nothing is pending there.
        self._facts = {**buffer.__cuda_array_interface__, "stream": None}

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return self._facts

    def as_device_ptr(self) -> uhal.DevicePointer:
        return self._buffer.as_device_ptr()


class Opened:
    """A device with the kernels, a stream and two buffers."""

    def __init__(self, backend: str, library: str) -> None:
        self.backend = backend
        self.device = uhal.Api.quick_init(0, backend=backend)
        self.module = Module.from_bytes(IMAGES[backend]())
        self.stream = Stream()
        self.x = DeviceBuffer.uninitialized(1024, "f32")
        self.out = DeviceBuffer.uninitialized(1024, "f32")
        self.shape = SHAPES[backend]
        counts = backend in ("host", "opencl")
        self.driver: Driver = self._own_counts() if counts else NullDriver(library)

    def _own_counts(self) -> Driver:
        counts = self.module.get_global("counts", "u64")
        return HostCounts(int(counts.as_device_ptr()), self.stream.synchronize)

    def function(self, entry: str) -> Function:
        return self.module.get_function(entry, kernels.declaration(entry))


def main(library: str, backend: str, name: str = "uhal") -> None:
    pin()
    opened = Opened(backend, library)
    x, out = opened.x, opened.out
    eight = (1000, 1, None, x, out, 1.0, 2.0, 3)
    arguments = {"none": (), "three": (1000, x, out), "eight": eight, "sixteen": 2 * eight}
    forms = [control()]
    for entry, values in arguments.items():
        forms += launches(opened, entry, values)
    forms += other_arguments(opened)
    forms += around(opened)
    if backend in OPERATIONS:
        forms += operations(backend)
    rows = measure(name, forms, opened.driver)
    report(rows, versions={name: uhal.__version__}, device=opened.device.name)


def launches(opened: Opened, entry: str, values: tuple[object, ...]) -> Iterator[Form]:
    """The forms of one launch."""
    listed, names = spelled(values)
    grid, block = opened.shape
    function, stream = opened.function(entry), opened.stream
    names |= {"launch": launch, "k": function, "stream": stream}
    args = f"({listed}{',' if len(values) == 1 else ''})"
    arrived = as_seen(entry, values)
    statements = {
        "launch, keywords": f"launch(k, grid=({grid},), block=({block},), args={args}, "
        "stream=stream)",
        "launch, positions": f"launch(k, ({grid},), ({block},), {args}, 0, stream)",
        "subscripted": f"k[{grid}, {block}, 0, stream]({listed})",
    }
    for name, statement in statements.items():
        yield launch_form(name, loop(statement, **names), arrived)
    bound = loop(f"bound({listed})", bound=function[grid, block, 0, stream], **names)
    yield launch_form("bound", bound, arrived)


def other_arguments(opened: Opened) -> Iterator[Form]:
    """Launches with numpy scalars, or with other libraries' memory if available."""
    uint64, float32 = np.uint64, np.float32
    x, out = opened.x, opened.out
    scalars = (uint64(1000), uint64(1), None, x, out, float32(1), float32(2), np.uint32(3))
    yield keywords(opened, "launch, numpy scalars", "eight", scalars)
    if opened.backend == "cuda":
        foreign = (1000, Foreign(x), Foreign(out))
        yield keywords(opened, "launch, __cuda_array_interface__", "three", foreign)


def keywords(opened: Opened, name: str, entry: str, values: tuple[object, ...]) -> Form:
    """`launch` with keywords and these arguments."""
    listed, names = spelled(values)
    grid, block = opened.shape
    statement = f"launch(k, grid=({grid},), block=({block},), args=({listed}), stream=stream)"
    run = loop(statement, launch=launch, k=opened.function(entry), stream=opened.stream, **names)
    return launch_form(name, run, as_seen(entry, values))


def as_seen(entry: str, values: tuple[object, ...]) -> list[tuple[int, int]]:
    """Sizes and bits of the parameters as a driver reads them."""
    return [(size, _bits(value)) for size, value in zip(kernels.sizes(entry), values, strict=True)]


def _bits(value: Any) -> int:
    if isinstance(value, (float, np.floating)):
        return int(np.float32(value).view(np.uint32))
    if hasattr(value, "as_device_ptr"):
        return int(value.as_device_ptr())
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr())
    return 0 if value is None else int(value)


def around(opened: Opened) -> Iterator[Form]:
    """Calls that a program makes between launches."""
    page = np.zeros(1024, np.float32)
    event = Event()
    stream = opened.stream
    allocate = loop('uninitialized(1024, "f32")', uninitialized=DeviceBuffer.uninitialized)
    copy_in = loop("x.copy_from(page, stream=stream)", x=opened.x, page=page, stream=stream)
    record = loop("event.record(stream)", event=event, stream=stream)
    get_function = loop('module.get_function("three")', module=opened.module)
    # Not every driver sees each of these calls as one call: HSA's runtime only has packets, and the
    # host's kernels count only launches.
    seen = opened.backend in ("cuda", "tops")
    copied = {"copies": 1, "copied_bytes": 4096} if seen else {}
    yield Form("DeviceBuffer, pooled", "alloc+free", allocate)
    yield Form("copy_from", "copy 4 KiB", copy_in, expected=copied)
    yield Form("get_function", "get_function", get_function)
    yield Form("Stream.synchronize", "sync", calls(stream.synchronize))
    yield Form("Event.record", "record", record, expected={"records": 1} if seen else {})


def operations(backend: str) -> Iterator[Form]:
    """Operations on 16 elements, products of 16 x 16, and each compiled launch alone."""
    import ubridge

    rng = np.random.default_rng()
    x, y, a, b = (
        ubridge.asarray(rng.random(shape, np.float32)) for shape in 2 * [(4, 4)] + 2 * [(16, 16)]
    )
    ids = ubridge.asarray(np.arange(4))
    names = {"ubridge": ubridge, "x": x, "y": y, "a": a, "b": b, "row": x[0], "ids": ids}
    if backend == "host":
        names |= {"out": ubridge.empty_like(x), "marks": x > 0.5}
        yield Form("add, out=", OPERATION, loop("ubridge.add(x, y, out=out)", **names))
    for name, statement in OPERATIONS[backend].items():
        run = loop(statement, **names)
        yield Form(name, OPERATION, run)
        sequence, given = launched_by(run)
        listed, values = spelled(given)
        alone = loop(f"sequence(None, None, {listed})", sequence=sequence, **values)
        yield Form(f"{name}, launch alone", OPERATION, alone)


def launched_by(run: Callable[[int], object]) -> tuple[LaunchSequence, tuple[object, ...]]:
    """The one compiled launch of an operation, and its arguments."""
    reported: list[tuple[LaunchSequence, tuple[object, ...]]] = []
    uhal.set_recorder(lambda sequence, out, is_new, given: reported.append((sequence, given)))
    try:
        run(1)
    finally:
        uhal.set_recorder(None)
    (found,) = reported
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
