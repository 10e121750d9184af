"""A tensor as memory: buffer, layout and dtype; views of it, and its way to and from the host.

`DeviceTensor` adds operations. A view shares its tensor's buffer and copies nothing; where no
view is possible, the device copies.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from types import EllipsisType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from ubridge.core.layout import Layout, Shape
from ubridge.core.operand_checks import whole_number
from ubridge.core.promotion import storage_of
from ubridge.definitions.elementwise import COPY
from ubridge.device.executor import DeviceExecutor, Executor
from ubridge.device.tensor_data import TensorData, make
from ubridge.ops.engine import MOVED_AS, bits_of, plan_copy, run
from ubridge.ops.remembering import read_number, remembered, remembered_view
from ubridge.ops.results import require_size
from uhal import DeviceBuffer, DType, as_dtype
from uhal.device import DeviceLike
from uhal.dtypes import ALL, DTypeLike, bool_, u8
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.frameworks import dlpack_of, strided_dlpack
from uhal.interop import StreamLike

Tensor = TypeVar("Tensor", bound="StridedTensor")
"""A class of tensors: results have the class of the operands."""
Index = int | slice | EllipsisType | None


def _plan_of_bits(x: Any) -> Any:
    """Plan a copy; types that kernels cannot copy are viewed as another type of that size."""
    return None if x._dtype.name in MOVED_AS else plan_copy(x)


def bytes_of_booleans(array: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """Return 1 for each true element, else 0: views of other arrays may hold other bytes."""
    return np.asarray(array.view(np.uint8) != 0).view(np.uint8)


def _require_booleans(buffer: DeviceBuffer, layout: Layout) -> None:
    """Refuse u8 elements other than 0 and 1: kernels compute with the bytes of booleans."""
    if layout.size == 0:
        return
    span = buffer[layout.start_offset : layout.extent].to_numpy()
    highest = as_strided(span, layout.shape, layout.strides).max()
    if highest > 1:
        raise ArgumentValueError(
            f"dtype: expected booleans of the bytes 0 and 1, got the byte {highest}. Compare the "
            "bytes instead: DeviceTensor(buffer.view('u8'), layout) != 0."
        )


_INTEGER_CODES = "".join(one.code for one in ALL if one.kind in ("int", "uint"))
"""`DType.code` of the integer types."""
_DLPACK_HOST = (1, 0)
"""DLPack's device of memory of the host."""


