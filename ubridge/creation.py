"""Tensors from nothing, from the host, and from other tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from math import prod
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ubridge.core.fits import require
from ubridge.core.layout import Layout, checked_int
from ubridge.core.operand_checks import element_of, require_number, whole_number
from ubridge.core.promotion import storage_of
from ubridge.definitions.calls import named
from ubridge.device.executor import DeviceExecutor
from ubridge.device.host import HOST
from ubridge.device.tensor_data import make
from ubridge.ops import writing
from ubridge.ops.choices import plan_where
from ubridge.ops.elementwise import astype, converted
from ubridge.ops.engine import MOVED_AS, Value, bits_of, run
from ubridge.ops.remembering import remembered
from ubridge.ops.results import require_tensors
from ubridge.repeated_creation import (
    KEPT_BYTES,
    copied,
    like_of,
    of_array,
    of_number,
    of_number_like,
    of_ones,
    of_zeros,
    repeated,
    undefined,
)
from ubridge.tensor import DeviceTensor
from uhal import DeviceBuffer
from uhal.device import DeviceLike, as_device
from uhal.dtypes import DTypeLike, f32
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
)
from uhal.frameworks import Creation
from uhal.interop import StreamLike


@repeated(undefined)
def empty(
    shape: int | Iterable[int],
    dtype: DTypeLike = f32,
    *,
    device: DeviceLike | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Make an uninitialised tensor, f32 by default, on the current device."""
    layout = Layout.contiguous(shape)
    element = element_of("empty", dtype)
    executor = DeviceExecutor.of(device)
    buffer = executor.allocate(layout.size, storage_of(element), stream)
    return make(DeviceTensor, buffer, layout, element, executor)


