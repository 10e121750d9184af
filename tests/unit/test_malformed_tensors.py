"""Malformed tensors: one wrong field at a time, of DLPack and of the CUDA array interface."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from tests.counting_bench import Bench
from tests.unit.test_lane_interop import Array, DLTensor, FastTensor, cuda, new_capsule, passed
from uhal import DeviceBuffer
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.frameworks import dlpack_of, strided_dlpack


class Unversioned(ctypes.Structure):
    _fields_ = (
        ("tensor", DLTensor),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def count_deleted(managed: int) -> None:
    deleted.append(managed)


deleted: list[int] = []


class Tensor:
    """A producer of a test's tensor, in a capsule of either form."""

    def __init__(self, buffer: DeviceBuffer, versioned: bool, **changes: Any) -> None:
        self.device: Any = (2, 0)
        self.managed = Versioned(major=1, minor=0) if versioned else Unversioned()
        self.managed.deleter = ctypes.cast(count_deleted, ctypes.c_void_p).value
        lengths = changes.pop("shape", (buffer.size,))
        strides = changes.pop("strides", None)
        tensor = self.managed.tensor
        tensor.data, tensor.device_type = buffer.as_device_ptr().address, 2
        tensor.code, tensor.bits, tensor.lanes = 2, 32, 1
        self.shape = None if lengths is None else (ctypes.c_int64 * 99)(*lengths)
        self.strides = None if strides is None else (ctypes.c_int64 * 99)(*strides)
        tensor.ndim = len(lengths or ())
        tensor.shape, tensor.strides = self.shape, self.strides
        for name, value in changes.items():
            if name in ("major", "flags"):
                setattr(self.managed, name, value)
            elif name == "device":
                self.device = value
            else:
                setattr(tensor, name, value)
        self.name = b"dltensor_versioned" if versioned else b"dltensor"

    def __dlpack__(self, **asked: Any) -> object:
        return new_capsule(ctypes.addressof(self.managed), self.name, None)

    def __dlpack_device__(self) -> Any:
        return self.device


MALFORMED: list[dict[str, Any]] = [
    {"ndim": -1},
    {"ndim": -(2**31)},
    {"ndim": 65},
    {"ndim": 2**31 - 1},
    {"shape": None, "ndim": 1},
    {"shape": (-1,)},
    {"shape": (0, -1)},
    {"shape": (-(2**63),)},
    {"shape": (-1, -1)},
    {"shape": (2**32, 2**32)},
    {"shape": (2**62, 4)},
    {"shape": (2**63 - 1,)},
    {"shape": (2**61,)},
    {"shape": (2**31, 2**31, 2**31)},
    {"data": None, "shape": (3,)},
    {"data": None, "shape": ()},
    {"byte_offset": 2**64 - 1},
    {"byte_offset": 2**64 - 2**12},
    {"data": 2**64 - 4},
    {"lanes": 0},
    {"lanes": 2},
    {"lanes": 65535},
    {"bits": 0},
    {"bits": 1},
    {"bits": 31},
    {"bits": 255},
    {"code": 3},
    {"code": 32},
    {"code": 255},
    {"device_type": 0},
    {"device_type": 1},
    {"device_type": -1},
    {"device_type": 2**31 - 1},
    {"device_id": 1},
    {"device_id": -1},
    {"device": (2**70, 0)},
    {"device": (2, 2**70)},
    {"device": (2, None)},
    {"device": ("cuda", 0)},
    {"device": (2,)},
    {"device": None},
    {"device": 2},
    {"shape": (2, 2), "strides": (1, 2)},
    {"shape": (2, 2), "strides": (-2, 1)},
    {"shape": (2, 2), "strides": (2**62, 2**62)},
    {"shape": (4, 4), "strides": (2**63 - 1, 1)},
    {"shape": (3,), "strides": (2**62,)},
]
WELL_FORMED: list[tuple[dict[str, Any], int]] = [
    ({}, 4),
    ({"shape": (2, 2)}, 4),
    ({"shape": ()}, 1),
    ({"shape": (0,), "data": None}, 0),
    ({"shape": (2**62, 2**62, 0)}, 0),
    ({"shape": (0, 3), "strides": (7, 7)}, 0),
    ({"shape": (1, 4), "strides": (2**62, 1)}, 4),
    ({"shape": (1,) * 64}, 1),
    ({"byte_offset": 8, "shape": (2,)}, 2),
]
BOTH = pytest.mark.parametrize("versioned", [False, True])
REFUSALS = (BufferError, ArgumentTypeError, ArgumentValueError)


