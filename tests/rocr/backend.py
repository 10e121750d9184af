"""Programs that use uhal on AMD's own runtime. The device notes kernels and executes none."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import ubridge
from tests.rocr.code_objects import Stranger
from uhal import (
    Api,
    Device,
    DeviceBuffer,
    Event,
    Function,
    HostBuffer,
    Module,
    Stream,
    diagnostics,
    registry,
)
from uhal.doctor import examine
from uhal.errors import NotFoundError

_model = ctypes.CDLL(os.environ.get("HSA_MODEL_LIB"))
_KERNARG_BYTES = 1024
_NOTED = 4096
PATIENCE = 20


class _Noted(ctypes.Structure):
    """`noted_dispatch` of device_model.c."""

    _fields_ = (
        ("packet", ctypes.c_ubyte * 64),
        ("descriptor", ctypes.c_ubyte * 64),
        ("kernarg", ctypes.c_ubyte * _KERNARG_BYTES),
        ("complaint", ctypes.c_char * 120),
    )


@dataclass(frozen=True)
class Dispatch:
    """A kernel dispatch as the device received it."""

    dimensions: int
    group: tuple[int, int, int]
    grid: tuple[int, int, int]
    private_bytes: int
    group_bytes: int
    kernarg: bytes
    complaint: str


def dispatches(since: int = 0) -> list[Dispatch]:
    """Work enqueued on the device so far."""
    _model.model_dispatches.restype = ctypes.c_size_t
    noted = (_Noted * _NOTED)()
    count = _model.model_dispatches(noted, ctypes.c_size_t(since), ctypes.c_size_t(_NOTED))
    return [_dispatch(noted[index]) for index in range(count - since)]


def _dispatch(noted: Any) -> Dispatch:
    packet = bytes(noted.packet)

    def number(at: int, size: int) -> int:
        return int.from_bytes(packet[at : at + size], "little")

    kernarg_bytes = int.from_bytes(bytes(noted.descriptor)[8:12], "little")
    return Dispatch(
        dimensions=number(2, 2),
        group=(number(4, 2), number(6, 2), number(8, 2)),
        grid=(number(12, 4), number(16, 4), number(20, 4)),
        private_bytes=number(24, 4),
        group_bytes=number(28, 4),
        kernarg=bytes(noted.kernarg)[:kernarg_bytes],
        complaint=noted.complaint.decode(),
    )


# -- opening ---------------------------------------------------------------------------------------


def device() -> dict[str, Any]:
    """uhal's description of the device."""
    record = registry.record("rocm")
    Api.quick_init(backend="rocm")
    opened = registry.backend("rocm")
    free, total = opened.memory_info(0)
    limits = opened.device_limits(0)
    assert 0 < free <= total
    return {
        "verdict": record.verdict,
        "reason": record.reason,
        "devices": [one.description for one in record.devices],
        "warp": limits.warp_size,
        "processors": limits.processors,
        "shared": limits.max_shared_bytes_per_block,
        "threads": limits.max_threads_per_block,
        "total": total,
        "attributes": dict(opened.device_attributes(0)),
    }


def doctor() -> dict[str, Any]:
    """Return the doctor's report, which says that this device does not compute."""
    return examine().to_json()


def probe_and_open() -> None:
    """Probe and open repeatedly: the runtime is initialised once."""
    backend = registry._backend_class("rocm")
    assert backend.probe().verdict == "ok"
    opened = backend.open()
    assert backend.probe().verdict == "ok"
    assert backend.open().device_count() == opened.device_count() == 1


