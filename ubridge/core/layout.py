"""Positions of a tensor's elements in its buffer: `Shape`, and `Layout` of strides and an offset.

Everything counts in elements. A layout is a value: methods return other layouts, and none touches
memory. Strides are never negative, because kernels read them as u64.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import prod

from uhal.errors import ArgumentTypeError, ArgumentValueError

_REMEMBERED_LAYOUTS = 4096


class Shape(tuple[int, ...]):
    """The lengths of a tensor's axes, outermost first.

    A tuple with methods for its strides.
    """

    __slots__ = ()

    def __new__(cls, lengths: int | Iterable[int] = ()) -> Shape:
        """Take an int or a sequence of ints of at least 0; `ArgumentValueError` for others."""
        if type(lengths) is Shape:
            return lengths
        checked = _lengths(lengths)
        if checked and min(checked) < 0:
            raise ArgumentValueError(f"negative dimensions are not allowed: {checked}")
        return super().__new__(cls, checked)

    @property
    def size(self) -> int:
        """The number of elements; 1 for a shape without axes."""
        return prod(self)

    def contiguous_strides(self) -> tuple[int, ...]:
        """Return the strides of row-major order without gaps."""
        strides = []
        stride = 1
        for length in reversed(self):
            strides.append(stride)
            stride *= length
        return tuple(reversed(strides))

    def is_contiguous(self, strides: Sequence[int]) -> bool:
        """Return whether `strides` are in row-major order without gaps.

        An axis of at most one element may have any stride, which is never used. Kernels test the
        same way.
        """
        expected = 1
        for length, stride in zip(reversed(self), reversed(strides), strict=True):
            if length > 1 and stride != expected:
                return False
            expected *= length
        return True

    def broadcast_with(self, *others: Shape) -> Shape:
        """Return the shape all broadcast to by numpy's rules; else `ArgumentValueError`."""
        rank = max(len(shape) for shape in (self, *others))
        lengths = [1] * rank
        for shape in (self, *others):
            for axis, length in enumerate(shape, rank - len(shape)):
                if lengths[axis] == 1:
                    lengths[axis] = length
                elif length not in (1, lengths[axis]):
                    listed = " ".join(str(tuple(one)) for one in (self, *others))
                    raise ArgumentValueError(
                        f"operands could not be broadcast together with shapes {listed}: axis "
                        f"{axis - rank} has lengths {lengths[axis]} and {length}, expected equal "
                        "ones or a 1"
                    )
        return Shape(lengths)

    __repr__ = tuple.__repr__

    def __getnewargs__(self) -> tuple[tuple[int, ...]]:
        return (tuple(self),)