@pytest.mark.parametrize("changes", MALFORMED, ids=str)
@BOTH
@cuda
def test_a_malformed_capsule_is_refused(
    bench: Bench, changes: dict[str, Any], versioned: bool
) -> None:
    buffer = bench.buffer(4)
    deleted.clear()
    with pytest.raises(REFUSALS):
        DeviceBuffer.from_dlpack(Tensor(buffer, versioned, **changes))
    taken = len(deleted)
    assert taken == (0 if "device" in changes else 1), "a capsule that was taken is given back"
    strides = changes.get("strides")
    if strides not in ((1, 2), (2**62,)):
        with pytest.raises(REFUSALS):
            strided_dlpack(Tensor(buffer, versioned, **changes))
    with pytest.raises(ArgumentTypeError, match="expected memory of f32"):
        passed(bench, (buffer, Tensor(buffer, versioned, **changes)))


@pytest.mark.parametrize(("changes", "size"), WELL_FORMED, ids=str)
@BOTH
@cuda
def test_a_well_formed_capsule_is_taken(
    bench: Bench, changes: dict[str, Any], size: int, versioned: bool
) -> None:
    buffer = bench.buffer(4)
    assert DeviceBuffer.from_dlpack(Tensor(buffer, versioned, **changes)).size == size
    whole, shape, strides = strided_dlpack(Tensor(buffer, versioned, **changes))
    assert len(shape) == len(strides) == len(changes.get("shape", (4,)))
    assert whole.size >= size


@pytest.mark.parametrize("major", [0, 2, 2**32 - 1])
@cuda
def test_another_major_version_is_refused(bench: Bench, major: int) -> None:
    with pytest.raises(BufferError, match=f"expected DLPack 1.x, got {major}.x"):
        DeviceBuffer.from_dlpack(Tensor(bench.buffer(4), True, major=major))


@pytest.mark.parametrize(
    "changes", [one for one in MALFORMED if not {"device", "shape", "strides"} & set(one)], ids=str
)
@cuda
def test_a_malformed_tensor_of_the_c_exchange_is_refused(
    bench: Bench, changes: dict[str, Any]
) -> None:
    tensor = FastTensor(bench.buffer(4), **changes)
    if changes in ({"byte_offset": 2**64 - 1}, {"byte_offset": 2**64 - 2**12}, {"data": 2**64 - 4}):
        return  # the driver judges this address; an empty launch does not use it
    with pytest.raises(ArgumentTypeError, match="expected memory of f32"):
        passed(bench, (bench.buffer(4), tensor))


@pytest.mark.parametrize("lengths", [(-1,), (2**62, 8), (2**61,)], ids=str)
@cuda
def test_malformed_lengths_of_the_c_exchange_are_refused(
    bench: Bench, lengths: tuple[int, ...]
) -> None:
    numbers = (ctypes.c_int64 * 2)(*lengths)
    tensor = FastTensor(bench.buffer(4), ndim=len(lengths), shape=numbers)
    with pytest.raises(ArgumentTypeError, match="expected memory of f32"):
        passed(bench, (bench.buffer(4), tensor))


