"""DLPack exports and imports tensors of any axes and strides without a copy."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import ubridge
from tests.sampling import rounds
from tests.ubridge.op_rows import row_of
from tests.ubridge.operands import LAYOUTS, operand, shape_of
from ubridge import DeviceTensor
from uhal import Device
from uhal.dtypes import ALL

DEVICES = ("host", "cuda-sim", "rocm-sim")


@pytest.fixture(autouse=True)
def images(device: Device) -> None:
    row_of(device.backend).require_images()


class Once:
    """Exports a tensor's capsule like a library from before DLPack 1.0."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, stream: int | None = None) -> Any:
        return self.tensor.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.tensor.__dlpack_device__()
        return device


class Now(Once):
    """Exports a tensor's capsule like a library of DLPack 1.0."""

    def __dlpack__(self, **asked: Any) -> Any:
        return self.tensor.__dlpack__(**asked)


def test_a_view_goes_out_and_in(device: Device, rng: np.random.Generator) -> None:
    """Both views share memory and strides: each sees the other's writes."""
    for layout in LAYOUTS:
        for _ in range(rounds(3, 100)):
            dtype = str(rng.choice([one.name for one in ALL]))
            shape = shape_of(rng, layout)
            x = operand(rng, device, layout, dtype, shape)
            given = (Once, Now, lambda tensor: tensor)[rng.integers(3)](x.tensor)
            y = ubridge.from_dlpack(given, device=device)
            told = f"{dtype} {layout} {shape} {x.tensor.layout}"
            assert (y.shape, y.dtype) == (x.tensor.shape, x.tensor.dtype), told
            assert y.to_numpy().tobytes() == x.array.tobytes(), told
            lengths = zip(shape, y.layout.strides, x.tensor.layout.strides, strict=True)
            assert all(one == other for length, one, other in lengths if length > 1), told
            if y.size and dtype in ubridge.OPS["fill"].dtypes and not y.layout.may_alias:
                y.fill(1)
                assert (x.tensor.to_numpy() == 1).all(), told


def test_numpy_reads_and_writes_a_view_in_place(host: Device, rng: np.random.Generator) -> None:
    for layout in LAYOUTS:
        dtype = str(rng.choice(["f32", "f64", "i16", "u8", "bool", "f16"]))
        x = operand(rng, host, layout, dtype, shape_of(rng, layout))
        array = np.from_dlpack(x.tensor)
        assert array.dtype == x.array.dtype
        assert array.tobytes() == x.array.tobytes()
    x = ubridge.zeros((3, 4), device=host)
    np.from_dlpack(x.T[1:])[...] = 7
    assert x.tolist() == [[0, 7, 7, 7]] * 3
    copied = np.from_dlpack(x.T, copy=True)
    x.fill(1)
    assert copied.tolist() == [[0] * 3, *[[7] * 3] * 3]


def test_a_host_consumer_gets_a_copy(device: Device, rng: np.random.Generator) -> None:
    x = operand(rng, device, "stepped", "f32", (4, 5))
    if device.backend == "host":
        pytest.skip("it is a consumer of the same memory")
    array = np.from_dlpack(x.tensor, device="cpu")
    assert array.tobytes() == x.array.tobytes()
    with pytest.raises(BufferError, match="copy=False cannot be had"):
        x.tensor.__dlpack__(dl_device=(1, 0), copy=False)


def test_numpys_views_come_in(host: Device) -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for view in (array.T, array[:, ::2, 1:], array[:, 1]):
        x = ubridge.from_dlpack(view)
        np.testing.assert_array_equal(x.to_numpy(), view)
        np.testing.assert_array_equal((x * 2).to_numpy(), view * 2)
    ubridge.from_dlpack(array.T)[0] = 9
    host.synchronize()
    assert (array[..., 0] == 9).all()
    with pytest.raises(BufferError, match="expected strides of at least 0, got -1 along axis 0"):
        ubridge.from_dlpack(np.arange(5)[::-1])
    number = ubridge.from_dlpack(np.array(2.5))
    assert (number.shape, number.item()) == ((), 2.5)
    assert ubridge.from_dlpack(np.zeros((3, 0, 2))[::2]).shape == (2, 0, 2)


def test_a_view_outlives_its_tensor(device: Device, rng: np.random.Generator) -> None:
    def made() -> tuple[DeviceTensor, np.ndarray[Any, Any]]:
        x = operand(rng, device, "transposed", "f32", (30, 20))
        return ubridge.from_dlpack(x.tensor[2:], device=device), x.array[2:]

    y, expected = made()
    gc.collect()
    others = [ubridge.full((30, 20), 7, device=device) for _ in range(5)]
    np.testing.assert_array_equal(y.to_numpy(), expected)
    assert len(others) == 5
