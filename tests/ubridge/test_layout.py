"""Layouts against numpy's views of one array."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.sampling import rounds
from ubridge import Layout, Shape
from ubridge.core.layout import merged_words
from uhal.errors import ArgumentTypeError, ArgumentValueError

Array = npt.NDArray[Any]


def view(buffer: Array, layout: Layout) -> Array:
    """Return a numpy view of the elements that a layout selects."""
    item = buffer.itemsize
    return np.lib.stride_tricks.as_strided(
        buffer[layout.start_offset :],
        layout.shape,
        [stride * item for stride in layout.strides],
        writeable=False,
    )


def random_shape(rng: np.random.Generator, rank: int | None = None) -> tuple[int, ...]:
    wanted = int(rng.integers(0, 6)) if rank is None else rank
    return tuple(int(length) for length in rng.choice([0, 1, 1, 2, 3, 4, 5, 7], wanted))


def random_step(
    rng: np.random.Generator, layout: Layout, array: Array
) -> tuple[str, Layout | None, Array]:
    """Return a random view's name, and this view of the layout and of the array."""
    rank = layout.rank
    kind = rng.choice(["narrow", "slice", "permute", "transpose", "broadcast", "reshape", "select"])
    axis = int(rng.integers(-rank, rank)) if rank else 0
    if kind == "permute":
        order = [int(one) for one in rng.permutation(rank)]
        return f"permute {order}", layout.permute(order), array.transpose(order)
    if kind == "broadcast":
        shape = [
            int(rng.integers(0, 4)) if length == 1 and rng.random() < 0.5 else length
            for length in layout.shape
        ]
        shape = [*([2] * int(rng.integers(0, 2))), *shape]
        return f"broadcast {shape}", layout.broadcast_to(shape), np.broadcast_to(array, shape)
    if kind == "reshape" or not rank:
        shape = divided(rng, layout.size) if layout.size else [0, int(rng.integers(0, 3))]
        return f"reshape {shape}", layout.reshape(shape), array.reshape(shape)
    length = layout.shape[axis]
    index: list[Any] = [slice(None)] * rank
    if kind == "select" and length:
        index[axis] = int(rng.integers(-length, length))
        return f"select {index}", layout.selected(axis, index[axis]), array[tuple(index)]
    if kind == "transpose":
        other = int(rng.integers(-rank, rank))
        return "transpose", layout.transpose(axis, other), array.swapaxes(axis, other)
    start = int(rng.integers(0, length + 1))
    if kind == "slice":
        stop, step = int(rng.integers(-length - 1, length + 2)), int(rng.integers(1, 4))
        index[axis] = slice(start, stop, step)
        return f"slice {index}", layout.sliced(axis, index[axis]), array[tuple(index)]
    count = int(rng.integers(0, length - start + 1))
    index[axis] = slice(start, start + count)
    return f"narrow {index}", layout.narrow(axis, start, count), array[tuple(index)]


def divided(rng: np.random.Generator, size: int) -> list[int]:
    """Return random lengths with a product of `size`, sometimes with a length of 1 among them."""
    lengths = []
    factor = 2
    while size > 1:
        while size % factor:
            factor += 1
        lengths.append(factor)
        size //= factor
    rng.shuffle(lengths)
    while len(lengths) > 1 and rng.random() < 0.5:
        lengths[0] *= lengths.pop()
    if rng.random() < 0.3:
        lengths.insert(int(rng.integers(0, len(lengths) + 1)), 1)
    return [int(length) for length in lengths]


def test_chains_of_views_agree_with_numpy(rng: np.random.Generator) -> None:
    refused = 0
    for _ in range(rounds(800, 30000)):
        shape = random_shape(rng)
        buffer = rng.permutation(int(np.prod(shape)) + 5)
        offset = int(rng.integers(0, 5))
        layout: Layout = Layout.contiguous(shape, offset)
        array: Array = buffer[offset : offset + layout.size].reshape(shape)
        steps = [f"{shape} from {offset}"]
        for _ in range(int(rng.integers(1, 6))):
            step, following, array_after = random_step(rng, layout, array)
            steps.append(step)
            if following is None:
                # numpy had to copy, too
                assert not np.shares_memory(array, array_after), steps
                refused += 1
                continue
            assert following.shape == array_after.shape, steps
            np.testing.assert_array_equal(view(buffer, following), array_after, str(steps))
            assert following.extent <= buffer.size, steps
            if following.size:
                assert following.is_contiguous == array_after.flags.c_contiguous, steps
            layout, array = following, array_after
    assert refused


