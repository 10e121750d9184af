"""Limits of dtypes: booleans are 0 and 1, numbers beyond a range, integers without kernels."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.ubridge.op_rows import OP_ROWS, row_of
from uhal import Device, DeviceBuffer
from uhal.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError, DeviceError
from uhal.frameworks import address_of

DEVICES = tuple(row.name for row in OP_ROWS if row.name != "gcu")
CAST_ONLY = ("i8", "u16", "u64")


@pytest.fixture(autouse=True)
def images(device: Device) -> None:
    row_of(device.backend).require_images()
    if device.backend == "tops":
        pytest.skip("Enflame's kernels have other types")


def bytes_of(x: ub.DeviceTensor) -> list[int]:
    found: list[int] = x.contiguous().buffer.view("u8").to_numpy().tolist()
    return found


def on_device(device: Device, raw: Any, dtype: str) -> DeviceBuffer:
    return DeviceBuffer.from_numpy(raw, device=device).view(dtype)


def lent(buffer: DeviceBuffer) -> DeviceBuffer:
    return DeviceBuffer.from_raw(
        address_of(buffer), buffer.size, buffer.dtype, device=buffer.device, owner=buffer
    )


def imported(buffer: DeviceBuffer) -> ub.DeviceTensor:
    """Import a buffer by DLPack, which lacks a device type for OpenCL with addresses and WebGPU."""
    if buffer.device.backend in ("opencl", "webgpu"):
        return ub.DeviceTensor(buffer)
    return ub.from_dlpack(buffer, device=buffer.device)


def described(buffer: DeviceBuffer) -> DeviceBuffer:
    """Import a buffer by `__cuda_array_interface__`, if its device supports that."""
    if buffer.device.backend != "cuda":
        return buffer
    return DeviceBuffer.from_cuda_array_interface(buffer, device=buffer.device)


ROADS_OF_BYTES: tuple[Callable[[Device, Any], ub.DeviceTensor], ...] = (
    lambda device, raw: ub.DeviceTensor(on_device(device, raw, "u8"), dtype="bool"),
    lambda device, raw: ub.DeviceTensor(on_device(device, raw, "bool")),
    lambda device, raw: imported(on_device(device, raw, "bool")),
    lambda device, raw: ub.DeviceTensor(lent(on_device(device, raw, "bool"))),
    lambda device, raw: ub.DeviceTensor(described(on_device(device, raw, "bool"))),
)
"""Constructors of boolean tensors over memory with bytes other than 0 and 1."""


def test_booleans_are_0_and_1(device: Device, rng: np.random.Generator) -> None:
    """Each way to write a boolean tensor stores 0 or 1."""
    assert ub.full(3, 5, "bool", device=device).sum().item() == 3
    x = ub.zeros(6, "bool", device=device)
    x[0] = 0.5
    x[1] = 2
    x[2] = np.nan
    x[3:5] = [7, 0]
    assert bytes_of(x) == [1, 1, 1, 1, 0, 0]
    x.fill(-3)
    assert bytes_of(x) == [1] * 6
    raw = rng.integers(0, 256, 9).astype(np.uint8)
    assert bytes_of(ub.from_numpy(raw.view(np.bool_), device=device)) == (raw != 0).tolist()
    for make in ROADS_OF_BYTES:
        with pytest.raises(ArgumentValueError, match="booleans of the bytes 0 and 1, got the byte"):
            make(device, np.array([0, 1, rng.integers(2, 256)], "u1"))
        assert make(device, np.array([0, 1, 1], "u1")).sum().item() == 2
    every_other = DeviceBuffer.from_numpy(np.array([1, 7, 0, 7], "u1"), device=device)
    assert ub.DeviceTensor(every_other, ub.Layout(2, (2,)), "bool").tolist() == [True, False]
    for dtype in ("u8", "i8", "u16", "u64", "i64", "f32", "f64"):
        values = rng.integers(0, 3, 9).astype(ub.zeros(1, dtype).dtype.dtype)
        assert bytes_of(ub.from_numpy(values, device=device).astype("bool")) == (
            (values != 0).tolist()
        ), dtype
    mask = rng.random(5) < 0.5
    y = ub.from_numpy(mask, device=device)
    z = ub.from_numpy(~mask, device=device)
    assert y.sum(dtype="bool").item() == mask.any()
    assert bytes_of(ub.cumsum(y, dtype="bool")) == np.cumsum(mask, dtype=bool).tolist()
    assert bytes_of(ub.affine(y, True, True)) == [1] * 5
    assert ub.copy(y).dtype == np.bool_
    for name in ("scatter_add", "index_add"):
        target = ub.from_numpy(mask, device=device)
        given = (np.array([1, 1, 1, 2, 2]), z, 0)
        getattr(ub, name)(target, *given)
        expected = mask.copy()
        np.logical_or.at(expected, given[0], ~mask)
        assert bytes_of(target) == expected.tolist()
    grid = ub.ones((1, 1, 4, 4), "bool", device=device)
    for refused in (
        lambda: ub.conv2d(grid, grid),
        lambda: ub.avg_pool2d(grid, 2),
        lambda: ub.upsample_bilinear2d(grid, 2, 2),
    ):
        with pytest.raises(ArgumentTypeError, match="expected numbers, got bool"):
            refused()


def test_integers_that_are_only_cast(device: Device, rng: np.random.Generator) -> None:
    for dtype in CAST_ONLY:
        kind = ub.zeros(1, dtype).dtype
        assert kind.min is not None and kind.max is not None
        values = rng.integers(kind.min, kind.max, (4, 6), kind.dtype, endpoint=True)
        x = ub.from_numpy(values, device=device)
        np.testing.assert_array_equal(x.astype("f64").to_numpy(), values.astype(np.float64))
        np.testing.assert_array_equal(x.astype("i64").to_numpy(), values.astype(np.int64))
        np.testing.assert_array_equal(x.T.copy().to_numpy(), values.T)
        np.testing.assert_array_equal(x[:, ::2].to_numpy(), values[:, ::2])
        np.testing.assert_array_equal(x.astype(dtype).to_numpy(), values)
        assert ub.full(3, kind.max, dtype, device=device).tolist() == [kind.max] * 3
        x[1:, 2:4] = kind.min
        values[1:, 2:4] = kind.min
        np.testing.assert_array_equal(ub.cat([x, x]).to_numpy(), np.concatenate([values, values]))
        back = ub.asarray([-1.0, 3.7, np.inf, np.nan], "f32", device=device).astype(dtype)
        assert back.tolist() == [max(-1, kind.min), 3, kind.max, 0]
        np.testing.assert_array_equal(ub.relu(x).to_numpy(), np.maximum(values, 0))


def test_a_cast_to_the_same_dtype_is_a_copy(device: Device) -> None:
    for dtype in ("f32", "bool", *CAST_ONLY):
        x = ub.zeros(3, dtype, device=device)
        y = x.astype(dtype)
        y[0] = 1
        assert (x.tolist()[0], y.tolist()[0]) == (0, 1)
        assert x.astype(dtype, copy=False) is x and ub.asarray(x, dtype) is x


def test_numbers_beyond_a_range(device: Device) -> None:
    for dtype, number in (("f16", 70_000), ("bf16", 1e39), ("f32", 1e39)):
        x = ub.ones(3, dtype, device=device)
        for result in (
            x + number,
            x * number,
            x - -number,
            number * x,
            ub.full_like(x, number),
            ub.affine(x, 1, number),
            ub.maximum(x, number),
            x.clip(number),
        ):
            assert result.dtype is x.dtype and np.isinf(result.astype("f64").to_numpy()).all()
        x[:] = number
        assert np.isinf(x.astype("f64").to_numpy()).all()
        with pytest.raises(ArgumentRangeError, match=r"^add: "):
            x + 10**400
    x = ub.zeros((2, 3), "u8", device=device)
    x[1] = [1, 2, 3]
    assert x.tolist() == [[0, 0, 0], [1, 2, 3]]
    with pytest.raises(ArgumentRangeError, match=r"^setitem: Python integer 300 out of bounds"):
        x[0] = [1, 2, 300]
    for wrong in (["a", "b", "c"], [[1], [2, 3]], [None] * 3):
        with pytest.raises((ArgumentTypeError, ArgumentValueError), match=r"^setitem: "):
            x[0] = wrong


def test_powers_of_integers(device: Device, rng: np.random.Generator) -> None:
    for dtype in ("u8", "i16", "i32", "i64", "u32"):
        kind = ub.zeros(1, dtype).dtype.dtype
        values = rng.integers(0, 100, 7).astype(kind)
        x = ub.from_numpy(values, device=device)
        for exponent in (0, 1, 2, 3, 4, 7, 63, int(rng.integers(3, 100))):
            with np.errstate(all="ignore"):
                expected = values**exponent
            found = x**exponent
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found.to_numpy(), expected)
        if device.backend != "webgpu":  # WebGPU has no pow of f64
            assert (x**0.5).dtype == np.float64
        with pytest.raises(ArgumentValueError, match=r"^power: integers to negative integer"):
            _ = x**-1


def test_indices_that_u32_does_not_hold(device: Device) -> None:
    x = ub.zeros(1, device=device).broadcast_to((1 << 32) + 1)
    for name in ("argmax", "argmin", "argsort", "sort"):
        with pytest.raises(ArgumentValueError, match=rf"^{name}: expected at most 2\*\*32"):
            getattr(ub, name)(x)
    with pytest.raises(ArgumentValueError, match=r"^topk: expected at most 2\*\*32"):
        ub.topk(x, 1)
    with pytest.raises(ArgumentValueError, match=r"expected at most 2\*\*32"):
        ub.launch_reduce("argmax", x.buffer, x.layout, (0,))


def test_membership_and_equality(device: Device) -> None:
    x = ub.asarray([[1.0, 2.0], [3.0, np.nan]], device=device)
    assert 3.0 in x and 4 not in x and np.nan not in x and None not in x
    for other in (None, "x", object()):
        assert (x == other) is False and (x != other) is True
    with pytest.raises(ArgumentTypeError, match="equal: unsupported operand type 'list'"):
        _ = x == [1.0]


class Foreign:
    """A tensor of a type that numpy lacks, such as torch's bfloat16."""

    def __init__(self, values: ub.DeviceTensor) -> None:
        self.values = values

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Got unsupported ScalarType BFloat16")

    def __dlpack__(self, **settings: Any) -> Any:
        return self.values.__dlpack__(**settings)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.values.__dlpack_device__()


