"""Functions made of other operations, against numpy: from `std` and `cumsum` to `einsum`."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ubridge as ub
from uhal import Device
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError

FLOATS = {"f32": 2e-6, "f64": 1e-14, "f16": 1e-3, "bf16": 8e-3}
SHAPES: list[tuple[tuple[int, ...], Any]] = [
    ((7,), None),
    ((4, 5), 0),
    ((4, 5), -1),
    ((3, 1, 8), (0, 2)),
    ((2, 3, 33), 2),
    ((1, 1), None),
]
TURNED = ["whole", "view"]


def given(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str, how: str
) -> ub.DeviceTensor:
    """Return a random tensor: contiguous, or a view with gaps and its axes in another order."""
    numbers = rng.normal(size=shape) if dtype in FLOATS else rng.integers(-3, 4, shape)
    if how == "whole":
        return ub.asarray(np.asarray(numbers), dtype)
    within = ub.full([2 * length + 1 for length in reversed(shape)], 77, dtype)
    view = within[tuple(slice(1, None, 2) for _ in shape)].T
    view[...] = ub.asarray(np.asarray(numbers), dtype)
    return view


def wide(x: ub.DeviceTensor) -> Any:
    """Return the elements as a numpy array, floats as f64."""
    array = x.to_numpy()
    return array.astype(np.float64) if x.dtype.kind == "float" else array


def poisoned(like: ub.DeviceTensor) -> ub.DeviceTensor:
    """Return a filled `out` that the function must overwrite completely."""
    return ub.full_like(like, True if like.dtype.name == "bool" else 99)


@pytest.mark.parametrize("how", TURNED)
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_spread(
    dtype: str, shape: Any, axis: Any, how: str, device: Device, rng: np.random.Generator
) -> None:
    x = given(rng, shape, dtype, how)
    for name in ("std", "var"):
        for keepdims in (False, True):
            expected = getattr(np, name)(wide(x), axis, keepdims=keepdims)
            found = getattr(ub, name)(x, axis, keepdims=keepdims)
            assert found.dtype is x.dtype and found.shape == expected.shape
            np.testing.assert_allclose(wide(found), expected, FLOATS[dtype] * 4, 1e-6)
            out = poisoned(found)
            assert getattr(x, name)(axis, 0, keepdims, out=out) is out
            assert out.tolist() == found.tolist()


def test_spread_of_large_means_ddof_and_integers(device: Device, rng: np.random.Generator) -> None:
    x = 1e4 + rng.normal(size=(3, 1000)).astype(np.float32)
    np.testing.assert_allclose(
        ub.var(ub.asarray(x), 1, ddof=1).to_numpy(), x.astype(np.float64).var(1, ddof=1), 1e-3
    )
    n = rng.integers(-9, 9, (5, 6))
    found = ub.std(ub.asarray(n), 0)
    assert found.dtype.name == "f64"
    np.testing.assert_allclose(found.to_numpy(), n.std(0))
    with pytest.raises(
        ArgumentValueError, match=r"var: expected more elements than ddof .* 0 and 0"
    ):
        ub.var(ub.zeros((0, 3)), 0)
    with pytest.raises(ArgumentValueError, match=r"std: expected more .* 1 and 1"):
        ub.std(ub.zeros((1, 3)), 0, 1)
    with pytest.raises(ArgumentValueError, match="std: axis 2 is out of bounds"):
        ub.std(ub.zeros((1, 3)), 2)
    assert ub.var(ub.zeros((3, 0)), 0).shape == (0,)


@pytest.mark.parametrize("how", TURNED)
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i64", "i32", "u8"])
def test_products(
    dtype: str, shape: Any, axis: Any, how: str, device: Device, rng: np.random.Generator
) -> None:
    x = given(rng, shape, dtype, how)
    for keepdims in (False, True):
        array = wide(x)
        kind = array.dtype if x.dtype.kind != "float" else np.float64
        expected = np.prod(array, axis, dtype=kind, keepdims=keepdims)
        found = x.prod(axis, keepdims=keepdims)
        assert found.dtype is x.dtype and found.shape == expected.shape
        least = 6e-8 if dtype == "f16" else 0  # the smallest subnormal number of f16
        np.testing.assert_allclose(wide(found), expected, FLOATS.get(dtype, 0) * 9, least)
        out = poisoned(found)
        assert ub.prod(x, axis, None, keepdims, out=out) is out
        assert out.tolist() == found.tolist()


def test_products_of_nothing_and_of_booleans(device: Device) -> None:
    assert ub.prod(ub.zeros((0, 3)), 0).tolist() == [1, 1, 1]
    assert ub.prod(ub.zeros((3, 0)), 0).shape == (0,)
    assert ub.prod(ub.zeros((2, 0)), (0, 1), keepdims=True).tolist() == [[1]]
    assert ub.prod(ub.asarray(7)).item() == 7
    found = ub.prod(ub.asarray([True, True]))
    assert found.dtype.name == "i64" and found.item() == 1
    assert ub.prod(ub.asarray([2, 3], "u8"), dtype="f32").dtype.name == "f32"
    with pytest.raises(ArgumentValueError, match="prod: duplicate value"):
        ub.prod(ub.zeros((2, 2)), (0, -2))
    with pytest.raises(ArgumentValueError, match="prod: non-broadcastable output"):
        ub.prod(ub.zeros((2, 2)), 0, out=ub.zeros(3))


@pytest.mark.parametrize("how", TURNED)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i64", "u8"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((1,), 0), ((6,), 0), ((3, 65), 1), ((37, 4), 0), ((2, 3, 4), 1)]
)
def test_running_sums(
    dtype: str, shape: Any, axis: int, how: str, device: Device, rng: np.random.Generator
) -> None:
    x = given(rng, shape, dtype, how)
    array = wide(x)
    expected = np.cumsum(array, axis, dtype=array.dtype)
    found = x.cumsum(axis)
    assert found.dtype is x.dtype
    np.testing.assert_allclose(
        wide(found), expected, FLOATS.get(dtype, 0) * 4, FLOATS.get(dtype, 0) * 16
    )
    out = poisoned(found)
    assert ub.cumsum(x, axis, out=out) is out
    assert out.tolist() == found.tolist()
    flat = ub.cumsum(x)
    np.testing.assert_allclose(
        wide(flat),
        np.cumsum(array, dtype=array.dtype),
        FLOATS.get(dtype, 0) * 4,
        FLOATS.get(dtype, 0) * 32,
    )


def test_running_sums_of_few_and_wrong_ones(device: Device) -> None:
    assert ub.cumsum(ub.zeros((2, 0)), 1).shape == (2, 0)
    assert ub.cumsum(ub.zeros((0, 3)), 1).shape == (0, 3)
    assert ub.cumsum(ub.asarray([True, True, False])).tolist() == [1, 2, 2]
    assert ub.cumsum(ub.asarray(5)).tolist() == [5]
    with pytest.raises(ArgumentValueError, match="cumsum: axis 1 is out of bounds"):
        ub.cumsum(ub.zeros(3), 1)


@pytest.mark.parametrize("how", TURNED)
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("dtype", ["f32", "i64", "u8", "bool"])
def test_truth(
    dtype: str, shape: Any, axis: Any, how: str, device: Device, rng: np.random.Generator
) -> None:
    numbers = rng.integers(0, 3, shape) * rng.integers(0, 2)
    x = ub.asarray(numbers, dtype) if how == "whole" else ub.asarray(numbers.T, dtype).T
    for name in ("any", "all"):
        for keepdims in (False, True):
            expected = getattr(np, name)(numbers, axis, keepdims=keepdims)
            found = getattr(ub, name)(x, axis, keepdims)
            assert found.dtype.name == "bool" and found.tolist() == expected.tolist()
            out = poisoned(found)
            assert getattr(x, name)(axis, keepdims, out=out) is out
            assert out.tolist() == expected.tolist()


def test_truth_of_nothing_and_of_nan(device: Device) -> None:
    x = ub.zeros((0, 3))
    assert ub.any(x).item() is False and ub.all(x).item() is True
    assert ub.all(x, 0).tolist() == [True] * 3 and ub.any(x, 0).tolist() == [False] * 3
    assert ub.any(x, 1).shape == (0,)
    assert ub.all(ub.asarray([np.nan, -1.0])).item() is True
    with pytest.raises(ArgumentValueError, match="any: axis 2 is out of bounds"):
        ub.any(x, 2)


def test_clip(device: Device, rng: np.random.Generator) -> None:
    array = rng.normal(size=(4, 5)).astype(np.float32)
    array[0, 0] = np.nan
    x, low = ub.asarray(array), rng.normal(size=5).astype(np.float32)
    np.testing.assert_array_equal(ub.clip(x, -0.5, 0.5).to_numpy(), np.clip(array, -0.5, 0.5))
    np.testing.assert_array_equal(x.clip(max=0.1).to_numpy(), np.clip(array, None, np.float32(0.1)))
    np.testing.assert_array_equal(ub.clip(x.T, 0).to_numpy(), np.clip(array.T, 0, None))
    np.testing.assert_array_equal(
        ub.clip(x, ub.asarray(low), 1).to_numpy(), np.clip(array, low, np.float32(1))
    )
    assert ub.clip(ub.asarray([1, 5, 9]), 2, 6).tolist() == [2, 5, 6]
    copied = ub.clip(x)
    assert copied.buffer is not x.buffer
    out = poisoned(x)
    assert ub.clip(x, 0, 1, out=out) is out
    np.testing.assert_array_equal(out.to_numpy(), np.clip(array, 0, 1))
    assert ub.clip(ub.zeros((0, 2)), 1).shape == (0, 2)
    with pytest.raises(ArgumentTypeError, match="clip: expected a DeviceTensor"):
        ub.clip(array, 0, 1)  # type: ignore[type-var]


@pytest.mark.parametrize("dtype", [*FLOATS, "f8e4m3"])
def test_isnan(dtype: str, device: Device) -> None:
    x = ub.asarray(np.array([[1, np.nan], [0, -np.nan]]), dtype)
    assert ub.isnan(x).tolist() == [[False, True], [False, True]]
    assert ub.isnan(x.T[1]).tolist() == [True, True]
    out = ub.zeros((2, 2), "bool")
    assert ub.isnan(x, out=out) is out and out.tolist() == [[False, True]] * 2
    assert ub.isnan(ub.asarray([1, 2])).tolist() == [False, False]


@pytest.mark.parametrize("how", TURNED)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i64"])
def test_topk(dtype: str, how: str, device: Device, rng: np.random.Generator) -> None:
    x = ub.asarray(rng.permutation(90).reshape(9, 10), dtype)
    if how == "view":
        x = ub.asarray(x.T.to_numpy()).T
    array = wide(x)
    for axis in (0, 1, -1):
        for largest in (True, False):
            for k in (0, 1, 4, x.shape[axis]):
                values, ids = ub.topk(x, k, axis, largest)
                order = np.argsort(-array if largest else array, axis)
                expected = np.take(order, range(k), axis)
                assert ids.dtype.name == "u32" and values.dtype is x.dtype
                np.testing.assert_array_equal(ids.to_numpy(), expected)
                np.testing.assert_array_equal(
                    wide(values), np.take_along_axis(array, expected, axis)
                )
    for k, words in ((11, "expected 0 to 10, the length of axis 1, got 11"), (-1, "got -1")):
        with pytest.raises(ArgumentValueError, match=f"topk, k: .*{words}"):
            ub.topk(x, k)
    with pytest.raises(ArgumentTypeError, match="topk, k: expected an int, got float"):
        ub.topk(x, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", TURNED)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "u8", "i64"])
def test_rows_that_no_block_sorts_at_once(
    dtype: str, how: str, device: Device, rng: np.random.Generator
) -> None:
    """The order is numpy's stable order with NaN last; a descending sort is stable, too."""
    columns = int(rng.integers(1, 4)) * 16384 + int(rng.integers(1, 9000))
    if device.backend != "host":
        # Translated code is slow: use only a few more columns than a block sorts.
        columns = device.limits.max_shared_bytes_per_block // 4 + 5
    drawn = rng.integers(0, 200, (2, columns)).astype(np.float64)
    if dtype in ("f32", "bf16"):
        drawn[rng.random(drawn.shape) < 0.01] = np.nan
    x = ub.asarray(drawn, dtype)
    if how == "view":
        x = ub.asarray(x.T.to_numpy()).T
    array = wide(x)
    rising = np.argsort(array, -1, kind="stable")
    falling = np.argsort(array[:, ::-1], -1, kind="stable")[:, ::-1]
    falling = columns - 1 - falling
    np.testing.assert_array_equal(ub.argsort(x).to_numpy(), rising)
    np.testing.assert_array_equal(ub.argsort(x, descending=True).to_numpy(), falling)
    np.testing.assert_array_equal(wide(ub.sort(x)), np.take_along_axis(array, rising, -1))
    values, indices = ub.topk(x, 9)
    np.testing.assert_array_equal(indices.to_numpy(), falling[:, :9])
    np.testing.assert_array_equal(wide(values), np.take_along_axis(array, falling[:, :9], -1))