def fork() -> list[str]:
    """Return the errors in the child of a process that used devices, or opened a device."""
    told = []
    for step in (lambda: registry.record("rocm"), lambda: Api.quick_init(backend="rocm")):
        step()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                Device(0, "rocm")
                said = "opened"
            except BaseException as error:
                said = str(error)
            os.write(writing, said.encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            told.append(pipe.read())
        assert os.waitpid(child, 0)[1] == 0
    return told


# -- streams, events, memory -----------------------------------------------------------------------


def streams() -> dict[str, int]:
    """Streams order each other by events, call back in order, and leave nothing behind."""
    Api.quick_init(backend="rocm")
    before = dict(diagnostics()["native"]["rocm"])
    with Stream() as first, Stream() as second:
        events = [Event() for _ in range(20)]
        for event in events:
            event.record(first)
            second.wait_event(event)
            first.wait_event(second.record_event())
        first.synchronize()
        second.synchronize()
        assert all(event.query() for event in events) and first.query() and second.query()
        assert events[-1].elapsed_since(events[0]) >= 0
        called: list[int] = []
        done = threading.Event()
        for number in range(10):
            first.add_callback(called.append, number)
        first.add_callback(done.set)
        assert done.wait(PATIENCE)
        assert called == list(range(10))
        for event in events:
            event.close()
    return {kind: n - before[kind] for kind, n in diagnostics()["native"]["rocm"].items() if n}


def memory(seed: int) -> None:
    """Check device and host buffers at addresses that the runtime attributes to the device."""
    Api.quick_init(backend="rocm")
    rng = np.random.default_rng(seed)
    opened = registry.backend("rocm")
    for size in (1, 4096, *(int(one) for one in rng.integers(1, 1 << 22, 8))):
        with DeviceBuffer.uninitialized(size, "u1") as buffer:
            address = int(buffer.as_device_ptr())
            assert opened.pointer_device(address) == opened.pointer_device(address + size - 1) == 0
        with HostBuffer(size, "u1", mapped=True) as host:
            host.array[:] = values = rng.integers(0, 256, size, "u1")
            assert host.array.tobytes() == values.tobytes()
            assert int(host.device_ptr) == host.address


def copies(sizes: Sequence[int], seed: int) -> int:
    """Copy to the device and back, with pageable and pinned memory; return the unknown packets.

    Copies within the device are kernels of the runtime, and the model executes no kernels.
    """
    Api.quick_init(backend="rocm")
    rng = np.random.default_rng(seed)
    stream = Stream()
    for size in sizes:
        values = rng.integers(0, 256, size, "u1")
        with DeviceBuffer.from_numpy(values) as buffer:
            assert buffer.to_numpy().tobytes() == values.tobytes(), size
            with HostBuffer(size, "u1") as up, HostBuffer(size, "u1") as down:
                up.array[:] = values = values[::-1].copy()
                down.array[:] = 0
                buffer.copy_from_async(up, stream)
                buffer.copy_to_async(down, stream)
                stream.synchronize()
                assert down.array.tobytes() == values.tobytes(), size
    return int(_model.model_unknown_packets())


# -- modules and launches --------------------------------------------------------------------------


def modules(names: Sequence[str]) -> int:
    """Load uhal's modules; return the number of kernels in them."""
    Api.quick_init(backend="rocm")
    return sum(
        module.get_function(kernel) is not None
        for module in map(ubridge.load_module, names)
        for kernel in module.kernels
    )


def missing(path: str, name: str) -> list[str]:
    """Return the errors for a missing kernel and for a missing variable."""
    Api.quick_init(backend="rocm")
    module = Module.from_file(path)
    told = []
    for look_up in (module.get_function, module.get_global):
        try:
            look_up(name)
        except NotFoundError as error:
            told.append(str(error))
    return told


def launches(paths: Sequence[str], seed: int) -> int:
    """Check each argument's offset in the layout that other readers see; return their number."""
    Api.quick_init(backend="rocm")
    rng = np.random.default_rng(seed)
    return sum(_launch(path, rng) for path in paths)


def _launch(path: str, rng: np.random.Generator) -> int:
    with open(path, "rb") as file:
        metadata = Stranger(file.read()).kernels
    module = Module.from_file(path)
    saxpy = module.get_function("saxpy", "u64 n, f32 a, const f32* x, f32* y")
    count = 0
    for stream in (Stream(), Stream()):
        x, y = (DeviceBuffer.uninitialized(1000, "f4") for _ in range(2))
        for _ in range(20):
            count += 1
            n, a = int(rng.integers(0, 2**63)), np.float32(rng.standard_normal())
            grid = tuple(int(one) for one in rng.integers(1, 9, 3))
            block = (int(rng.integers(1, 129)), int(rng.integers(1, 3)), int(rng.integers(1, 4)))
            shared = int(rng.integers(0, 1024))
            first = len(dispatches())
            saxpy[grid, block, shared, stream](n, a, x, y)
            stream.synchronize()
            (seen,) = dispatches(first)
            assert seen.complaint == ""
            assert (seen.dimensions, seen.group) == (3, block)
            assert seen.grid == tuple(g * b for g, b in zip(grid, block, strict=True))
            facts = metadata["saxpy"]
            assert seen.group_bytes == facts[".group_segment_fixed_size"] + shared
            assert len(seen.kernarg) == facts[".kernarg_segment_size"]
            explicit = [n, a.view("u4").item(), *(int(one.as_device_ptr()) for one in (x, y))]
            check_arguments(seen, facts[".args"], explicit, grid, block, shared)
    return count


def check_arguments(
    seen: Dispatch,
    arguments: Sequence[dict[str, Any]],
    explicit: Sequence[int],
    grid: Sequence[int],
    block: Sequence[int],
    shared: int,
) -> None:
    """Check explicit arguments in order, and hidden arguments by kind as LLVM's guide defines
    them."""
    hidden: dict[str, int] = {"hidden_grid_dims": 3, "hidden_dynamic_lds_size": shared}
    for axis, letter in enumerate("xyz"):
        hidden[f"hidden_block_count_{letter}"] = grid[axis]
        hidden[f"hidden_group_size_{letter}"] = block[axis]
        hidden[f"hidden_remainder_{letter}"] = 0
        hidden[f"hidden_global_offset_{letter}"] = 0
    given = iter(explicit)
    for one in arguments:
        value = seen.kernarg[one[".offset"] : one[".offset"] + one[".size"]]
        kind = one[".value_kind"]
        if not kind.startswith("hidden_"):
            assert int.from_bytes(value, "little") == next(given), kind
        elif kind in hidden:
            assert int.from_bytes(value, "little") == hidden[kind], kind


def graph(path: str, seed: int) -> int:
    """A captured plan writes its recorded packets at every replay."""
    Api.quick_init(backend="rocm")
    rng = np.random.default_rng(seed)
    module = Module.from_file(path)
    saxpy = module.get_function("saxpy", "u64 n, f32 a, const f32* x, f32* y")
    x, y = (DeviceBuffer.uninitialized(1000, "f4") for _ in range(2))
    numbers = [int(one) for one in rng.integers(0, 2**63, 30)]
    with Stream() as stream:
        with stream.capture() as plan:
            moved = plan.slot("n", numbers[0])
            saxpy[1, 64, 0, stream](moved, 1.0, x, y)
            for n in numbers[1:]:
                saxpy[1, 64, 0, stream](n, 1.0, x, y)
        assert dispatches() == []
        replays = 4
        for replay in range(replays):
            first = len(dispatches())
            numbers[0] = replay
            plan.replay(n=replay)
            stream.synchronize()
            seen = dispatches(first)
            assert [one.complaint for one in seen] == [""] * len(numbers)
            assert [int.from_bytes(one.kernarg[:8], "little") for one in seen] == numbers
        plan.close()
    return replays * len(numbers)


def every_first_kernel(names: Sequence[str]) -> int:
    """Launch a kernel of each module with suitable arguments; return how many."""
    Api.quick_init(backend="rocm")
    memory = DeviceBuffer.uninitialized(1 << 16, "u1")
    stream = Stream.default()
    count = 0
    for name in names:
        module = ubridge.load_module(name)
        function = module.get_function(next(iter(module.kernels)))
        first = len(dispatches())
        launch_with(function, memory, stream)
        stream.synchronize()
        (seen,) = dispatches(first)
        assert seen.complaint == "", (name, function, seen.complaint)
        count += 1
    return count


def launch_with(function: Function, memory: DeviceBuffer, stream: Stream) -> None:
    make: dict[str, Callable[[Any], object]] = {
        "pointer": lambda one: memory.view(one.dtype) if one.dtype is not None else memory,
        "scalar": lambda one: one.dtype.dtype.type(1),
    }
    function[1, 32, 0, stream](*(make[one.kind](one) for one in function.signature))
