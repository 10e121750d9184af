"""`DeviceTensor`: a tensor on a device, with numpy's interface.

Operations enqueue and return at once. Methods that give numbers to the host (`to_numpy`, `item`,
printing, `bool`) wait.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ubridge.core.operation import Op
from ubridge.core.promotion import checked_number
from ubridge.definitions.calls import named
from ubridge.definitions.elementwise import (
    ABS,
    ADD,
    BINARY,
    BITWISE_AND,
    BITWISE_LEFT_SHIFT,
    BITWISE_OR,
    BITWISE_RIGHT_SHIFT,
    BITWISE_XOR,
    COMPARISON,
    DIVIDE,
    EQUAL,
    FLOOR_DIVIDE,
    GREATER,
    GREATER_EQUAL,
    LESS,
    LESS_EQUAL,
    MULTIPLY,
    NEGATIVE,
    NOT_EQUAL,
    POW,
    REMAINDER,
    SQUARE,
    SUBTRACT,
)
from ubridge.definitions.table import OPS
from ubridge.habits import OF_TENSOR
from ubridge.ops import choices, elementwise, logic, products, reductions, statistics, writing
from ubridge.ops.engine import Value
from ubridge.ops.indexing import assign, backwards, getitem, is_basic, selected
from ubridge.ops.printing import text_of
from ubridge.ops.refusals import OURS, formatted, of_numpy, pickled, refuse_ufunc
from ubridge.ops.remembering import remembered, remembered_view
from ubridge.ops.selection import flip
from ubridge.ops.strided import StridedTensor, indexed
from uhal.device import DeviceLike, as_device
from uhal.dtypes import i64
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.habits import refuse_names
from uhal.interop import StreamLike


def _comparison(op: Op) -> Callable[[Any, Any], Any]:
    """The method behind `==` and `!=`. As in Python, an object that is no number is unequal."""

    def plan(x: Value, other: Any) -> Value | None:
        return elementwise.plan_binary(op, x, other) if _is_comparable(other) else None

    def method(self: DeviceTensor, other: Any) -> Any:
        return elementwise.binary(op, self, other) if _is_comparable(other) else NotImplemented

    method.__name__ = op.name
    return remembered(plan)(method)


def _is_comparable(other: Any) -> bool:
    """Return whether `other` is a number, or an object that has elements."""
    kind = type(other)
    if issubclass(kind, (StridedTensor, int, float, np.generic, np.ndarray, list, tuple)):
        return True
    return hasattr(kind, "__dlpack__") or hasattr(kind, "__array__")


_Method: TypeAlias = Callable[..., "DeviceTensor"]
_prefix: Callable[[Op], _Method] = elementwise.unary_function
_operator: Callable[..., _Method] = elementwise.binary_function


def _operators(op: Op) -> tuple[_Method, _Method, _Method]:
    """The methods behind `x + y`, behind `number + x`, and behind `x += y`."""
    function = _operator(op)

    def in_place(self: DeviceTensor, other: Any) -> DeviceTensor:
        return function(self, other, out=self)

    return function, _operator(op, number_first=True), in_place


def _powers() -> tuple[_Method, _Method, _Method]:
    """The methods of powers. In place, the first power of floats changes nothing."""
    _, reflected, raised = _operators(POW)
    squared = _prefix(SQUARE)

    def in_place(self: DeviceTensor, exponent: Any) -> DeviceTensor:
        if self._dtype.kind == "float" and type(exponent) in (int, float):
            if exponent == 1 and not getattr(self._buffer, "closed", False):
                return self
            if exponent == 2:
                return squared(self, out=self)
        return raised(self, exponent)

    return elementwise.power, reflected, in_place


class DeviceTensor(StridedTensor):
    """A tensor on a device: a buffer, a layout and a dtype.

    Made by `ubridge.asarray`, `zeros`, `arange` and similar functions, or over a `DeviceBuffer`.
    Views share the buffer and keep it alive. Any thread may use it; operators enqueue on the
    device's default stream, functions take `stream=`.
    """

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        # An operator with a numpy scalar on the left also ends up here.
        left = inputs[0][()] if isinstance(inputs[0], np.ndarray) else inputs[0]
        op = OPS.get(OURS.get(ufunc.__name__, ufunc.__name__))
        if (
            op is not None
            and op.family in (BINARY, COMPARISON)
            and isinstance(left, np.generic)
            and method == "__call__"
            and not options
        ):
            return elementwise.binary(op, left, inputs[1])
        return refuse_ufunc(ufunc, method, inputs)

    def __array_function__(
        self, function: Any, types: Any, given: tuple[Any, ...], settings: dict[str, Any]
    ) -> Any:
        return of_numpy(type(self), function, given, settings)

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """Return the namespace of the array API standard, `ubridge.array_api`.

        Raises `ArgumentValueError` for a version after 2024.12.
        """
        namespace = import_module(f"{__name__.partition('.')[0]}.array_api")
        if api_version is not None and api_version > namespace.__array_api_version__:
            raise ArgumentValueError(
                f"api_version: expected {namespace.__array_api_version__} or earlier, got "
                f"{api_version!r}"
            )
        return namespace

    @named
    def to_device(self, device: DeviceLike, /, *, stream: StreamLike | None = None) -> DeviceTensor:
        """Return the tensor on a device.

        The result is a copy, or the tensor itself if its device is the same.
        """
        if as_device(device) == self.device:
            return self
        return type(self).from_numpy(self.to_numpy(), device=device, stream=stream)

    # -- elements --------------------------------------------------------------------------------

    astype = elementwise.astype

    def fill(self, value: Any, *, stream: StreamLike | None = None) -> None:
        """Set every element to a number."""
        writing.fill(self, value, stream=stream)

    def copy_from(self, source: DeviceTensor, *, stream: StreamLike | None = None) -> None:
        """Overwrite the elements with a tensor that broadcasts to this shape.

        The elements of `source` are converted to this tensor's dtype. Overlapping views copy as if
        through a temporary.
        """
        writing.copy_from(self, source, stream=stream)

    @remembered_view
    def __getitem__(self, index: Any) -> DeviceTensor:
        """Return the view or the elements at an index, by numpy's rules.

        Ints, slices, `...` and `None` give a view. Ids, masks and negative steps give a new tensor.
        A mask is read, so the call waits.
        """
        if isinstance(index, DeviceTensor) and index._dtype is i64 and index._layout.shape:
            return getitem(self, index)
        if is_basic(index):
            return self._viewed(indexed(self._layout, index))
        turned = backwards(self._layout, index)
        if turned is None:
            return selected(self, index)
        ahead, axes = turned
        return flip(self[ahead], axes)

    @partial(named, name="setitem")
    def __setitem__(self, index: Any, value: Any) -> None:
        if not is_basic(index):
            turned = backwards(self._layout, index)
            if turned is None:
                assign(self, index, value)
                return
            index, axes = turned
            if getattr(value, "ndim", 0) or isinstance(value, (list, tuple)):
                given = value if isinstance(value, DeviceTensor) else self._beside(value)
                value = flip(given.broadcast_to(indexed(self._layout, index).shape), axes)
        view = self[index]
        if isinstance(value, DeviceTensor):
            view.copy_from(value)
        elif not hasattr(value, "shape") and not isinstance(value, (list, tuple)):
            view.fill(value)
        else:
            view.copy_from(self._beside(value))

    def _beside(self, values: Any) -> DeviceTensor:
        return type(self).from_numpy(_elements(values, self), device=self.device)

    # -- reductions ------------------------------------------------------------------------------

    sum = reductions.sum
    mean = reductions.mean
    min = reductions.min
    max = reductions.max
    argmin = reductions.argmin
    argmax = reductions.argmax

    std = statistics.std
    var = statistics.var
    prod = statistics.prod
    any = statistics.any
    all = statistics.all
    cumsum = statistics.cumsum
    clip = choices.clip

    def __contains__(self, value: Any) -> bool:
        """Return whether some element equals the value; waits for it."""
        found = self == value
        return bool(found.any() if isinstance(found, DeviceTensor) else found)

    # -- operators -------------------------------------------------------------------------------

    __add__, __radd__, __iadd__ = _operators(ADD)
    __sub__, __rsub__, __isub__ = _operators(SUBTRACT)
    __mul__, __rmul__, __imul__ = _operators(MULTIPLY)
    __truediv__, __rtruediv__, __itruediv__ = _operators(DIVIDE)
    __mod__, __rmod__, __imod__ = _operators(REMAINDER)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _operators(FLOOR_DIVIDE)
    __pow__, __rpow__, __ipow__ = _powers()
    __matmul__ = products.matmul
    __neg__ = _prefix(NEGATIVE)
    __abs__ = _prefix(ABS)

    def __pos__(self) -> DeviceTensor:
        return self.copy()

    if TYPE_CHECKING:  # of a number or elements; None and texts give a bool, as in Python

        def __eq__(self, other: Any) -> DeviceTensor: ...  # type: ignore[override]
        def __ne__(self, other: Any) -> DeviceTensor: ...  # type: ignore[override]

    else:
        __eq__ = _comparison(EQUAL)
        __ne__ = _comparison(NOT_EQUAL)

    # Tensors are not hashable, since `==` returns a tensor, as in numpy.
    __hash__ = None  # type: ignore[assignment]

    __lt__ = _operator(LESS)
    __le__ = _operator(LESS_EQUAL)
    __gt__ = _operator(GREATER)
    __ge__ = _operator(GREATER_EQUAL)

    __and__, __rand__, __iand__ = _operators(BITWISE_AND)
    __or__, __ror__, __ior__ = _operators(BITWISE_OR)
    __xor__, __rxor__, __ixor__ = _operators(BITWISE_XOR)
    __lshift__, __rlshift__, __ilshift__ = _operators(BITWISE_LEFT_SHIFT)
    __rshift__, __rrshift__, __irshift__ = _operators(BITWISE_RIGHT_SHIFT)
    __invert__ = logic.bitwise_invert

    # -- text ------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        device = f"{self.device.backend}:{self.device.ordinal}"
        text = text_of(self, "DeviceTensor(")
        # As in numpy: brackets without elements do not show the axes.
        if self.buffer.closed or (not self.size and self.ndim != 1):
            text += f", shape={tuple(self.shape)}"
        return f"DeviceTensor({text}, dtype={self._dtype}, device={device!r})"

    def __str__(self) -> str:
        return text_of(self, "")

    def __format__(self, specification: str) -> str:
        return formatted(self, specification)

    # -- pickling --------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(self)


refuse_names(DeviceTensor, OF_TENSOR)


def _elements(values: Any, target: DeviceTensor) -> Any:
    """Return values of the host as an array; refuse ints outside the range of the target."""
    if hasattr(values, "dtype"):
        return values
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ArgumentValueError(f"setitem: expected numbers in one shape: {error}") from None
    if array.dtype.kind not in "biuf":
        raise ArgumentTypeError(f"setitem: expected numbers, got elements of {array.dtype}")
    if array.size and target._dtype.kind != "bool" and array.dtype.kind in "iu":
        for bound in (array.min(), array.max()):
            checked_number("setitem", target._dtype, int(bound))
    return array