FACTS: list[dict[str, Any]] = [
    {"shape": None},
    {"shape": 4},
    {"shape": "44"},
    {"shape": (-1,)},
    {"shape": (-1, -1)},
    {"shape": (2**32, 2**32)},
    {"shape": (2**70,)},
    {"shape": (1.5,)},
    {"shape": (True,)},
    {"typestr": None},
    {"typestr": 5},
    {"typestr": "nonsense"},
    {"typestr": "|V8"},
    {"typestr": "<c8"},
    {"data": None},
    {"data": 5},
    {"data": (0, False)},
    {"data": (None, False)},
    {"data": (-1, False)},
    {"data": (2**64, False)},
    {"data": (2**64 - 4, False)},
    {"data": (1,)},
    {"data": (True, False)},
    {"strides": (8,)},
    {"strides": (4, 4)},
    {"strides": 4},
    {"strides": "4"},
    {"strides": (2**70,)},
    {"stream": 0},
    {"stream": -1},
    {"stream": "1"},
    {"stream": 2**64},
    {"stream": True},
    {"stream": 1.0},
]


@pytest.mark.parametrize("changes", FACTS, ids=str)
@cuda
def test_malformed_facts_of_the_cuda_array_interface_are_refused(
    bench: Bench, changes: dict[str, Any]
) -> None:
    buffer = bench.buffer(4)
    with pytest.raises(REFUSALS):
        DeviceBuffer.from_cuda_array_interface(Array(buffer, **changes))
    with pytest.raises(ArgumentTypeError, match="expected memory of f32"):
        passed(bench, (buffer, Array(buffer, **changes)))


@pytest.mark.parametrize("name", ["shape", "typestr", "data"])
@cuda
def test_missing_facts_of_the_cuda_array_interface_are_refused(bench: Bench, name: str) -> None:
    array = Array(bench.buffer(4))
    del array.facts[name]
    with pytest.raises(BufferError, match=name):
        DeviceBuffer.from_cuda_array_interface(array)


@cuda
def test_an_interface_of_the_object_alone_gets_advice(bench: Bench) -> None:
    class Late:
        def __init__(self, facts: dict[str, Any]) -> None:
            self.__cuda_array_interface__ = facts

    late = Late(Array(bench.buffer(4)).facts)
    with pytest.raises(ArgumentTypeError, match=r"DeviceBuffer\.from_cuda"):
        passed(bench, (bench.buffer(4), late))
    assert DeviceBuffer.from_cuda_array_interface(late).size == 4


class ShapeIsAMethod:
    def __dlpack__(self, **asked: Any) -> object:
        raise BufferError("never")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def shape(self) -> tuple[int]:
        return (4,)


class ShapeFails(ShapeIsAMethod):
    @property
    def shape(self) -> tuple[int]:  # type: ignore[override]
        raise RuntimeError("no shape today")


@pytest.mark.parametrize("make", [ShapeIsAMethod, ShapeFails])
@cuda
def test_a_tensor_that_cannot_be_described_is_refused_in_words(
    bench: Bench, make: Callable[[], Any]
) -> None:
    with pytest.raises(ArgumentTypeError, match=f"got .*{make.__name__}"):
        passed(bench, (bench.buffer(4), make()))


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((1,), ()), ((2**63,), (1,)), ((1,), (2**63,)), (("x",), (1,)), ((1,) * 65, (1,) * 65)],
    ids=str,
)
@cuda
def test_lengths_that_cannot_be_exported_are_refused(
    bench: Bench, shape: Any, strides: Any
) -> None:
    for version in (None, (1, 0)):
        with pytest.raises(ArgumentValueError, match="shape, strides"):
            dlpack_of(None, bench.buffer(4), shape, strides, stream=-1, max_version=version)


@cuda
def test_malformed_questions_of_a_consumer_are_refused(bench: Bench) -> None:
    buffer = bench.buffer(4)
    asked: list[dict[str, Any]] = [
        *({"stream": stream} for stream in (0, -2, 2**64, 2**70, "1", 1.0, True)),
        *({"max_version": one} for one in (1, (1,), ("1", 0), (None, 0), "10")),
        *({"dl_device": one} for one in (2, (2,), ("2", 0), (3, 0), (2, 1), (2**70, 0))),
    ]
    for keywords in asked:
        with pytest.raises(BufferError):
            buffer.__dlpack__(**keywords)