@repeated(of_zeros)
def zeros(
    shape: int | Iterable[int],
    dtype: DTypeLike = f32,
    *,
    device: DeviceLike | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Make a tensor of zeros, f32 by default, on the current device."""
    layout = Layout.contiguous(shape)
    element = element_of("zeros", dtype)
    executor = DeviceExecutor.of(device)
    if executor.is_recorded:
        # Fill by a kernel, so that each run of a recorded graph fills the memory again.
        return full(shape, 0, dtype, device=device, stream=stream)
    buffer = DeviceBuffer.zeros(layout.size, storage_of(element), device=device, stream=stream)
    return make(DeviceTensor, buffer, layout, element, executor)


@repeated(of_ones)
def ones(
    shape: int | Iterable[int],
    dtype: DTypeLike = f32,
    *,
    device: DeviceLike | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Make a tensor of ones, f32 by default, on the current device."""
    return full(shape, 1, dtype, device=device, stream=stream)


@repeated(of_number)
def full(
    shape: int | Iterable[int],
    value: Any,
    dtype: DTypeLike = f32,
    *,
    device: DeviceLike | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Make a tensor of one number, on the current device.

    The dtype is f32 by default.
    """
    tensor = empty(shape, dtype, device=device, stream=stream)
    tensor.fill(value, stream=stream)
    return tensor


@repeated(like_of(undefined))
def empty_like(x: DeviceTensor, dtype: DTypeLike | None = None) -> DeviceTensor:
    """Make an uninitialised tensor of another's shape, device and dtype.

    The result is contiguous; `dtype` replaces the dtype.
    """
    require_tensors("empty_like", x)
    return empty(x.shape, x.dtype if dtype is None else dtype, device=x.device)


@repeated(like_of(of_zeros))
def zeros_like(x: DeviceTensor, dtype: DTypeLike | None = None) -> DeviceTensor:
    """Make a tensor of zeros in another's shape and dtype.

    The result is on the other's device; `dtype` replaces the dtype.
    """
    require_tensors("zeros_like", x)
    return zeros(x.shape, x.dtype if dtype is None else dtype, device=x.device)


@repeated(like_of(of_ones))
def ones_like(x: DeviceTensor, dtype: DTypeLike | None = None) -> DeviceTensor:
    """Make a tensor of ones in another's shape and dtype.

    The result is on the other's device; `dtype` replaces the dtype.
    """
    require_tensors("ones_like", x)
    return ones(x.shape, x.dtype if dtype is None else dtype, device=x.device)


@repeated(of_number_like)
def full_like(x: DeviceTensor, value: Any, dtype: DTypeLike | None = None) -> DeviceTensor:
    """Make a tensor of one number in another's shape and dtype.

    The result is on the other's device; `dtype` replaces the dtype.
    """
    require_tensors("full_like", x)
    return full(x.shape, value, x.dtype if dtype is None else dtype, device=x.device)


@repeated(of_array, of_arrays=True)
def asarray(
    values: Any,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Return a tensor unchanged, or array-like data as a tensor.

    The data is anything that numpy can convert to an array. Floats outside numpy arrays become f32,
    this module's default; numpy arrays keep their dtype. Raises `InvalidHandleError` for a tensor
    on another device than `device`.
    """
    if isinstance(values, DeviceTensor):
        if device is not None and values.device != as_device(device):
            raise InvalidHandleError(
                f"asarray: expected a tensor on {device!r}, got one on {values.device!r}; copy it "
                "through the host: ubridge.asarray(tensor.to_numpy(), device=...)"
            )
        return values if dtype is None else converted(values, dtype, stream=stream)
    array = _on_host(values, None if dtype is None else element_of("asarray", dtype).dtype)
    is_numpys = isinstance(values, (np.ndarray, np.generic)) or hasattr(values, "__dlpack__")
    if dtype is None and not is_numpys and array.dtype == np.float64:
        array = array.astype(np.float32)
    return DeviceTensor.from_numpy(array, device=device, stream=stream)


@repeated(of_array, of_arrays=True)
def array(
    values: Any,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Copy numbers, lists, arrays or a tensor to a new tensor.

    Dtypes are chosen as in `asarray`. A tensor stays on its device unless `device` is given; a copy
    to another device goes through the host.
    """
    if not isinstance(values, DeviceTensor):
        return asarray(values, dtype, device=device, stream=stream)
    if device is not None and values.device != as_device(device):
        return DeviceTensor.from_numpy(
            converted(values, values.dtype if dtype is None else dtype).to_numpy(),
            device=device,
            stream=stream,
        )
    return astype(values, values.dtype if dtype is None else dtype, stream=stream)


def _on_host(values: Any, dtype: np.dtype[Any] | None) -> npt.NDArray[Any]:
    """Return array-like data as an array; DLPack covers dtypes that numpy lacks."""
    try:
        array = np.asarray(values, dtype)
    except (RuntimeError, TypeError) as error:
        # torch's tensors raise RuntimeError if they have gradients or pending negation.
        if not hasattr(values, "__dlpack__"):
            raise ArgumentTypeError(f"asarray: {error}") from None
        try:
            found = DeviceTensor.from_dlpack(values, device=HOST).to_numpy()
        except (BufferError, DeviceError) as refused:
            raise ArgumentTypeError(
                f"asarray: expected an array on the host, got {type(values).__name__}: {refused}. "
                "Use ubridge.from_dlpack for memory of a device."
            ) from None
        return found if dtype is None else found.astype(dtype)
    except (OverflowError, ValueError) as error:
        raise ArgumentValueError(f"asarray: {error}") from None
    if array.dtype.kind in "OSU":
        kinds = sorted({type(one).__name__ for one in np.ravel(np.asarray(values, object))})
        raise ArgumentTypeError(f"asarray: expected numbers, got {' and '.join(kinds)}")
    return array


@repeated(of_array, of_arrays=True)
def from_numpy(
    array: npt.ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Copy an array to a device, with its own dtype by default."""
    return DeviceTensor.from_numpy(array, dtype, device=device, stream=stream)


@named
def from_dlpack(
    source: Any, *, device: DeviceLike | None = None, stream: StreamLike | None = None
) -> DeviceTensor:
    """Take over another library's contiguous tensor without copying."""
    return DeviceTensor.from_dlpack(source, device=device, stream=stream)


def _range(
    start: float, stop: float | None = None, step: float = 1, dtype: DTypeLike | None = None
) -> npt.NDArray[Any]:
    if stop is None:
        start, stop = 0, start
    if isinstance(step, (int, float)) and step == 0:
        raise ArgumentValueError("arange, step: expected a number other than 0, got 0")
    whole = all(isinstance(one, SupportsIndex) for one in (start, stop, step))
    element = element_of("arange", ("i64" if whole else "f32") if dtype is None else dtype)
    try:
        if whole:
            start, stop, step = map(operator.index, (start, stop, step))  # type: ignore[arg-type]
        return np.arange(start, stop, step).astype(element.dtype, copy=False)
    except TypeError as error:
        raise ArgumentTypeError(f"arange: expected numbers: {error}") from None
    except (MemoryError, ValueError, ZeroDivisionError) as error:
        raise ArgumentValueError(f"arange: {error}") from None


def _of_range(
    executor: DeviceExecutor,
    start: float,
    stop: float | None = None,
    step: float = 1,
    dtype: DTypeLike | None = None,
) -> Creation | None:
    first, last = (0, start) if stop is None else (start, stop)
    is_short = abs(last - first) <= KEPT_BYTES * abs(step)
    return copied(executor, _range(start, stop, step, dtype)) if is_short else None


@repeated(_of_range)
def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Make the numbers from `start` up to `stop`, like numpy.

    The dtype is i64 if all arguments are ints, else f32.
    """
    values = _range(start, stop, step, dtype)
    return DeviceTensor.from_numpy(values, device=device, stream=stream)


def _distances(
    start: float, stop: float, num: int, dtype: DTypeLike = f32, endpoint: bool = True
) -> npt.NDArray[Any]:
    count, element = whole_number("linspace, num", num), element_of("linspace", dtype).dtype
    first, last = _number("linspace, start", start), _number("linspace, stop", stop)
    return _made_by_numpy(
        "linspace",
        lambda: np.linspace(float(first), float(last), count, endpoint=endpoint).astype(element),
    )


def _of_distances(
    executor: DeviceExecutor, start: float, stop: float, num: int, dtype: DTypeLike = f32
) -> Creation | None:
    is_short = type(num) is int and num <= KEPT_BYTES
    return copied(executor, _distances(start, stop, num, dtype)) if is_short else None


@repeated(_of_distances)
def linspace(
    start: float,
    stop: float,
    num: int,
    dtype: DTypeLike = f32,
    *,
    endpoint: bool = True,
    device: DeviceLike | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Make `num` numbers at equal distances, from `start` to `stop`.

    Without `endpoint` the last number lies one step before `stop`. The numbers are computed in
    f64.
    """
    values = _distances(start, stop, num, dtype, endpoint)
    return DeviceTensor.from_numpy(values, device=device, stream=stream)


def _sides(rows: int, columns: int | None, k: int) -> tuple[int, int, int]:
    """The rows and columns of a matrix, and the diagonal within it."""
    height = whole_number("eye, rows", rows)
    width = height if columns is None else whole_number("eye, columns", columns)
    return height, width, max(-height, min(checked_int("eye, k", k), width))


def _of_diagonal(
    executor: DeviceExecutor,
    rows: int,
    columns: int | None = None,
    k: int = 0,
    dtype: DTypeLike = f32,
) -> Creation | None:
    height, width, diagonal = _sides(rows, columns, k)
    element = element_of("eye", dtype).dtype
    if height * width > KEPT_BYTES:
        return None
    return copied(executor, np.eye(height, width, diagonal).astype(element))


@repeated(_of_diagonal)
def eye(
    rows: int,
    columns: int | None = None,
    k: int = 0,
    dtype: DTypeLike = f32,
    *,
    device: DeviceLike | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Make a matrix of zeros with ones on a diagonal.

    The matrix is square by default. `k` above 0 is a diagonal above the main one, below 0 one below
    it.
    """
    height, width, diagonal = _sides(rows, columns, k)
    found = zeros((height, width), dtype, device=device, stream=stream)
    left, above = max(diagonal, 0), max(-diagonal, 0)
    count = min(height - above, width - left)
    if count > 0:
        line = Layout((count,), (width + 1,), above * width + left)
        writing.fill(found._viewed(line), 1, stream=stream)
    return found


def _number(name: str, given: Any) -> float:
    try:
        return operator.index(given)
    except TypeError:
        require_number(name, given)
        return float(given)


def _made_by_numpy(name: str, make: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    try:
        with np.errstate(all="ignore"):
            return make()
    except (MemoryError, OverflowError, ValueError) as error:
        raise ArgumentValueError(f"{name}: {error}") from None


def _plan_triangle(name: str, x: Value, k: int, is_lower: bool) -> Value:
    """Plan a copy that keeps the elements on one side of a diagonal.

    The lower side includes the diagonal.
    """
    require_tensors(name, x)
    require(x.ndim >= 2, f"{name}: expected at least two axes, got shape {x.shape}")
    rows, columns = x.shape[-2:]
    diagonal = max(-rows, min(checked_int(f"{name}, k", k), columns))
    lower = np.tri(rows, columns, diagonal, np.bool_)
    kept = DeviceTensor.from_numpy(lower == is_lower, device=x.device)
    return plan_where(kept, x, False)


def _small(plan: Callable[..., Value]) -> Callable[..., Value]:
    """The plan for small matrices: the device keeps its mask for repeated calls."""

    def planned(x: Value, k: int = 0) -> Value:
        if not isinstance(x, DeviceTensor) or x._dtype.name in MOVED_AS:
            return None
        return plan(x, k) if prod(x.shape[-2:]) <= KEPT_BYTES else None

    return planned


def _triangle(
    plan: Callable[..., Value], x: Any, k: int, stream: StreamLike | None
) -> DeviceTensor:
    bits = bits_of(x) if isinstance(x, DeviceTensor) else x
    found: DeviceTensor = run(plan(bits, k), None, stream)
    return found if bits is x else found._made(found._buffer.view(x.dtype), found.layout, x.dtype)


def _plan_tril(x: Value, k: int = 0) -> Value:
    return _plan_triangle("tril", x, k, True)


def _plan_triu(x: Value, k: int = 0) -> Value:
    return _plan_triangle("triu", x, checked_int("triu, k", k) - 1, False)


@remembered(_small(_plan_tril))
def tril(x: DeviceTensor, k: int = 0, *, stream: StreamLike | None = None) -> DeviceTensor:
    """Return a copy with zeros above a diagonal.

    The last two axes are matrices. `k` above 0 is a diagonal above the main one, below 0 one below
    it.
    """
    return _triangle(_plan_tril, x, k, stream)


@remembered(_small(_plan_triu))
def triu(x: DeviceTensor, k: int = 0, *, stream: StreamLike | None = None) -> DeviceTensor:
    """Return a copy with zeros below a diagonal.

    The last two axes are matrices. `k` above 0 is a diagonal above the main one, below 0 one below
    it.
    """
    return _triangle(_plan_triu, x, k, stream)