class Layout:
    """Shape, strides and offset of a tensor, in elements.

    Immutable, compared by value. `contiguous` makes a layout; the other methods return views of the
    layout.
    """

    # A dictionary, so that `help` and `inspect.getdoc` find the texts.
    __slots__ = {
        "_hash": "",
        "_reversed": "",
        "extent": "Elements of the buffer up to the tensor's last; 0 if empty.",
        "is_contiguous": "True in row-major order without gaps, wherever it starts.",
        "is_whole": "True when it is contiguous and starts with the buffer.",
        "key": "Lengths, strides and offset, in one tuple: equal for equal layouts.",
        "shape": "The lengths of the axes.",
        "size": "The number of elements.",
        "start_offset": "Elements of the buffer before the first one of the tensor.",
        "strides": "Elements between neighbours along each axis.",
        "words": "The lengths and then the strides, as kernels take them.",
    }

    def __init__(
        self, shape: int | Iterable[int], strides: Iterable[int], start_offset: int = 0
    ) -> None:
        """Check and store the arguments; `ArgumentValueError` for a negative stride or offset."""
        lengths, steps = Shape(shape), _ints("strides", strides)
        start = checked_int("start offset", start_offset)
        if len(steps) != len(lengths):
            raise ArgumentValueError(
                f"strides: expected {len(lengths)} of them for shape {lengths}, got {steps}"
            )
        if start < 0 or min(steps, default=0) < 0:
            raise ArgumentValueError(
                f"strides and start offset: expected none below 0, got {steps} from {start}; "
                "kernels read them as u64"
            )
        self._hold(lengths, steps, start, lengths.is_contiguous(steps))

    def _hold(
        self, shape: Shape, strides: tuple[int, ...], start_offset: int, is_contiguous: bool
    ) -> None:
        self.shape, self.strides, self.start_offset = shape, strides, start_offset
        self.size = size = prod(shape)
        self.is_contiguous = is_contiguous
        self.is_whole = self.is_contiguous and start_offset == 0
        last = sum(map(operator.mul, shape, strides)) - sum(strides)
        self.extent = start_offset + last + 1 if size else 0
        self._reversed: Layout | None = None
        self.words = (*shape, *strides)
        self.key = (*self.words, start_offset)
        self._hash = hash(self.key)

    @staticmethod
    def contiguous(shape: int | Iterable[int], start_offset: int = 0) -> Layout:
        """Return the layout of row-major order without gaps.

        The same shape gives one object.
        """
        lengths = Shape(shape)
        if type(start_offset) is not int or start_offset < 0:
            return Layout(lengths, lengths.contiguous_strides(), start_offset)
        return _contiguous(lengths, start_offset)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def from_start(self) -> Layout:
        """The same lengths and strides from the first element of a buffer."""
        return self._moved(0) if self.start_offset else self

    def _moved(self, start_offset: int) -> Layout:
        """Return the same lengths and strides from another element of the buffer."""
        layout = Layout.__new__(Layout)
        layout.shape, layout.strides, layout.words = self.shape, self.strides, self.words
        layout.start_offset = start_offset
        layout.size = self.size
        layout.is_contiguous = self.is_contiguous
        layout.is_whole = self.is_contiguous and start_offset == 0
        layout.extent = self.extent - self.start_offset + start_offset if self.size else 0
        layout._reversed = None
        layout.key = key = (*self.words, start_offset)
        layout._hash = hash(key)
        return layout

    def _each(self, axis: int) -> Iterator[Layout]:
        """Yield the view at each index of an axis, without that axis."""
        axis = self.axis(axis)
        length = self.shape[axis]
        if length:
            first, step = self.selected(axis, 0), self.strides[axis]
            for index in range(length):
                yield first._moved(first.start_offset + index * step)

    @property
    def may_alias(self) -> bool:
        """True when several elements may have one address.

        Such a tensor cannot be written to.
        """
        reached = 0
        axes = sorted(
            (stride, length)
            for length, stride in zip(self.shape, self.strides, strict=True)
            if length > 1
        )
        for stride, length in axes:
            if stride <= reached:
                return self.size > 0
            reached += (length - 1) * stride
        return False

    def axis(self, axis: int, name: str = "axis") -> int:
        """Return `axis` counted from the front; `ArgumentValueError` in numpy's words if none."""
        return checked_axis(axis, self.rank, name)

    def narrow(self, axis: int, start: int, length: int) -> Layout:
        """Return the view of `length` elements of an axis, from `start`."""
        axis = self.axis(axis)
        whole = self.shape[axis]
        start, length = checked_int("start", start), checked_int("length", length)
        if not 0 <= start <= whole or not 0 <= length <= whole - start:
            raise ArgumentValueError(
                f"narrow: elements {start} to {start + length} are out of bounds for axis {axis} "
                f"with size {whole}"
            )
        return self._sliced(axis, start, length, 1)

    def sliced(self, axis: int, elements: slice) -> Layout:
        """Return the view of a slice of an axis.

        Steps are at least 1.
        """
        axis = self.axis(axis)
        start, stop, step = elements.indices(self.shape[axis])
        if step < 1:
            raise ArgumentValueError(
                f"slice {elements}: expected a step of at least 1, got {step}: there are no "
                "negative strides here; ubridge.flip copies an axis in reverse"
            )
        return self._sliced(axis, start, max(0, -(-(stop - start) // step)), step)

    def _sliced(self, axis: int, start: int, length: int, step: int) -> Layout:
        shape, strides = list(self.shape), list(self.strides)
        stride = strides[axis]
        shape[axis] = length
        strides[axis] = stride * step
        # An empty view starts at the beginning of the axis, so that it stays inside the buffer.
        offset = self.start_offset + (start * stride if length else 0)
        return _made(shape, strides, offset)

    def selected(self, axis: int, index: int) -> Layout:
        """Return the view at one index of an axis, without that axis."""
        axis = self.axis(axis)
        length = self.shape[axis]
        index = checked_int("index", index)
        if not -length <= index < length:
            raise IndexError(f"index {index} is out of bounds for axis {axis} with size {length}")
        offset = self.start_offset + index % length * self.strides[axis]
        return _made(
            (*self.shape[:axis], *self.shape[axis + 1 :]),
            (*self.strides[:axis], *self.strides[axis + 1 :]),
            offset,
        )

    def expanded(self, axis: int) -> Layout:
        """Return the view with one more axis, of length 1, before `axis`."""
        axis = checked_axis(axis, self.rank + 1, "axis")
        return _made(
            (*self.shape[:axis], 1, *self.shape[axis:]),
            (*self.strides[:axis], 0, *self.strides[axis:]),
            self.start_offset,
        )

    def squeezed(self, axis: int | None = None) -> Layout:
        """Return the view without axes of one element.

        Drops one axis, or all axes of one element.
        """
        if axis is not None:
            axis = self.axis(axis)
            if self.shape[axis] != 1:
                raise ArgumentValueError(
                    "cannot select an axis to squeeze out which has size not equal to one"
                )
            return self.selected(axis, 0)
        kept = [one for one, length in enumerate(self.shape) if length != 1]
        return _made(
            [self.shape[one] for one in kept],
            [self.strides[one] for one in kept],
            self.start_offset,
        )

    def transpose(self, first: int = -2, second: int = -1) -> Layout:
        """Return the view with two axes exchanged."""
        order = list(range(self.rank))
        one, other = self.axis(first), self.axis(second)
        order[one], order[other] = order[other], order[one]
        return self.permute(order)

    def permute(self, axes: Sequence[int]) -> Layout:
        """Return the view whose axis i is axis `axes[i]` of this one."""
        return _permuted(self, tuple(self.axis(axis) for axis in _ints("axes", axes)))

    @property
    def reversed(self) -> Layout:
        """The view with the axes in the opposite order.

        One layout gives one object.
        """
        found = self._reversed
        if found is None:
            found = self._reversed = self.permute(range(self.rank - 1, -1, -1))
        return found

    def broadcast_to(self, shape: int | Iterable[int]) -> Layout:
        """Return the view broadcast to another shape, as in numpy.

        Repeated axes have stride 0.
        """
        wanted = Shape(shape)
        if wanted == self.shape:
            return self
        added = len(wanted) - self.rank
        if added < 0:
            raise ArgumentValueError(
                f"input operand has more dimensions than allowed by the axis remapping: "
                f"shape {self.shape} to shape {wanted}"
            )
        strides = [0] * added
        for length, stride, target in zip(self.shape, self.strides, wanted[added:], strict=True):
            if length not in (1, target):
                raise ArgumentValueError(
                    f"operands could not be broadcast together with remapped shapes "
                    f"[original->remapped]: {self.shape} and requested shape {wanted}"
                )
            strides.append(stride if length == target else 0)
        return _made(wanted, strides, self.start_offset)

    def reshape(self, shape: int | Iterable[int]) -> Layout | None:
        """Return the view of another shape with the same order.

        The result is `None` when the view needs a copy.

        One length may be -1. `ArgumentValueError` when the number of elements differs.
        """
        if shape == -1 and len(self.shape) == 1:
            return self
        return _reshaped(self, _lengths(shape))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Layout):
            return NotImplemented
        return self.key == other.key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Layout({self.shape}, {self.strides}, {self.start_offset})"


def _made(shape: Iterable[int], strides: Iterable[int], start_offset: int) -> Layout:
    """A layout without checks, for checked numbers."""
    layout = Layout.__new__(Layout)
    lengths = shape if type(shape) is Shape else tuple.__new__(Shape, shape)
    steps = tuple(strides)
    layout._hold(lengths, steps, start_offset, lengths.is_contiguous(steps))
    return layout


def checked_int(name: str, value: object) -> int:
    """Return an int, or an object with `__index__`, as int; `ArgumentTypeError` for others."""
    if type(value) is int:
        return value
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # the second from a tensor of several elements
        raise ArgumentTypeError(
            f"{name}: expected an int, got {type(value).__name__} {value!r:.80}"
        ) from None


def _ints(name: str, values: Iterable[int]) -> tuple[int, ...]:
    """Return several such ints."""
    try:
        given = tuple(values)
    except TypeError:
        raise ArgumentTypeError(
            f"{name}: expected a sequence of ints, got {type(values).__name__} {values!r:.80}"
        ) from None
    return tuple(checked_int(name, one) for one in given)


def checked_axis(axis: int, rank: int, name: str = "axis") -> int:
    """Return `axis` counted from the front; `ArgumentValueError` in numpy's words if none."""
    if type(axis) is int and 0 <= axis < rank:
        return axis
    found = checked_int(name, axis)
    if not -rank <= found < rank:
        raise ArgumentValueError(f"{name} {found} is out of bounds for array of dimension {rank}")
    return found % rank


@lru_cache(maxsize=_REMEMBERED_LAYOUTS)
def _contiguous(shape: Shape, start_offset: int) -> Layout:
    layout = Layout.__new__(Layout)
    layout._hold(shape, shape.contiguous_strides(), start_offset, is_contiguous=True)
    return layout


@lru_cache(maxsize=_REMEMBERED_LAYOUTS)
def _permuted(layout: Layout, order: tuple[int, ...]) -> Layout:
    if len(order) != layout.rank:
        raise ArgumentValueError("axes don't match array")
    if len(set(order)) != layout.rank:
        raise ArgumentValueError("repeated axis in transpose")
    return _made(
        [layout.shape[axis] for axis in order],
        [layout.strides[axis] for axis in order],
        layout.start_offset,
    )


@lru_cache(maxsize=_REMEMBERED_LAYOUTS)
def _reshaped(layout: Layout, given: tuple[int, ...]) -> Layout | None:
    lengths = list(given)
    told = prod(length for length in lengths if length != -1)
    unknown = lengths.count(-1)
    if unknown > 1:
        raise ArgumentValueError("can only specify one unknown dimension")
    if unknown and told and layout.size % told == 0:
        lengths[lengths.index(-1)] = layout.size // told
    if -1 in lengths or prod(lengths) != layout.size:
        raise ArgumentValueError(f"cannot reshape array of size {layout.size} into shape {given}")
    if layout.is_contiguous or layout.size == 0:
        return Layout.contiguous(lengths, layout.start_offset)
    strides = _reshaped_strides(layout.shape, layout.strides, lengths)
    return None if strides is None else Layout(lengths, strides, layout.start_offset)


def _lengths(given: int | Iterable[int]) -> tuple[int, ...]:
    try:
        # Asking `isinstance(given, SupportsIndex)` takes longer than a launch.
        if isinstance(given, (tuple, list)) or not hasattr(type(given), "__index__"):
            return tuple(map(operator.index, given))  # type: ignore[arg-type]
        return (operator.index(given),)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentTypeError(
            f"shape: expected an int or a sequence of ints, got {given!r}"
        ) from None


def merged_axes(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return (length, stride) of the axes; axes with a common stride are merged.

    Axes of one element are left out.
    """
    merged: list[tuple[int, int]] = []
    for length, stride in zip(shape, strides, strict=True):
        if length == 1:
            continue
        if merged and merged[-1][1] == length * stride:
            merged[-1] = (merged[-1][0] * length, stride)
        else:
            merged.append((length, stride))
    return merged


def merged_words(first: Layout, *others: Layout) -> tuple[int, ...]:
    """Return lengths, then the strides of each layout; axes that all layouts join are merged.

    The layouts have one shape. Axes of one element are left out.
    """
    if first.size > 1 and all([one.is_contiguous for one in (first, *others)]):
        return (first.size, 1, *[1 for _ in others])
    axes: list[tuple[int, ...]] = []
    for length, *strides in zip(
        first.shape, first.strides, *(other.strides for other in others), strict=True
    ):
        if length == 1:
            continue
        joined = [length * stride for stride in strides]
        if axes and list(axes[-1][1:]) == joined:
            axes[-1] = (axes[-1][0] * length, *strides)
        else:
            axes.append((length, *strides))
    return tuple(word for words in zip(*axes, strict=True) for word in words)


def _reshaped_strides(
    shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]
) -> list[int] | None:
    """Strides of `wanted` for the same elements in the same order, or `None` if impossible.

    Each merged axis must be cut into whole axes of the new shape.
    """
    runs = merged_axes(shape, strides)
    found: list[int] = []
    pending = list(reversed(wanted))
    for length, stride in reversed(runs):
        left, step = length, stride
        while left > 1:
            part = pending.pop(0)
            if left % part:
                return None
            found.append(step)
            step *= part
            left //= part
    # The remaining axes have length 1.
    found.extend(0 for _ in pending)
    return list(reversed(found))