EINSUMS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,kj->ik", (3, 4), (5, 4)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("ba", (3, 4)),
    ("ii->i", (4, 4)),
    ("ii", (4, 4)),
    ("ij->", (3, 4)),
    ("i,j->ij", (3,), (4,)),
    ("i,i", (5,), (5,)),
    ("ij,ij->ij", (3, 4), (3, 4)),
    ("ij,kl->il", (3, 4), (2, 5)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (6, 4, 5)),
    ("...i->...", (2, 3, 4)),
    ("i...,i...", (3, 2), (3, 2)),
    ("ij,j->i", (3, 4), (1,)),
    ("ijk,jil->kl", (3, 4, 5), (4, 3, 6)),
    ("ij,jk->ik", (3, 0), (0, 5)),
    ("ij,jk->ik", (0, 4), (4, 5)),
    (",i->i", (), (3,)),
]


@pytest.mark.parametrize("case", EINSUMS, ids=lambda case: f"{case[0]} {case[1:]}")
@pytest.mark.parametrize("dtype", ["f32", "f64", "u8", "i16", "i32", "u32", "i64"])
def test_einsum(
    dtype: str, case: tuple[Any, ...], device: Device, rng: np.random.Generator
) -> None:
    letters, *shapes = case
    operands = [given(rng, shape, dtype, TURNED[at % 2]) for at, shape in enumerate(shapes)]
    expected = np.einsum(letters, *(wide(one) for one in operands))
    found = ub.einsum(letters, *operands)
    assert found.shape == expected.shape and found.dtype is operands[0].dtype
    np.testing.assert_allclose(wide(found), expected, 1e-5, 1e-5)
    out = poisoned(found)
    assert ub.einsum(letters, *operands, out=out) is out
    assert out.tolist() == found.tolist()
    assert all(found.buffer is not one.buffer for one in operands)