def test_a_reshape_is_a_view_whenever_numpys_is(rng: np.random.Generator) -> None:
    views = 0
    for _ in range(rounds(1000, 20000)):
        shape = tuple(int(one) for one in rng.choice([1, 2, 3, 4, 6], int(rng.integers(1, 5))))
        buffer = np.arange(int(np.prod(shape)) * 2)
        layout = Layout.contiguous((*shape, 2)).permute(
            [int(axis) for axis in rng.permutation(len(shape) + 1)]
        )
        layout = layout.sliced(int(rng.integers(0, layout.rank)), slice(None, None, 2))
        wanted = divided(rng, layout.size)
        array = view(buffer, layout)
        reshaped = array.reshape(wanted)
        got = layout.reshape(wanted)
        if layout.size:
            assert (got is not None) == np.shares_memory(buffer, reshaped), (layout, wanted)
        if got is not None:
            views += 1
            np.testing.assert_array_equal(view(buffer, got), reshaped)
    assert views


@pytest.mark.parametrize(
    ("shape", "strides", "contiguous"),
    [
        ((), (), True),
        ((4,), (1,), True),
        ((4,), (2,), False),
        ((1,), (17,), True),
        ((3, 1, 4), (4, 99, 1), True),
        ((3, 4), (1, 3), False),
        ((3, 4), (0, 1), False),
        ((1, 4), (0, 1), True),
        ((2, 0, 3), (7, 3, 1), False),
        ((2, 0, 3), (0, 3, 1), True),
    ],
)
def test_contiguity_is_candles(
    shape: tuple[int, ...], strides: tuple[int, ...], contiguous: bool
) -> None:
    """Each stride is the product of the later lengths; an axis of length 0 or 1 may have any
    stride."""
    assert Layout(shape, strides).is_contiguous == contiguous


def test_words_are_lengths_and_strides() -> None:
    layout = Layout.contiguous((2, 3, 4), 7).transpose(0, 2)
    assert layout.words == (4, 3, 2, 1, 4, 12)
    assert layout.start_offset == 7
    assert Layout.contiguous(()).words == ()


def test_layouts_are_values() -> None:
    assert Layout.contiguous((2, 3)) is Layout.contiguous([2, 3])
    assert Layout((2, 3), (3, 1)) == Layout.contiguous((2, 3))
    assert Layout((2, 3), (3, 1), 1) != Layout.contiguous((2, 3))
    assert len({Layout((2, 3), (3, 1)), Layout.contiguous((2, 3))}) == 1
    assert pickle.loads(pickle.dumps(Shape((2, 3)))) == (2, 3)
    assert repr(Layout((2, 3), (3, 1), 1)) == "Layout((2, 3), (3, 1), 1)"


def test_an_empty_view_begins_where_its_tensor_does(rng: np.random.Generator) -> None:
    """No layout ends past its buffer, so kernels never get an address outside of the buffer."""
    for _ in range(rounds(20, 500)):
        shape = tuple(int(n) for n in rng.integers(1, 6, 3))
        whole = Layout.contiguous(shape, int(rng.integers(0, 9)))
        axis = int(rng.integers(0, 3))
        start = int(rng.integers(0, shape[axis] + 1))
        for empty in (whole.narrow(axis, start, 0), whole.sliced(axis, slice(start, start))):
            assert (empty.shape[axis], empty.size, empty.extent) == (0, 0, 0)
            assert empty.start_offset == whole.start_offset
        length = int(rng.integers(1, shape[axis] + 1))
        view = whole.narrow(axis, shape[axis] - length, length)
        skipped = (shape[axis] - length) * whole.strides[axis]
        assert view.start_offset == whole.start_offset + skipped
        assert view.extent == whole.start_offset + whole.size


