"""Selecting and adding by index, ids out of bounds, and sorting."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import ubridge
from tests.sampling import rounds
from tests.ubridge.kernel_bench import (
    FLOATS,
    INTEGERS,
    Array,
    Output,
    assert_same,
    numpy_dtype,
    random_geometry,
    random_values,
    run,
    strided,
    words,
)
from ubridge.core.kernel_def import keyed_bytes
from uhal import Device, DeviceBuffer, HostBuffer

pytestmark = pytest.mark.entries

TYPES = (*FLOATS, *INTEGERS)
IDS = ("u8", "u32", "i64")
BY_IDS = [(kind, dtype) for kind in IDS for dtype in TYPES]
# For ids of i16 and i32, Candle only has kernels for f8, and no kernel that stores.
BY_MORE_IDS = [*BY_IDS, ("i16", "f8_e4m3"), ("i32", "f8_e4m3")]


class FaultRecord(ctypes.Structure):
    """`struct uhal_fault_record` of uhal/fault.h."""

    _fields_ = (
        ("state", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("position", ctypes.c_uint64),
        ("value", ctypes.c_int64),
        ("bound", ctypes.c_uint64),
        ("entry", ctypes.c_char * 32),
    )


def ids_of(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], bound: int) -> Array:
    ids = rng.integers(0, bound, shape).astype(numpy_dtype(dtype))
    missing = rng.random(shape) < 0.2
    return np.where(missing, np.iinfo(ids.dtype).max, ids)


def sizes(rng: np.random.Generator) -> tuple[int, int, int, int]:
    left, dim, right = (int(size) for size in rng.integers(1, 9, 3))
    return left, dim, right * int(rng.choice([1, 1, 13])), int(rng.integers(1, 12))


@pytest.mark.parametrize(("kind", "spelled"), BY_MORE_IDS)
def test_index_select(device: Device, rng: np.random.Generator, kind: str, spelled: str) -> None:
    dtype = spelled.replace("f8_", "f8")
    for layout in ("contiguous", "transposed"):
        left, dim, right, count = sizes(rng)
        values = random_values(rng, dtype, left * dim * right).reshape(left, dim, right)
        ids = strided(rng, kind, layout, (count, 3))
        ids.storage[...] = ids_of(rng, kind, ids.storage.shape, dim)
        output = Output(dtype, left * 3 * count * right)
        info = words(ids.shape, ids.strides) if layout == "transposed" else None
        run(
            device,
            "indexing",
            f"is_{kind}_{spelled}",
            left * 3 * count * right,
            2,
            info,
            ids.buffer(),
            DeviceBuffer.from_numpy(values.ravel()),
            output.buffer,
            left,
            dim,
            3 * count,
            right,
            **random_geometry(rng),
        )
        chosen = ids.values.ravel()
        missing = chosen == np.iinfo(chosen.dtype).max
        expected = values[:, np.where(missing, 0, chosen).astype(np.int64)]
        expected[:, missing] = 0
        assert_same(output.to_numpy(), expected)


@pytest.mark.parametrize(("kind", "spelled"), BY_MORE_IDS)
def test_gather(device: Device, rng: np.random.Generator, kind: str, spelled: str) -> None:
    dtype = spelled.replace("f8_", "f8")
    for _ in range(rounds(3, 100)):
        left, dim, right, count = sizes(rng)
        values = random_values(rng, dtype, left * dim * right).reshape(left, dim, right)
        ids = ids_of(rng, kind, (left, count, right), dim)
        output = Output(dtype, ids.size)
        run(
            device,
            "indexing",
            f"gather_{kind}_{spelled}",
            ids.size,
            DeviceBuffer.from_numpy(ids.ravel()),
            DeviceBuffer.from_numpy(values.ravel()),
            output.buffer,
            left,
            dim,
            count,
            right,
            **random_geometry(rng),
        )
        missing = ids == np.iinfo(ids.dtype).max
        expected = np.take_along_axis(values, np.where(missing, 0, ids).astype(np.int64), 1)
        expected[missing] = 0
        assert_same(output.to_numpy(), expected)


@pytest.mark.parametrize("right", [1, 3])
def test_the_highest_id_gathers_nothing_however_long_the_axis(
    device: Device, rng: np.random.Generator, right: int
) -> None:
    x = random_values(rng, "f32", 300 * right)
    ids = np.array([254, 255, 0, 255, 7], "u1").repeat(right)
    output = Output("f32", ids.size)
    given = (DeviceBuffer.from_numpy(one) for one in (ids, x))
    entry, geometry = "gather_u8_f32", random_geometry(rng)
    run(device, "indexing", entry, ids.size, *given, output.buffer, 1, 300, 5, right, **geometry)
    expected = x.reshape(300, right)[ids.reshape(5, right), np.arange(right)].ravel()
    assert_same(output.to_numpy(), np.where(ids == 255, np.float32(0), expected))


def added(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iuf" and a.dtype != np.float16:
        return a + b
    result = a.astype(np.float32) + b.astype(np.float32)
    if a.dtype == numpy_dtype("f8e4m3"):
        result = np.where(np.isnan(result), result, np.clip(result, -448, 448))
    return np.asarray(result).astype(a.dtype)


@pytest.mark.parametrize(
    ("operation", "kind", "spelled"),
    [("s", *case) for case in BY_IDS]
    + [(operation, *case) for operation in ("ia", "sa") for case in BY_MORE_IDS],
)
def test_writing(
    device: Device, rng: np.random.Generator, operation: str, kind: str, spelled: str
) -> None:
    dtype = spelled.replace("f8_", "f8")
    for _ in range(rounds(2, 60)):
        left, dim, right, count = sizes(rng)
        values = random_values(rng, dtype, left * count * right, special=False)
        values = values.reshape(left, count, right)
        target = random_values(rng, dtype, left * dim * right, special=False)
        target = target.reshape(left, dim, right)
        shape = (count,) if operation == "ia" else (left, count, right)
        ids = ids_of(rng, kind, shape, dim)
        output = Output.holding(dtype, target)
        given = DeviceBuffer.from_numpy(ids.ravel()), DeviceBuffer.from_numpy(values.ravel())
        sizes_of = (left, count, dim, right)
        if operation == "ia":
            arguments = (given[0], count, given[1], output.buffer, *sizes_of)
        else:
            arguments = (*given, output.buffer, *sizes_of)
        entry = f"{operation}_{kind}_{spelled}"
        run(device, "indexing", entry, *arguments, **random_geometry(rng))
        each = np.broadcast_to(ids[None, :, None], values.shape) if operation == "ia" else ids
        with np.errstate(over="ignore"):
            for j in range(count):
                for before, after in np.ndindex(left, right):
                    index = int(each[before, j, after])
                    if index == np.iinfo(ids.dtype).max:
                        continue
                    value = values[before, j, after]
                    old = target[before, index, after]
                    target[before, index, after] = value if operation == "s" else added(old, value)
        assert_same(output.to_numpy(), target)


@pytest.mark.parametrize("wrong", [7, -1, 1 << 40])
@pytest.mark.parametrize("operation", ["is", "gather", "ia", "s", "sa"])
def test_a_bad_id_is_told_once_and_skipped(
    device: Device, rng: np.random.Generator, operation: str, wrong: int
) -> None:
    channel = ubridge.load_module("indexing", device=device).get_global("uhal_fault", "u64")
    # Earlier operations of this process may have set the module's fault record.
    before = channel.to_numpy()
    told = HostBuffer(ctypes.sizeof(FaultRecord), "u8", device=device, mapped=True)
    told.array[...] = 0
    record = FaultRecord.from_buffer(told.array)
    ids = np.array([3, wrong, 0, wrong, (1 << 63) - 1], np.int64)
    values = rng.standard_normal(7 if operation in ("is", "gather") else 5).astype(np.float32)
    entry = f"{operation}_i64_f32"
    arrays = [DeviceBuffer.from_numpy(ids), DeviceBuffer.from_numpy(values)]

    def launched() -> Array:
        if operation in ("is", "gather"):
            output = Output("f32", 5)
            first = (5, 1, None) if operation == "is" else (5,)
            run(device, "indexing", entry, *first, *arrays, output.buffer, 1, 7, 5, 1, grid=1)
        else:
            output = Output.holding("f32", np.zeros(7, np.float32))
            middle = (5,) if operation == "ia" else ()
            tail = (output.buffer, 1, 5, 7, 1)
            run(device, "indexing", entry, arrays[0], *middle, arrays[1], *tail, grid=1)
        return output.to_numpy()

    expected = np.zeros(5 if operation in ("is", "gather") else 7, np.float32)
    if operation in ("is", "gather"):
        expected[[0, 2]] = values[[3, 0]]
    else:
        expected[[3, 0]] = values[[0, 2]]
    channel.copy_from(np.zeros(1, np.uint64))
    try:
        # Without a record, no fault is reported.
        assert_same(launched(), expected)
        channel.copy_from(np.array([int(told.device_ptr)], np.uint64))
        assert_same(launched(), expected)
        assert (record.state, record.value) == (2, wrong)
        assert (record.bound, record.entry) == (7, entry.encode())
        # Work-items run in any order: either wrong id may be reported first.
        assert record.position in (1, 3)
        # The record is written once: later faults do not change it.
        record.position = 99
        assert_same(launched(), expected)
        assert record.position == 99
    finally:
        channel.copy_from(before)


def order_of(values: Array, ascending: bool) -> Array:
    """Sort stably, with NaN as the largest."""
    wide = values.astype(np.longdouble)
    ranks = np.unique(wide, return_inverse=True, equal_nan=True)[1].reshape(wide.shape)
    return np.argsort(ranks if ascending else -ranks, axis=-1, kind="stable").astype(np.uint32)


@pytest.mark.parametrize("dtype", [one for one in TYPES if one != "f8e4m3"])
@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_sort(device: Device, rng: np.random.Generator, direction: str, dtype: str) -> None:
    for cols in (1, 2, 3, 64, 257):
        values = random_values(rng, dtype, 3 * cols).reshape(3, cols)
        values[1] = rng.choice(values[1, :3], cols)
        output = Output("u32", values.size)
        padded = 1 << (cols - 1).bit_length()
        run(
            device,
            "sort",
            f"asort_{direction}_{dtype}",
            DeviceBuffer.from_numpy(values.ravel()),
            output.buffer,
            cols,
            padded,
            grid=3,
            block=min(padded, 1024),
            shared=keyed_bytes(values.itemsize) * padded,
        )
        assert_same(output.to_numpy(), order_of(values, direction == "asc"))


@pytest.mark.parametrize("dtype", [one for one in TYPES if one != "f8e4m3"])
@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_runs_are_sorted_and_joined(
    device: Device, rng: np.random.Generator, direction: str, dtype: str
) -> None:
    """Every target joins runs of 1,024 elements or more; rows end inside and after a run."""
    run_length = 1024
    for cols in (1025, 3 * run_length, 4 * run_length + 3):
        values = random_values(rng, dtype, 2 * cols).reshape(2, cols)
        # Many elements are equal, within a run and between runs.
        values[1] = rng.choice(values[1, :40], cols)
        given = DeviceBuffer.from_numpy(values.ravel())
        output, length = Output("u32", values.size), run_length
        runs = -(-cols // run_length)
        run(
            device,
            "sort",
            f"asort_runs_{direction}_{dtype}",
            given,
            output.buffer,
            cols,
            run_length,
            grid=2 * runs,
            block=int(rng.choice([32, 256, 1024])),
            shared=keyed_bytes(values.itemsize) * run_length,
        )
        while length < cols:
            joined = Output("u32", values.size)
            run(
                device,
                "sort",
                f"asort_merge_{direction}_{dtype}",
                given,
                output.buffer,
                joined.buffer,
                2,
                cols,
                length,
                **random_geometry(rng),
            )
            output, length = joined, 2 * length
        assert_same(output.to_numpy(), order_of(values, direction == "asc"))
