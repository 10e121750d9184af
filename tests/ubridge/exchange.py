"""Trials of import and export of other libraries' tensors: each gives a cell of the table.

An outcome is a word of `docs/guide/interop.md`: shared (a write on either side is seen on the
other), read-only (the same, and writes are refused), copied, or refused.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import ubridge as ub
from uhal.errors import DeviceError

Outcome = str
REFUSALS = (BufferError, DeviceError, TypeError, ValueError, RuntimeError, NotImplementedError)


class Numpy:
    """numpy; classes of other libraries override the differences."""

    module = "numpy"

    def make(self, values: np.ndarray[Any, Any]) -> Any:
        """Return an array of the library with these values."""
        return values

    def take(self, tensor: ub.DeviceTensor) -> Any:
        """Return the library's array over a tensor."""
        return np.from_dlpack(tensor)

    def values(self, array: Any) -> np.ndarray[Any, Any]:
        """Return the current values of an array."""
        return np.array(array)

    def bf16(self) -> Any:
        """Return three ones of bf16."""
        import ml_dtypes

        return np.ones(3, ml_dtypes.bfloat16)

    def frozen(self) -> Any:
        """Return a read-only array of three ones."""
        made = np.ones(3, np.float32)
        made.flags.writeable = False
        return made


class Torch(Numpy):
    module = "torch"

    def make(self, values: np.ndarray[Any, Any]) -> Any:
        return import_module("torch").tensor(values.tolist(), dtype=self.dtype(values.dtype))

    def dtype(self, dtype: Any) -> Any:
        return getattr(import_module("torch"), "bool" if dtype.kind == "b" else dtype.name)

    def take(self, tensor: ub.DeviceTensor) -> Any:
        return import_module("torch").from_dlpack(tensor)

    def values(self, array: Any) -> np.ndarray[Any, Any]:
        return np.array(array.clone().float().numpy())

    def bf16(self) -> Any:
        torch = import_module("torch")
        return torch.ones(3, dtype=torch.bfloat16)

    def frozen(self) -> Any:
        raise NotImplementedError  # torch has no such tensors


class Jax(Numpy):
    module = "jax"

    def make(self, values: np.ndarray[Any, Any]) -> Any:
        return import_module("jax.numpy").asarray(values)

    def take(self, tensor: ub.DeviceTensor) -> Any:
        return import_module("jax.numpy").from_dlpack(tensor)

    def bf16(self) -> Any:
        return import_module("jax.numpy").ones(3, "bfloat16")

    def frozen(self) -> Any:
        return self.make(np.ones(3, np.float32))


class Arrow(Numpy):
    module = "pyarrow"

    def make(self, values: np.ndarray[Any, Any]) -> Any:
        return import_module("pyarrow").array(values)

    def take(self, tensor: ub.DeviceTensor) -> Any:
        return import_module("pyarrow").array(np.from_dlpack(tensor))

    def values(self, array: Any) -> np.ndarray[Any, Any]:
        return np.array(array.to_numpy(zero_copy_only=False))

    def bf16(self) -> Any:
        raise NotImplementedError  # Arrow has no such type

    def frozen(self) -> Any:
        return self.make(np.ones(3, np.float32))


class Numba(Numpy):
    """Numba's host arrays are numpy's; a compiled function reads and writes them."""

    module = "numba"

    def values(self, array: Any) -> np.ndarray[Any, Any]:
        @import_module("numba").njit  # type: ignore[untyped-decorator]
        def copied(x: Any) -> Any:
            return x.copy()

        return np.array(copied(array))


LIBRARIES: dict[str, Numpy] = {
    "numpy": Numpy(),
    "torch": Torch(),
    "JAX": Jax(),
    "pyarrow": Arrow(),
    "numba": Numba(),
}


# -- outcomes --------------------------------------------------------------------------------------