class StridedTensor(TensorData):
    """A tensor without operations: the base of `DeviceTensor`."""

    __slots__ = ()

    def __init__(
        self, buffer: DeviceBuffer, layout: Layout | None = None, dtype: DTypeLike | None = None
    ) -> None:
        """Describe a buffer, whose memory the tensor shares and keeps alive.

        By default the tensor has one axis of all elements. `dtype` may be bool over u8. Raises
        `ArgumentValueError` when the layout reaches past the buffer, and for booleans with bytes
        other than 0 and 1. The call reads booleans, and so waits for them.
        """
        if not isinstance(buffer, DeviceBuffer):
            raise ArgumentTypeError(
                f"buffer: expected a DeviceBuffer, got {type(buffer).__name__}; "
                "ubridge.asarray takes arrays"
            )
        if layout is not None and not isinstance(layout, Layout):
            raise ArgumentTypeError(
                f"layout: expected a Layout, got {type(layout).__name__}. Write "
                "ubridge.DeviceTensor(buffer).reshape(shape) for another shape."
            )
        self._layout = Layout.contiguous(buffer.size) if layout is None else layout
        self._dtype = buffer.dtype if dtype is None else as_dtype(dtype)
        if buffer.dtype is not storage_of(self._dtype):
            if buffer.dtype is not bool_ or self._dtype is not bool_:
                raise ArgumentTypeError(
                    f"dtype: expected the buffer's, {buffer.dtype}, got {self._dtype}"
                )
            buffer = buffer.view(u8)
        require_size(COPY, "buffer", buffer, self._layout.extent)
        self._buffer = buffer
        self._executor = DeviceExecutor.of(buffer.device)
        if self._dtype is bool_:
            _require_booleans(buffer, self._layout)

    def _made(self: Tensor, buffer: DeviceBuffer, layout: Layout, dtype: DType) -> Tensor:
        """A tensor of the same kind on the same device; nothing is checked."""
        return make(type(self), buffer, layout, dtype, self._executor)

    def _described_by(self: Tensor, executor: Executor) -> Tensor:
        """The same tensor for another executor of its device."""
        tensor = self._made(self._buffer, self._layout, self._dtype)
        tensor._executor = executor
        return tensor

    def _viewed(self: Tensor, layout: Layout) -> Tensor:
        return self._made(self._buffer, layout, self._dtype)

    # -- facts -----------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """The lengths of the axes."""
        return self._layout.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._layout.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._layout.size

    @property
    def nbytes(self) -> int:
        """Bytes the elements take, not counting gaps between them."""
        return self._layout.size * self._dtype.itemsize

    @property
    def layout(self) -> Layout:
        """Layout of the elements in `buffer`."""
        return self._layout

    @property
    def buffer(self) -> DeviceBuffer:
        """The memory, shared with every view."""
        return self._buffer

    @property
    def is_contiguous(self) -> bool:
        """True when the elements lie in row-major order without gaps."""
        return self._layout.is_contiguous

    def __len__(self) -> int:
        if not self._layout.shape:
            raise TypeError("len() of unsized object")
        return self._layout.shape[0]

    # -- views -----------------------------------------------------------------------------------

    @remembered_view
    def narrow(self: Tensor, axis: int, start: int, length: int) -> Tensor:
        """Return the view of `length` elements of an axis, from `start`."""
        start = whole_number("narrow, start", start)
        length = whole_number("narrow, length", length)
        return self._viewed(self._layout.narrow(axis, start, length))

    @remembered_view
    def transpose(self: Tensor, *axes: int | Sequence[int]) -> Tensor:
        """Return the view with the axes in another order.

        The default is the opposite order.
        """
        is_one = len(axes) == 1 and not hasattr(axes[0], "__index__")
        given = axes[0] if is_one else axes
        if not given:
            return self._viewed(self._layout.reversed)
        return self._viewed(self._layout.permute(given))  # type: ignore[arg-type]

    @remembered_view
    def permute(self: Tensor, *axes: int | Sequence[int]) -> Tensor:
        """Return the view whose axis i is axis `axes[i]` of this one."""
        return self.transpose(*axes)

    @remembered_view
    def swapaxes(self: Tensor, first: int, second: int) -> Tensor:
        """Return the view with two axes exchanged."""
        return self._viewed(self._layout.transpose(first, second))

    @property
    @remembered_view
    def T(self: Tensor) -> Tensor:  # numpy's name
        """The view with the axes in the opposite order."""
        return self._viewed(self._layout.reversed)

    @property
    @remembered_view
    def mT(self: Tensor) -> Tensor:  # numpy's name
        """The view with the last two axes exchanged."""
        return self.swapaxes(-2, -1)

    @remembered_view
    def broadcast_to(self: Tensor, shape: int | Iterable[int]) -> Tensor:
        """Return the view of another shape by numpy's rules."""
        return self._viewed(self._layout.broadcast_to(shape))

    @remembered_view
    def expand_dims(self: Tensor, axis: int) -> Tensor:
        """Return the view with one more axis, of length 1, before `axis`."""
        return self._viewed(self._layout.expanded(axis))

    @remembered_view
    def squeeze(self: Tensor, axis: int | None = None) -> Tensor:
        """Return the view without axes of one element.

        It drops one axis, or all of them.
        """
        return self._viewed(self._layout.squeezed(axis))

    @remembered_view
    def reshape(self: Tensor, *shape: int | Iterable[int]) -> Tensor:
        """Return the elements in another shape, in the same order.

        It is a view if possible.

        One length may be -1.
        """
        wanted: Any = shape[0] if len(shape) == 1 else shape
        layout = self._layout.reshape(wanted)
        return self.copy().reshape(wanted) if layout is None else self._viewed(layout)

    @remembered_view
    def ravel(self: Tensor) -> Tensor:
        """Return the elements along one axis; a view if there is one."""
        return self.reshape(-1)

    def flatten(self: Tensor) -> Tensor:
        """Return a copy of the elements along one axis."""
        return self.copy().reshape(-1)

    def __iter__(self: Tensor) -> Iterator[Tensor]:
        if not self._layout.shape:
            raise TypeError("iteration over a 0-d array")
        kind, buffer, dtype, executor = type(self), self._buffer, self._dtype, self._executor
        return (make(kind, buffer, row, dtype, executor) for row in self._layout._each(0))

    # -- copies ----------------------------------------------------------------------------------

    @remembered(_plan_of_bits)
    def copy(self: Tensor, *, stream: StreamLike | None = None) -> Tensor:
        """Return a contiguous copy."""
        made: Tensor = run(plan_copy(bits_of(self)), None, stream)
        if made._dtype is self._dtype:
            return made
        return self._made(made._buffer.view(self._dtype), made._layout, self._dtype)

    def contiguous(self: Tensor, *, stream: StreamLike | None = None) -> Tensor:
        """Return the tensor itself when it is contiguous, else a contiguous copy."""
        return self if self._layout.is_contiguous else self.copy(stream=stream)

    @classmethod
    def from_numpy(
        cls: type[Tensor],
        array: npt.ArrayLike,
        dtype: DTypeLike | None = None,
        *,
        device: DeviceLike | None = None,
        stream: StreamLike | None = None,
    ) -> Tensor:
        """Copy an array, or anything numpy makes one of, to a device."""
        given = np.asarray(array, None if dtype is None else as_dtype(dtype).dtype)
        stored = given
        if given.dtype.kind == "b":
            stored = bytes_of_booleans(given)
        buffer = DeviceBuffer.from_numpy(stored, device=device, stream=stream)
        layout = Layout.contiguous(given.shape)
        dtype = buffer.dtype if stored is given else bool_
        return make(cls, buffer, layout, dtype, DeviceExecutor.of(buffer.device))

    @classmethod
    def from_dlpack(
        cls: type[Tensor],
        source: Any,
        *,
        device: DeviceLike | None = None,
        stream: StreamLike | None = None,
    ) -> Tensor:
        """Take over another library's tensor without copying; both see each other's writes.

        It keeps its strides. Raises `BufferError` for a tensor that is not on `device` (by default
        the current device), and for negative strides. Booleans are read, as by `DeviceTensor(...)`.
        A tensor of ours is viewed, on every backend.
        """
        if isinstance(source, StridedTensor) and source._executor is DeviceExecutor.of(device):
            return make(cls, source._buffer, source._layout, source._dtype, source._executor)
        buffer, shape, strides = strided_dlpack(source, device, stream)
        return cls(buffer, Layout(Shape(shape), strides))

    def to_numpy(self, *, stream: StreamLike | None = None) -> npt.NDArray[Any]:
        """Return a copy of the elements as an array.

        Waits; with a `stream`, waits only for that stream's work. Raises `IndexError` if an id was
        out of bounds in earlier work that may affect the elements.
        """
        layout = self._layout
        if layout.is_contiguous:
            start, buffer = layout.start_offset, self._buffer
            source = buffer if layout.size == buffer.size else buffer[start : start + layout.size]
            flat = source.to_numpy(stream=stream)
            if buffer.dtype is not self._dtype:
                flat = flat.view(self._dtype.dtype)
            return flat.reshape(layout.shape)
        return self.copy(stream=stream).to_numpy(stream=stream)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("a DeviceTensor becomes an array by copying; copy=False cannot be had")
        return np.asarray(self.to_numpy(), dtype)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the memory with its strides; the capsule keeps it alive.

        The memory is copied only with `copy`, for a consumer on the host, and where DLPack has no
        type for the device, as with OpenCL. This copy is on the host. `stream` is the consumer's
        stream, as in `DeviceBuffer.__dlpack__`. This stream waits for every use that uhal knows of.
        """
        if copy is False and dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(
                f"the tensor is on DLPack device {self.__dlpack_device__()}, not {dl_device}: "
                "copy=False cannot be had"
            )
        if copy is not False and not self._is_shared_by_dlpack:
            if dl_device not in (None, _DLPACK_HOST):
                raise BufferError(f"the tensor can be copied to the host, not to {dl_device}")
            array = self.to_numpy()
            return array.__dlpack__(max_version=max_version) if max_version else array.__dlpack__()
        exported = self.copy() if copy else self
        layout = exported._layout
        buffer = exported._buffer[layout.start_offset : layout.extent]
        return dlpack_of(
            exported,
            buffer.view(self._dtype),
            tuple(layout.shape),
            tuple(layout.strides),
            copied=bool(copy),
            stream=stream,
            max_version=max_version,
            dl_device=dl_device,
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's (device type, device id): the host's where DLPack has none."""
        return self._buffer.__dlpack_device__() if self._is_shared_by_dlpack else _DLPACK_HOST

    @property
    def _is_shared_by_dlpack(self) -> bool:
        """Whether DLPack has a type for the device."""
        try:
            self._buffer.__dlpack_device__()
        except BufferError:
            return False
        return True

    @read_number()
    def item(self) -> Any:
        """Return the only element as a Python number; waits for it."""
        if self.size != 1:
            raise ArgumentValueError("can only convert an array of size 1 to a Python scalar")
        return self.to_numpy().item()

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers; waits for them."""
        return self.to_numpy().tolist() if self._layout.shape else self.item()

    @read_number(float)
    def __float__(self) -> float:
        return float(self.item())

    @read_number(int)
    def __int__(self) -> int:
        return int(self.item())

    @read_number(int, _INTEGER_CODES)
    def __index__(self) -> int:
        if self._dtype.kind not in ("int", "uint"):
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return operator.index(self.item())

    @read_number(bool)
    def __bool__(self) -> bool:
        if self.size != 1:
            raise ArgumentValueError(
                "The truth value of an array with more than one element is ambiguous"
                if self.size
                else "The truth value of an empty array is ambiguous"
            )
        return bool(self.item())


def indexed(layout: Layout, index: Index | tuple[Index, ...]) -> Layout:
    """Return the view `x[index]` by numpy's basic rules; `IndexError` for anything else."""
    parts = index if isinstance(index, tuple) else (index,)
    taken = sum(1 for part in parts if part is not None and part is not Ellipsis)
    ellipses = sum(1 for part in parts if part is Ellipsis)
    if ellipses > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if taken > layout.rank:
        raise IndexError(
            f"too many indices for array: array is {layout.rank}-dimensional, but {taken} were "
            "indexed"
        )
    axis = 0
    for part in parts:
        if part is Ellipsis:
            # `axis` already counts the axes left of the ellipsis and the new axes.
            axis += layout.rank - axis - _axes_after(parts)
        elif part is None:
            layout = layout.expanded(axis)
            axis += 1
        elif isinstance(part, slice):
            layout = layout.sliced(axis, part)
            axis += 1
        else:
            layout = layout.selected(axis, _index(part))
    return layout


def _axes_after(parts: Sequence[Index]) -> int:
    """Number of tensor axes that the parts behind an ellipsis index."""
    behind = parts[next(at for at, part in enumerate(parts) if part is Ellipsis) + 1 :]
    return sum(1 for part in behind if part is not None)


def _index(part: Any) -> int:
    is_array = isinstance(part, (StridedTensor, np.ndarray)) and part.ndim > 0
    if is_array or isinstance(part, (bool, np.bool_)) or not hasattr(part, "__index__"):
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), None (`None`), and arrays of ids or "
            f"booleans are valid indices, got {type(part).__name__}"
        )
    return operator.index(part)