def test_aliasing_is_seen(rng: np.random.Generator) -> None:
    assert Layout.contiguous(3).broadcast_to((4, 3)).may_alias
    assert not Layout.contiguous((4, 3)).transpose().may_alias
    assert not Layout.contiguous((4, 0)).broadcast_to((4, 0)).may_alias
    assert Layout((3, 3), (1, 1)).may_alias
    for _ in range(rounds(200, 2000)):
        shape = tuple(int(one) for one in rng.integers(1, 5, 3))
        layout = Layout(shape, [int(one) for one in rng.integers(0, 20, 3)])
        addresses = view(np.arange(layout.extent), layout)
        if not layout.may_alias:
            assert len(np.unique(addresses)) == layout.size


def test_shapes_broadcast_as_numpys_do(rng: np.random.Generator) -> None:
    refused = 0
    for _ in range(rounds(300, 3000)):
        shapes = [random_shape(rng, int(rng.integers(0, 4))) for _ in range(3)]
        try:
            expected = np.broadcast_shapes(*shapes)
        except ValueError:
            with pytest.raises(ArgumentValueError, match="could not be broadcast together"):
                Shape(shapes[0]).broadcast_with(*map(Shape, shapes[1:]))
            refused += 1
            continue
        assert Shape(shapes[0]).broadcast_with(*map(Shape, shapes[1:])) == expected
    assert refused


@pytest.mark.parametrize(
    ("attempt", "error", "words"),
    [
        (lambda: Shape((2, -1)), ArgumentValueError, "negative dimensions are not allowed"),
        (lambda: Shape("ab"), ArgumentTypeError, "a sequence of ints, got 'ab'"),
        (lambda: Shape(2.5), ArgumentTypeError, "a sequence of ints, got 2.5"),  # type: ignore
        (lambda: Layout((2,), (1, 1)), ArgumentValueError, r"1 of them .* got \(1, 1\)"),
        (lambda: Layout((2,), (-1,)), ArgumentValueError, "none below 0"),
        (lambda: BASE.transpose(0, 2), ArgumentValueError, "axis 2 is out of bounds for array of"),
        (lambda: BASE.permute((0,)), ArgumentValueError, "axes don't match array"),
        (lambda: BASE.permute((0, 0)), ArgumentValueError, "repeated axis in transpose"),
        (lambda: BASE.reshape((4,)), ArgumentValueError, "cannot reshape array of size 6 into"),
        (lambda: BASE.reshape((-1, 4)), ArgumentValueError, "cannot reshape array of size 6"),
        (lambda: BASE.reshape((-1, -1)), ArgumentValueError, "only specify one unknown"),
        (lambda: BASE.broadcast_to((2, 4)), ArgumentValueError, "could not be broadcast"),
        (lambda: BASE.broadcast_to((3,)), ArgumentValueError, "more dimensions than allowed"),
        (lambda: BASE.narrow(1, 2, 2), ArgumentValueError, "out of bounds for axis 1 with size 3"),
        (lambda: BASE.selected(0, 2), IndexError, "index 2 is out of bounds for axis 0 with"),
        (lambda: BASE.squeezed(0), ArgumentValueError, "size not equal to one"),
        (lambda: BASE.sliced(0, slice(None, None, -1)), ArgumentValueError, "no negative strides"),
    ],
)
def test_what_cannot_be_is_refused_in_numpys_words(
    attempt: Callable[[], object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        attempt()


BASE = Layout.contiguous((2, 3))


def test_axes_that_all_layouts_join_are_merged() -> None:
    line, turned = Layout.contiguous((2, 3, 4)), Layout((2, 3, 4), (1, 8, 2))
    assert merged_words(line) == (24, 1)
    assert merged_words(line, turned) == (2, 12, 12, 1, 1, 2)
    assert merged_words(Layout((5, 1, 7), (0, 9, 1))) == (5, 7, 0, 1)
    assert merged_words(Layout.contiguous((1, 1))) == ()