def test_arrays_of_types_numpy_lacks(device: Device, rng: np.random.Generator) -> None:
    values = ub.from_numpy(rng.standard_normal(5), "bf16", device="host")
    found = ub.asarray(Foreign(values), device=device)
    assert found.dtype is values.dtype and found.tolist() == values.tolist()


def public_functions() -> dict[str, Callable[..., Any]]:
    """Functions on tensors, without `launch_*`."""
    return {
        name: getattr(ub, name)
        for name in ub.__all__
        if not name.startswith("launch_")
        and callable(getattr(ub, name))
        and not inspect.isclass(getattr(ub, name))
    }


OPERANDS = (
    "x",
    "y",
    "query",
    "key",
    "value",
    "keys",
    "values",
    "cache",
    "gate",
    "up",
    "condition",
    "weight",
    "bias",
    "cos",
    "sin",
    "source",
    "table",
    "mask",
)


@pytest.mark.parametrize("dtype", ["bool", "u16", "f8e4m3"])
def test_errors_name_the_function(device: Device, dtype: str) -> None:
    """The error names the public function, not its first step without a kernel for the dtype."""
    if device.backend == "webgpu":
        pytest.skip("Mesa compiles the kernels of all functions for minutes")
    shapes: list[tuple[int, ...]] = [(4,), (4, 4), (1, 4, 4), (1, 1, 4, 4)]
    others = {
        "axis": 0,
        "k": 1,
        "rows": 2,
        "columns": 2,
        "window": 2,
        "exponent": 2,
        "multiplier": 1,
        "addend": 1,
        "parts": 2,
        "shape": 3,
        "subscripts": "i,i->",
    }
    refused = 0
    for name, function in public_functions().items():
        wanted = inspect.signature(function).parameters.values()
        required = [one.name for one in wanted if one.default is one.empty and one.kind in (0, 1)]
        if name in (
            "execute_graph",
            "from_dlpack",
            "load",
            "save",
            "load_module",
            "modules",
            "trace",
        ):
            continue
        for shape in shapes:
            x = ub.zeros(shape, dtype, device=device)
            ids = ub.zeros(shape, "i64", device=device)
            given = [
                x if one in OPERANDS else ids if one == "ids" else others.get(one, x)
                for one in required
            ]
            if name in ("cat", "concatenate", "stack"):
                given = [[x, x]]
            try:
                function(*given)
            except (DeviceError, IndexError) as error:
                refused += 1
                said = str(error)
                is_numpys = not said.partition(":")[0].replace(", ", "").isidentifier()
                assert is_numpys or said.startswith((f"{name}:", f"{name},")), (name, shape, said)
    assert refused > 20


def test_describing_memory_as_bool(device: Device) -> None:
    buffer = DeviceBuffer.from_numpy(np.array([0, 1], np.uint8), device=device)
    assert ub.DeviceTensor(buffer, dtype="bool").tolist() == [False, True]


@pytest.mark.parametrize("dtype", CAST_ONLY)
def test_integers_that_are_only_cast_are_written_with_gaps(
    device: Device, rng: np.random.Generator, dtype: str
) -> None:
    values = rng.integers(0, 100, (3, 5)).astype(np.int32)
    whole = ub.full((5, 7), 77, dtype, device=device)
    found = ub.astype(ub.from_numpy(values, device=device), dtype, out=whole[:, 2:5].T)
    np.testing.assert_array_equal(found.to_numpy(), values)
    assert (whole.to_numpy()[:, [0, 1, 5, 6]] == 77).all()
    target = ub.full((5, 6), 77, dtype, device=device)
    layout = ub.Layout.contiguous((3, 5)).permute((1, 0))
    source = found.contiguous()
    ub.launch_copy(source.buffer, layout, target.buffer, target[:, ::2].layout)
    np.testing.assert_array_equal(target.to_numpy()[:, ::2], values.T)
    assert (target.to_numpy()[:, 1::2] == 77).all()