@pytest.mark.parametrize(
    ("letters", "shapes", "words"),
    [
        ("ij,jk->ik", [(2, 3)], "names 2 operands, got 1"),
        ("ij->i", [(2, 3, 4)], "operand 0 has shape .*, which 'ij' does not fit"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "'j' has lengths 3 and 4"),
        ("ii->i", [(2, 3)], "'i' stands twice in an operand, for lengths"),
        ("ij->ik", [(2, 3)], "each letter of 'ik' once, and in an operand"),
        ("ij->ii", [(2, 3)], "each letter of 'ii' once"),
        ("i1->i", [(2, 3)], "expected letters"),
        ("...i->i", [(2, 3)], r"says `\.\.\.` of operands only"),
    ],
)
def test_letters_that_do_not_fit(letters: str, shapes: Any, words: str, device: Device) -> None:
    with pytest.raises(ArgumentValueError, match=f"einsum: .*{words}"):
        ub.einsum(letters, *(ub.zeros(shape) for shape in shapes))


def test_einsum_refuses_booleans(device: Device) -> None:
    with pytest.raises(ArgumentTypeError, match="einsum: expected numbers, got bool"):
        ub.einsum("i->", ub.zeros(2, "bool"))


def test_array_concatenate_and_split(device: Device, rng: np.random.Generator) -> None:
    x = ub.array([[1, 2.5], [3, 4]])
    assert x.dtype.name == "f32" and x.tolist() == [[1, 2.5], [3, 4]]
    y = ub.array(x)
    assert y.buffer is not x.buffer and y.tolist() == x.tolist()
    assert ub.array(x, "i32").dtype.name == "i32"
    assert ub.array(np.float64(3)).dtype.name == "f64"
    assert ub.array(x, device=f"{device.backend}:0").device == device
    a, b = rng.normal(size=(2, 6)), rng.normal(size=(3, 6))
    joined = ub.concatenate([ub.asarray(a), ub.asarray(b.T.copy()).T])
    np.testing.assert_array_equal(joined.to_numpy(), np.concatenate([a, b]))
    flat = ub.concatenate([ub.asarray(a), ub.asarray(b)], axis=None)
    np.testing.assert_array_equal(flat.to_numpy(), np.concatenate([a, b], axis=None))
    for parts in (1, 2, 3, 6, [2], [1, 4], [4, 2], [-2, 9], []):
        found = ub.split(ub.asarray(a), parts, 1)
        expected = np.split(a, parts, 1)
        assert [one.tolist() for one in found] == [one.tolist() for one in expected]
    assert all(one.buffer is joined.buffer for one in ub.split(joined, 5))
    for parts in (4, 0):
        with pytest.raises(ArgumentValueError, match=r"split: .* 6 long, got . parts"):
            ub.split(ub.asarray(a), parts, 1)


