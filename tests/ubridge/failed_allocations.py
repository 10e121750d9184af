"""The program of test_failed_allocations.py: refuses allocations of an operation one at a time.

Run it with refusals.cpp preloaded: KIND FOLDER SEED MOST OPERATION... KIND is `native`, for
allocations of this project's compiled code, or `python`, for allocations of the interpreter. At
most MOST allocations are refused, at random. After each refusal the operation must succeed on the
same device.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import itertools
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ubridge as ub
import uhal
from ubridge.models import Model
from uhal import Api, Device, DeviceBuffer, Event, HostBuffer, Module, Stream
from uhal.errors import DeviceError

try:
    memory = importlib.import_module("_testcapi")
except ImportError:  # this Python lacks its test modules
    memory = None  # type: ignore[assignment]


HOOK = ctypes.CDLL(None)
"""Symbols of the process, which include the preloaded library's functions."""


class World:
    """A device with operands, a module and a tiny model."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.device = Api.quick_init(0, "host")
        rng = np.random.default_rng(seed)
        self.values = rng.standard_normal((96, 128)).astype("f4")
        self.x = ub.asarray(self.values)
        self.image = Path(ub.__file__).parent / "kernels/host"
        self.weight = ub.QuantizedWeight.from_numpy(self.values, "q8_0")
        self.ids = ub.asarray(rng.integers(0, 96, 50).astype("u4"))
        self.loaded = Model.load(folder / "model", context=32)
        session = self.loaded.session()
        generation = session.generate([1, 2, 3], max_tokens=3, ignore_end=True)
        generation.read()
        session.save(folder / "kept.safetensors")
        self.chosen = generation.tokens
        self.device.synchronize()

    # -- operations: each computes anew and checks what it computed --------------------------------

    def buffers(self) -> None:
        buffer = DeviceBuffer.from_numpy(self.values)
        pinned = HostBuffer(self.values.size, "f32")
        buffer.copy_to(pinned)
        equal(pinned.array, self.values.ravel())
        equal(buffer.to_numpy(), self.values.ravel())

    def streams(self) -> None:
        with Stream() as first, Stream() as second, Event() as event:
            event.record(first)
            second.wait_event(event)
            second.synchronize()

    def device_again(self) -> None:
        device = Device(1, "host")
        equal(ub.asarray(self.values, device=device).to_numpy(), self.values)
        device.close()

    def module(self) -> None:
        # A module of one kernel: a module allocates memory for each.
        path = next(self.image.glob("*/activation.so"))
        with Module.from_file(path) as module:
            module.get_function("activationf32")

    def launches(self) -> None:
        with Stream() as stream:
            total = self.x
            for _ in range(8):
                total = ub.add(total, self.x, stream=stream)
            equal(total.to_numpy(stream=stream), self.values * 9, 1e-4)

    def queued_launches(self) -> None:
        with Stream() as stream:
            big = ub.ones((1 << 20,), stream=stream)
            for _ in range(40):
                big = ub.add(big, 1, stream=stream)
            equal(big.to_numpy(stream=stream), np.full(1 << 20, 41, "f4"))

    def capture(self) -> None:
        out = ub.zeros((96, 128))
        with Stream() as stream:
            with stream.capture() as plan:
                for _ in range(20):
                    ub.add(self.x, self.x, out=out, stream=stream)
            plan.replay()
            equal(out.to_numpy(stream=stream), self.values * 2)
            plan.close()

    def profile(self) -> None:
        with uhal.profile(measure_copy=False) as profile:
            ub.add(self.x, self.x).to_numpy()
        assert profile.table()

    def product(self) -> None:
        equal((self.x @ self.x.T).to_numpy(), self.values @ self.values.T, 1e-3)

    def product_of_halves(self) -> None:
        x = self.x.astype("bf16")
        equal((x @ x.T).astype("f4").to_numpy(), self.values @ self.values.T, 2)

    def product_by_a_vector(self) -> None:
        x = self.x.astype("f16")
        equal((x @ x[0]).astype("f4").to_numpy(), self.values @ self.values[0], 2)
        equal((x.T @ x[:, 0]).astype("f4").to_numpy(), self.values.T @ self.values[:, 0], 2)

    def quantized_product(self) -> None:
        got = ub.quantized_matmul(self.x, self.weight, activations="q8").to_numpy()
        equal(got, self.values @ self.values.T, 2)

    def attention(self) -> None:
        q = self.x.reshape(1, 4, 24, 128)
        got = ub.attention(q, q, q).to_numpy()
        a = self.values.reshape(4, 24, 128).astype("f8")
        weights = np.exp(a @ a.transpose(0, 2, 1) / np.sqrt(128))
        equal(got[0], weights / weights.sum(-1, keepdims=True) @ a, 1e-2)

    def rows(self) -> None:
        equal(ub.softmax(self.x).sum(1).to_numpy(), np.ones(96), 1e-4)
        equal(ub.sort(self.x).to_numpy(), np.sort(self.values))
        equal(ub.take(self.x, self.ids).to_numpy(), self.values[self.ids.to_numpy()])

    def graph(self) -> None:
        with ub.trace() as graph:
            result = ub.exp(self.x * 0.5) + 1
        graph.save(self.folder / "graph.json")
        ub.execute_graph(graph)
        equal(result.to_numpy(), np.exp(self.values * 0.5) + 1, 1e-3)

    def graph_plan(self) -> None:
        with ub.trace() as graph:
            result = ub.exp(self.x * 0.5) + 1
        with Stream() as stream, graph.instantiate(stream) as plan:
            plan.replay()
            stream.synchronize()
            equal(result.to_numpy(), np.exp(self.values * 0.5) + 1, 1e-3)

    def files(self) -> None:
        path = self.folder / "weights.safetensors"
        ub.save(path, {"x": self.x})
        equal(ub.load(path)["x"].to_numpy(), self.values)

    def load_model(self) -> None:
        assert len(Model.load(self.folder / "model").tokenizer.encode("a b")) > 0

    def token(self) -> None:
        generation = self.loaded.generate([1, 2, 3], max_tokens=3, ignore_end=True)
        generation.read()
        equal(generation.tokens, self.chosen)

    def save_session(self) -> None:
        session = self.loaded.session()
        session.generate([1, 2, 3], max_tokens=2, ignore_end=True).read()
        session.save(self.folder / "session.safetensors")

    def restore_session(self) -> None:
        session = self.loaded.session()
        session.restore(self.folder / "kept.safetensors")
        generation = session.generate([1, 2, 3], max_tokens=3, ignore_end=True)
        generation.read()
        equal(generation.tokens, self.chosen)


OPERATIONS = [
    World.buffers,
    World.streams,
    World.device_again,
    World.module,
    World.launches,
    World.queued_launches,
    World.capture,
    World.profile,
    World.product,
    World.product_of_halves,
    World.product_by_a_vector,
    World.quantized_product,
    World.attention,
    World.rows,
    World.graph,
    World.graph_plan,
    World.files,
    World.load_model,
    World.token,
    World.save_session,
    World.restore_session,
]


CHECKS: list[tuple[Any, Any, float]] = []


def equal(got: Any, expected: Any, tolerance: float = 0) -> None:
    """Note a comparison for later, without refusals, because numpy itself fails without memory."""
    CHECKS.append((got, expected, tolerance))


def checked(operation: Callable[[], None]) -> None:
    """Run an operation, then compare its results."""
    CHECKS.clear()
    operation()
    compare()


def compare() -> None:
    for got, expected, tolerance in CHECKS:
        np.testing.assert_allclose(got, expected, tolerance, tolerance)
    CHECKS.clear()


MANY = 1 << 20
"""More allocations than any operation has."""
BEYOND_SMALL = 257
"""The first integer that the interpreter does not keep."""


# -- refusing ------------------------------------------------------------------------------------


def refuse(kind: str, number: int) -> None:
    """Refuse the allocation with this number, counted from now. 0 stops; a huge number counts."""
    if kind == "native":
        HOOK.refuse_allocation(ctypes.c_long(number))
    elif number:
        memory.set_nomemory(number - 1, number)
    else:
        memory.remove_mem_hooks()


def refusing(operation: Callable[[], None], kind: str, number: int) -> Exception | None:
    """Run the operation with one refused allocation; return its exception."""
    CHECKS.clear()
    gc.collect()
    gc.disable()
    refuse(kind, number)
    try:
        operation()
    except Exception as error:
        return error
    finally:
        refuse(kind, 0)
        gc.enable()
    compare()
    return None


def allocations_of(operation: Callable[[], None], kind: str) -> int:
    """Return the number of allocations of an operation."""
    if kind == "native":
        HOOK.refuse_allocation(ctypes.c_long(sys.maxsize))
        operation()
        return int(HOOK.allocations())
    refuse(kind, MANY)
    left, numbers = BEYOND_SMALL, itertools.count(BEYOND_SMALL)
    try:
        operation()
        # Each integer beyond the small ones is an allocation of the interpreter.
        while True:
            left = next(numbers)
    except MemoryError:
        pass
    finally:
        refuse(kind, 0)
    return MANY - (left - BEYOND_SMALL)


def is_lack(error: Exception, kind: str) -> bool:
    """Return whether the error reports a lack of memory; CPython and numpy use other errors,
    too."""
    if isinstance(error, MemoryError):
        return True
    return kind == "python" and not isinstance(error, DeviceError | AssertionError)


def told(error: Exception) -> str:
    return "".join(traceback.format_exception(error)[-6:])


def try_operation(
    world: World, operation: Callable[[World], None], kind: str, seed: int, most: int
) -> int:
    """Refuse allocations of one operation; return the number of wrong answers."""
    name, bound = operation.__name__, partial(operation, world)
    rng = np.random.default_rng(seed)
    for _ in range(2):
        checked(bound)
    numbers = rng.permutation(allocations_of(bound, kind))[:most] + 1
    wrong = 0
    for number in sorted(map(int, numbers)):
        error = refusing(bound, kind, number)
        if error is not None and not is_lack(error, kind):
            wrong += 1
            print(f"{name}, {kind} allocation {number}: {told(error)}")
        del error
        try:
            checked(bound)
        except Exception as later:
            print(f"{name}, after {kind} allocation {number}: {told(later)}")
            return wrong + 1
    print(f"{name}: {len(numbers)} refusals of {kind} allocations, {wrong} wrong")
    return wrong


def main(kind: str, folder: str, seed: str, most: str, *names: str) -> None:
    world = World(Path(folder), int(seed))
    wrong = 0
    for operation in OPERATIONS:
        if operation.__name__ in names:
            wrong += try_operation(world, operation, kind, int(seed), int(most))
    assert not wrong


if __name__ == "__main__":
    main(*sys.argv[1:])
