"""Random tensors that are the same on every backend: numbers by their position, from a seed.

The generator is Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
1, 2, 3", SC 2011), which turns a 128-bit counter and a 64-bit key into four 32-bit words. The key
is the seed and the counter the position; there is no other state. A kernel makes the numbers on the
device; for GCUs, which lack this kernel, the host's kernel makes them.

A counter gives four numbers of `rand`, from the upper bits of its words. In f64 a counter gives two
numbers; the first word of each pair is the upper half. For `randn` a counter gives two numbers. A
counter that is used in part is not used again.
"""

from __future__ import annotations

import operator
import os
import secrets
import threading
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ubridge.core.fits import require
from ubridge.core.layout import Layout
from ubridge.core.operand_checks import element_of, whole_number
from ubridge.core.operation import Op
from ubridge.definitions.calls import named
from ubridge.definitions.memory import RAND, RANDN
from ubridge.device.executor import DeviceExecutor
from ubridge.device.host import HOST
from ubridge.device.tensor_data import make
from ubridge.ops.engine import ask, run
from ubridge.tensor import DeviceTensor
from uhal import DType
from uhal.device import DeviceLike
from uhal.dtypes import DTypeLike, f32, f64
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.interop import StreamLike

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
"""PHILOX_M4x32_0 and _1 of the paper's Random123."""
_WEYL = (0x9E3779B9, 0xBB67AE85)
"""PHILOX_W32_0 and _1: added to the key in each round."""
_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_AT_A_TIME = 1 << 16
"""Counters whose words are computed at once: they stay in a cache of 4 MiB."""
_WORDS = 4


class Generator:
    """A source of random numbers: a seed and the next counter.

    Any thread may use it.

    Two generators with one seed give the same numbers for the same calls, on every device.
    """

    __slots__ = {
        "_lock": "",
        "_position": "",
        "_seed": "",
    }

    def __init__(self, seed: int | None = None, position: int = 0) -> None:
        """Begin at a counter; the operating system provides a seed if none is given.

        Raises `ArgumentValueError` unless 0 <= `seed` and `position` < 2**64.
        """
        self._seed = secrets.randbits(64) if seed is None else _word64("seed", seed)
        self._position = _word64("position", position)
        self._lock = threading.Lock()

    @property
    def seed(self) -> int:
        """The key of every number."""
        return self._seed

    @property
    def position(self) -> int:
        """The next counter; `Generator(seed, position)` goes on from here."""
        return self._position

    def skip(self, counters: int) -> int:
        """Reserve a number of counters, and return the first."""
        counters = whole_number("Generator.skip, counters", counters)
        with self._lock:
            start = self._position
            self._position = (start + counters) % 2**64
        return start

    def words(self, count: int) -> npt.NDArray[np.uint32]:
        """Return the next `count` words of 32 bits."""
        counters = -(-whole_number("Generator.words, count", count) // _WORDS)
        start = self.skip(counters)
        try:
            made = np.empty((counters, _WORDS), np.uint32)
        except (MemoryError, ValueError):
            raise ArgumentValueError(
                f"Generator.words, count: expected a count that fits in memory, got {count}"
            ) from None
        for first in range(0, counters, _AT_A_TIME):
            part = made[first : first + _AT_A_TIME]
            positions = np.arange(len(part), dtype=np.uint64)
            positions += np.uint64((start + first) % 2**64)
            zeros = np.zeros_like(positions)
            part[:] = philox((positions & _LOW, positions >> _HALF, zeros, zeros), self._seed)
        return made.reshape(-1)[:count]

    def __repr__(self) -> str:
        return f"Generator(seed={self._seed}, position={self._position})"

    def __reduce__(self) -> tuple[type[Generator], tuple[int, int]]:
        return type(self), (self._seed, self._position)


Seed: TypeAlias = int | Generator | None
"""Source of numbers: a generator, a seed for a new generator, or None for the process' own."""


def philox(counters: tuple[Any, Any, Any, Any], key: int) -> npt.NDArray[np.uint32]:
    """Return four random words per counter; counters are lists of u64 words, lowest first."""
    x0, x1, x2, x3 = (np.asarray(word, np.uint64) for word in counters)
    low, high = key & 0xFFFFFFFF, key >> 32
    for _ in range(_ROUNDS):
        first, second = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0 = (second >> _HALF) ^ x1 ^ np.uint64(low)
        x1 = second & _LOW
        x2 = (first >> _HALF) ^ x3 ^ np.uint64(high)
        x3 = first & _LOW
        low, high = (low + _WEYL[0]) & 0xFFFFFFFF, (high + _WEYL[1]) & 0xFFFFFFFF
    return np.stack((x0, x1, x2, x3), -1).astype(np.uint32)


@named
def rand(
    shape: int | Iterable[int] = (),
    dtype: DTypeLike = f32,
    *,
    seed: Seed = None,
    device: DeviceLike | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Make a tensor of uniform random numbers, 0 <= x < 1.

    The dtype is a float type, f32 by default.

    Each number is a multiple of 2 to the power -b; b is the mantissa's bits, 24 for f32. The same
    seed gives the same numbers on every device. In a trace they are drawn once, while tracing.
    """
    element = element_of(RAND.name, dtype)
    return _made(RAND, shape, element, 2 if element is f64 else 4, seed, device, stream)


@named
def randn(
    shape: int | Iterable[int] = (),
    dtype: DTypeLike = f32,
    *,
    seed: Seed = None,
    device: DeviceLike | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Make a tensor of normal numbers of mean 0 and variance 1.

    The dtype is a float type, f32 by default.

    The method is by Box and Muller ("A note on the generation of random normal deviates", 1958).
    Uniform numbers of 53 bits are transformed in f64 and rounded once. A number of f64 is within 8
    roundings of the exact value. The same seed gives the same numbers on every device whose
    divisions and square roots of f64 are rounded to the nearest. In a trace they are drawn once,
    while tracing.
    """
    return _made(RANDN, shape, element_of(RANDN.name, dtype), 2, seed, device, stream)


def _made(
    op: Op,
    shape: int | Iterable[int],
    dtype: DType,
    of_a_counter: int,
    seed: Seed,
    device: DeviceLike | None,
    stream: StreamLike | None,
) -> DeviceTensor:
    layout = Layout.contiguous(shape)
    executor = DeviceExecutor.of(device)
    if not executor.has(op):
        made = _made(op, shape, dtype, of_a_counter, seed, HOST, None)
        return DeviceTensor.from_numpy(made.to_numpy(), dtype, device=device, stream=stream)
    generator = _generator(op.name, seed)
    position = generator.skip(-(-layout.size // of_a_counter))
    like = make(DeviceTensor, None, layout, dtype, executor)
    line = Layout.contiguous(layout.size)
    return run(ask(op, (), dtype, layout, (generator.seed, position), line, like), None, stream)


def _generator(name: str, seed: Seed) -> Generator:
    if seed is None:
        return _own
    return seed if isinstance(seed, Generator) else Generator(_word64(f"{name}, seed", seed))


def _word64(name: str, value: object) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentTypeError(f"{name}: expected an int, got {type(value).__name__}")
    number = operator.index(value)
    require(0 <= number < 2**64, f"{name}: expected 0…2**64-1, got {number}")
    return number


_own = Generator()


def _start_afresh() -> None:
    """Runs in a forked child, which would otherwise repeat its parent's numbers."""
    global _own
    _own = Generator()


os.register_at_fork(after_in_child=_start_afresh)
