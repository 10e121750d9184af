"""A tensor as a numpy user expects it: making, indexing, viewing, printing, mistakes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ubridge
from tests.sampling import SOAK, rounds
from ubridge import DeviceTensor, Layout
from uhal import Device, DeviceBuffer, Stream, StreamFlags
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError

DEVICES = ("host",)


def test_making(device: Device) -> None:
    assert ubridge.zeros((2, 3)).tolist() == [[0.0] * 3] * 2
    assert ubridge.ones(3, "i64").tolist() == [1, 1, 1]
    assert ubridge.full((), 2.5).item() == 2.5
    assert ubridge.full(2, True, "bool").tolist() == [True, True]
    assert ubridge.empty((4, 0)).shape == (4, 0)
    assert ubridge.arange(2, 11, 3).tolist() == [2, 5, 8]
    assert ubridge.arange(1.0, 2.0, 0.25).dtype == np.float32
    assert ubridge.asarray([1.5, 2]).dtype == np.float32
    assert ubridge.asarray(np.array([1.5, 2])).dtype == np.float64
    assert ubridge.asarray([1, 2]).dtype == np.int64
    x = ubridge.asarray([[1, 2]], "f16")
    assert ubridge.asarray(x) is x
    for like in (ubridge.zeros_like, ubridge.ones_like, ubridge.empty_like):
        assert (like(x).shape, like(x).dtype) == (x.shape, x.dtype)
    assert ubridge.full_like(x, 7, "u8").tolist() == [[7, 7]]


@pytest.mark.parametrize(
    "index",
    [
        np.s_[1],
        np.s_[-1],
        np.s_[1:3],
        np.s_[:, 2],
        np.s_[..., 1],
        np.s_[1, ..., 2],
        np.s_[:, None, 1:],
        np.s_[None, ..., None],
        np.s_[::2, 1::2],
        np.s_[5:2],
        np.s_[-3:-1, ..., -2:],
        np.s_[1, 2, 3],
        np.s_[...],
        np.s_[()],
        np.s_[..., None, 1:2],
    ],
    ids=str,
)
def test_indexing(index: Any, device: Device, rng: np.random.Generator) -> None:
    array = rng.normal(size=(4, 5, 6)).astype(np.float32)
    x = ubridge.from_numpy(array)
    np.testing.assert_array_equal(x[index].to_numpy(), array[index])
    x[index] = 9
    array[index] = 9
    np.testing.assert_array_equal(x.to_numpy(), array)
    values = rng.normal(size=array[index].shape)
    x[index] = values
    array[index] = values
    np.testing.assert_array_equal(x.to_numpy(), array)


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (4, "index 4 is out of bounds for axis 0 with size 4"),
        ((0, 0, 0), "too many indices for array: array is 2-dimensional, but 3 were indexed"),
        ((..., ...), "single ellipsis"),
        ([0, 4], "index 4 is out of bounds for axis 0 with size 4"),
        (True, "expected a mask of one axis or more, got one bool"),
        (1.5, "only integers, slices"),
    ],
)
def test_wrong_indices(index: Any, words: str, device: Device) -> None:
    with pytest.raises(IndexError, match=words):
        ubridge.zeros((4, 5))[index]


def test_views_share_memory(device: Device) -> None:
    x = ubridge.zeros((3, 4))
    x.T[1] = 5
    assert x.tolist() == [[0, 5, 0, 0]] * 3
    y = x.reshape(2, 6)
    assert y.buffer is x.buffer
    assert x.T.reshape(12).buffer is not x.buffer
    assert x.narrow(1, 1, 2).shape == (3, 2)
    assert x.expand_dims(1).squeeze(1).shape == (3, 4)
    assert x.swapaxes(0, 1).T.contiguous() is not None
    assert x.contiguous() is x
    assert [row.tolist() for row in x] == x.tolist()
    assert (len(x), x.ndim, x.size, x.nbytes) == (3, 2, 12, 48)


def test_joining(device: Device, rng: np.random.Generator) -> None:
    for _ in range(rounds(5, 100)):
        arrays = [rng.normal(size=(3, int(n), 2)).astype(np.float32) for n in rng.integers(0, 4, 3)]
        tensors = [ubridge.from_numpy(array) for array in arrays]
        np.testing.assert_array_equal(ubridge.cat(tensors, 1).to_numpy(), np.concatenate(arrays, 1))
    pair = [ubridge.ones((2, 3)), ubridge.zeros((2, 3), "f64")]
    assert ubridge.cat(pair, -1).dtype == np.float64
    for axis in (0, 1, -1):
        expected = np.stack([one.to_numpy() for one in pair], axis)
        np.testing.assert_array_equal(ubridge.stack(pair, axis).to_numpy(), expected)


def test_text_is_numpys(device: Device, rng: np.random.Generator) -> None:
    for shape in ((), (3,), (2, 3), (0, 4), (50, 50), (3, 2000), (8, 9, 100)):
        array = rng.normal(size=shape).astype(np.float32)
        x = ubridge.from_numpy(array)
        if array.size <= 1000:
            assert str(x) == np.array2string(array, separator=", ")
        else:
            lines = str(x)
            assert "..." in lines and len(lines) < 5000
        assert repr(x).startswith("DeviceTensor(")
        assert repr(x).endswith("dtype=f32, device='host:0')")
    whole = np.arange(12000, dtype=np.int64).reshape(100, 120)
    assert str(ubridge.from_numpy(whole)) == np.array2string(whole, separator=", ")


def test_numbers_come_out(device: Device) -> None:
    x = ubridge.asarray([[2.5]])
    assert (float(x), int(x), bool(x), x.item()) == (2.5, 2, True, 2.5)
    assert [10, 20, 30][ubridge.asarray([1])] == 20
    np.testing.assert_array_equal(np.asarray(ubridge.ones((2, 2))), np.ones((2, 2)))
    with pytest.raises(ValueError, match="truth value of an array with more than one element"):
        bool(ubridge.ones(2))
    with pytest.raises(ValueError, match="array of size 1"):
        ubridge.ones(2).item()
    with pytest.raises(TypeError, match="scalar index"):
        [1, 2][ubridge.asarray([1.0])]
    with pytest.raises(TypeError, match="unsized object"):
        len(ubridge.ones(()))
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)


def test_numpy_on_the_left_gives_way(device: Device) -> None:
    x = ubridge.asarray([1, 2], "f32")
    assert isinstance(np.float32(2) * x, DeviceTensor)
    assert (np.float32(2) * x).tolist() == [2, 4]
    assert (np.float64(2) + x).dtype == np.float64


def test_booleans_combine(device: Device) -> None:
    x, y = ubridge.asarray([True, True, False]), ubridge.asarray([True, False, False])
    assert (x & y).tolist() == [True, False, False]
    assert (x | y).tolist() == [True, True, False]
    assert (x ^ y).tolist() == [False, True, False]
    assert (~x).tolist() == [False, False, True]
    assert (x + y).tolist() == [True, True, False]
    with pytest.raises(ArgumentTypeError, match="numpy boolean subtract"):
        x - y
    with pytest.raises(ArgumentTypeError, match="bitwise_and: dtype f32 is not supported"):
        ubridge.ones(2) & ubridge.ones(2)


def test_other_dtypes_are_carried(device: Device) -> None:
    for dtype in ("u16", "u64", "i8"):
        array = np.arange(12).reshape(3, 4).astype(ubridge.zeros(1, dtype).dtype.dtype)
        x = ubridge.from_numpy(array)
        np.testing.assert_array_equal(x.T[1:].to_numpy(), array.T[1:])


def test_dlpack(device: Device) -> None:
    x = ubridge.arange(6)
    shared = np.from_dlpack(x)
    np.testing.assert_array_equal(shared, np.arange(6))
    np.testing.assert_array_equal(np.from_dlpack(x.reshape(2, 3)), np.arange(6).reshape(2, 3))
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    y = ubridge.from_dlpack(array)
    y[0] = 7
    assert y.to_numpy().tolist() == [[7, 7, 7], [3, 4, 5]]
    assert array[0, 0] == 7


def test_a_tensor_over_a_buffer(device: Device) -> None:
    buffer = DeviceBuffer.from_numpy(np.arange(12, dtype=np.float32))
    x = DeviceTensor(buffer, Layout((3, 2), (1, 6), 2))
    assert x.tolist() == [[2, 8], [3, 9], [4, 10]]
    assert DeviceTensor(buffer).shape == (12,)
    with pytest.raises(ArgumentValueError, match="at least 13 elements, which the layout reaches"):
        DeviceTensor(buffer, Layout.contiguous(12, 1))
    with pytest.raises(ArgumentTypeError, match="expected the buffer's, f32, got f64"):
        DeviceTensor(buffer, dtype="f64")
    flags = DeviceTensor(DeviceBuffer.from_numpy(np.array([True, False])))
    assert flags.dtype == np.bool_ and (~flags).tolist() == [False, True]


OTHER: Callable[[], DeviceTensor] = lambda: ubridge.zeros((2, 3))  # noqa: E731


@pytest.mark.parametrize(
    ("attempt", "error", "words"),
    [
        (lambda: OTHER() + ubridge.zeros((2, 4)), ValueError, r"broadcast together .*\(2, 4\)"),
        (lambda: OTHER() + "x", TypeError, "add: unsupported operand type 'str'"),
        (lambda: OTHER() + np.zeros(3), TypeError, "add: unsupported operand type 'ndarray'"),
        (lambda: ubridge.exp(np.zeros(3)), TypeError, "exp: expected a DeviceTensor, got ndarray"),
        (lambda: ubridge.add(OTHER(), 1, out=ubridge.zeros(2)), ValueError, "add: non-broadcast"),
        (lambda: ubridge.add(OTHER(), 1, out=OTHER().astype("f64")), TypeError, "cannot cast"),
        (lambda: ubridge.zeros(3, "u8") + 256, OverflowError, "add: Python integer 256 out of"),
        (lambda: ubridge.zeros(3, "f16") + ubridge.zeros(3, "bf16"), TypeError, "no dtype holds"),
        (lambda: ubridge.zeros((2, -1)), ValueError, "negative dimensions are not allowed"),
        (lambda: ubridge.zeros(2, "f33"), TypeError, "expected a dtype, one of"),
        (lambda: OTHER().reshape(4), ValueError, "cannot reshape array of size 6 into shape"),
        (lambda: ubridge.cat([]), ValueError, "cat: need at least one array to concatenate"),
        (lambda: ubridge.cat([OTHER(), ubridge.zeros((3, 3))], 1), ValueError, "along dimension 0"),
        (lambda: ubridge.stack([OTHER(), ubridge.zeros(3)]), ValueError, "same shape"),
        (lambda: OTHER().broadcast_to((4, 2, 3)).fill(1), ValueError, "several elements at one"),
        (lambda: OTHER() ** ubridge.zeros(4), ValueError, "power: operands could not be broadcast"),
        (lambda: ubridge.where([True], OTHER(), 1), TypeError, "where: expected a DeviceTensor"),
    ],
)
def test_mistakes_are_named(
    attempt: Callable[[], object], error: type[Exception], words: str, device: Device
) -> None:
    with pytest.raises(error, match=words):
        attempt()


def test_closed_and_foreign_memory_is_refused(device: Device) -> None:
    x = ubridge.zeros(3)
    x.buffer.close()
    with pytest.raises(InvalidHandleError):
        x + 1
    with Stream(StreamFlags.NON_BLOCKING) as stream:
        pass
    with pytest.raises(InvalidHandleError):
        ubridge.exp(ubridge.zeros(3), stream=stream)


def test_shapes_pickle_as_themselves(device: Device) -> None:
    assert pickle.loads(pickle.dumps(ubridge.zeros((2, 3)).shape)) == (2, 3)


@pytest.mark.skipif(not SOAK, reason="takes 4 GiB of memory: soak only")
def test_more_elements_than_32_bits_of_bytes(device: Device) -> None:
    """One operation covers 2^31 bytes or more; u8 elements fit the machine's memory."""
    size = (1 << 31) + 5
    x = ubridge.zeros(size, "u8")
    x[-3:] = 7
    x[:1] = 3
    y = ubridge.square(x)
    tail = y[size - 4 :].tolist()
    assert (y[0].item(), tail) == (9, [0, 49, 49, 49])