def came_in(source: Any, library: Numpy, expected: np.ndarray[Any, Any]) -> Outcome:
    """Return whether a tensor over an array shares its memory; check its elements."""
    expected = expected.copy()
    tensor = ub.from_dlpack(source)
    assert tensor.shape == expected.shape
    assert (tensor.astype("f32").to_numpy() == expected.astype(np.float32)).all()
    if tensor.buffer.readonly:
        return "read-only"
    return written(tensor, lambda: library.values(source), expected)


def went_out(tensor: ub.DeviceTensor, library: Numpy) -> Outcome:
    """Return whether the library's array over a tensor shares its memory."""
    before = tensor.astype("f32").to_numpy()
    array = library.take(tensor)
    found = library.values(array)
    assert found.shape == before.shape and (found.astype(np.float32) == before).all()
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        return "read-only"
    return written(tensor, lambda: library.values(array), before)


def written(tensor: ub.DeviceTensor, seen: Callable[[], Any], before: Any) -> Outcome:
    """Return "shared" if the other side sees a write to the tensor, else "copied"."""
    if not tensor.size:
        return "shared"
    tensor.fill(0 if before.astype(bool).all() else 1)
    tensor.device.synchronize()
    return "copied" if (seen().astype(np.float32) == before.astype(np.float32)).all() else "shared"


def outcome(way: Callable[[], Outcome]) -> Outcome:
    """Return the outcome of `way`; an error of a documented kind is a refusal."""
    try:
        return way()
    except REFUSALS:
        return "refused"


def both(library: Numpy, values: np.ndarray[Any, Any], dtype: str | None = None) -> Outcome:
    """Import and export the same elements; return both outcomes."""
    inward = outcome(lambda: came_in(library.make(values), library, values))
    outward = outcome(lambda: went_out(ub.asarray(values), library))
    return f"{inward}, {outward}"


def strides(library: Numpy) -> Outcome:
    """Try a transposed matrix of six different numbers."""
    values = np.arange(1, 7, dtype=np.float32).reshape(2, 3)

    def inward() -> Outcome:
        array = library.make(values).T
        return came_in(array, library, values.T)

    return f"{outcome(inward)}, {outcome(lambda: went_out(ub.asarray(values).T, library))}"


def bf16(library: Numpy) -> Outcome:
    ones = np.ones(3, np.float32)
    inward = outcome(lambda: came_in(library.bf16(), library, ones))
    outward = outcome(lambda: went_out(ub.ones(3, "bf16"), library))
    return f"{inward}, {outward}"


def read_only(library: Numpy) -> Outcome:
    def inward() -> Outcome:
        try:
            source = library.frozen()
        except NotImplementedError:
            return "none"
        return came_in(source, library, np.ones(3))

    frozen = np.ones(3, np.float32)
    frozen.flags.writeable = False
    return f"{outcome(inward)}, {outcome(lambda: went_out(ub.from_dlpack(frozen), library))}"


def lifetimes(library: Numpy) -> Outcome:
    """Return whether memory outlives its first owner, on either side."""
    values = np.arange(1, 5000, dtype=np.float32)
    source = library.make(values.copy())
    tensor = ub.from_dlpack(source)
    ours = ub.asarray(values)
    array = library.take(ours)
    del source, ours
    gc.collect()
    for _ in range(20):
        ub.zeros(4999) + 1
        np.zeros(4999, np.float32)
    right = (tensor.to_numpy() == values).all() and (library.values(array) == values).all()
    return "kept" if right else "lost"


F32, BOOLS = np.arange(1, 4, dtype=np.float32), np.array([True, True, True])
ASPECTS: dict[str, Callable[[Numpy], Outcome]] = {
    "in": lambda library: outcome(lambda: came_in(library.make(F32.copy()), library, F32)),
    "out": lambda library: outcome(lambda: went_out(ub.asarray(F32), library)),
    "read-only": read_only,
    "zero size": lambda library: both(library, np.zeros(0, np.float32)),
    "strides": strides,
    "bool": lambda library: both(library, BOOLS.copy()),
    "bf16": bf16,
    "lifetimes": lifetimes,
}