def test_array_goes_to_another_device_through_the_host(host: Device, simulated_cuda: None) -> None:
    with Device(0, backend="cuda") as other:
        x = ub.array(ub.ones(3, device=host), device="cuda")
        assert x.device == other and x.tolist() == [1, 1, 1]
        with pytest.raises(InvalidHandleError):
            ub.concatenate([x, ub.ones(3, device=host)])


def test_traces_hold_what_they_are_made_of(host: Device, rng: np.random.Generator) -> None:
    x, y = ub.asarray(rng.normal(size=(6, 7))), ub.asarray(rng.normal(size=(7, 5)))

    def program() -> list[ub.DeviceTensor]:
        found = [ub.std(x, 0), ub.prod(x, 1), ub.cumsum(x, 1), ub.any(x > 1, 0)]
        return [*found, *ub.topk(x, 3), ub.einsum("ij,jk->i", x, y), ub.clip(x, 0, 1)]

    with ub.trace() as graph:
        found = program()
    before = [one.tolist() for one in found]
    x.copy_from(ub.asarray(rng.normal(size=(6, 7))))
    ub.execute_graph(graph)
    after = [one.tolist() for one in found]
    assert after == [one.tolist() for one in program()] and after != before


def test_halves_are_rounded_once(host: Device, rng: np.random.Generator) -> None:
    array = rng.normal(size=1000).astype(ml_dtypes.bfloat16)
    exact = np.cumsum(array.astype(np.float64)).astype(ml_dtypes.bfloat16)
    found = ub.cumsum(ub.asarray(array)).to_numpy()
    assert (found == exact).mean() > 0.99
