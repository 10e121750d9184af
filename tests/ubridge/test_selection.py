"""Elements chosen by ids, by dtype, kind of ids and layout, against numpy."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TypeAlias

import numpy as np
import pytest

import ubridge
from tests.sampling import SOAK
from tests.ubridge.op_rows import OP_ROWS, OpRow, row_of
from tests.ubridge.operands import LAYOUTS, Array, operand, shape_of
from ubridge import OPS, DeviceExecutor
from uhal import Device, DeviceBuffer, Event, Stream, StreamFlags, as_dtype
from uhal.errors import ArgumentTypeError, ArgumentValueError

DEVICES = tuple(row.name for row in OP_ROWS)


@pytest.fixture(autouse=True)
def op_row(device: Device) -> OpRow:
    """Operations of the device under test."""
    row = row_of(device.backend)
    row.require_images()
    return row


def cases(row: OpRow, rng: np.random.Generator, name: str) -> Iterator[tuple[str, str, str]]:
    for dtype in OPS[name].dtypes:
        for ids in ("u8", "u32", "i64"):
            if not row.has(OPS[name], dtype, ids):
                continue
            wanted = [layout for layout in LAYOUTS if layout not in ("empty", "scalar")]
            for layout in wanted if SOAK else rng.choice(wanted, 2, replace=False):
                yield dtype, ids, str(layout)


def drawn_ids(
    rng: np.random.Generator, device: Device, length: int, shape: tuple[int, ...], dtype: str
) -> tuple[ubridge.DeviceTensor, Array]:
    most = min(length, 250 if dtype == "u8" else length)
    array = rng.integers(0, most, shape).astype(
        np.dtype({"u8": "u1", "u32": "u4"}.get(dtype, "i8"))
    )
    if rng.random() < 0.5 and len(shape):
        spread = np.repeat(array, 2, axis=-1)
        return ubridge.from_numpy(spread, device=device)[..., ::2], array
    return ubridge.from_numpy(array, device=device), array


@pytest.mark.parametrize("dtype", ["f32", "u8", "i64", "bool"])
def test_flip(dtype: str, device: Device, rng: np.random.Generator) -> None:
    x = ubridge.asarray(rng.integers(0, 2, (3, 4, 5)), dtype)
    array = x.to_numpy()
    for axis in (None, 0, -1, (0, 2), ()):
        found = ubridge.flip(x, axis)
        assert found.dtype is x.dtype and found.buffer is not x.buffer
        np.testing.assert_array_equal(found.to_numpy(), np.flip(array, axis))
    np.testing.assert_array_equal(ubridge.flip(x.T[1], 0).to_numpy(), array.T[1][::-1])
    with pytest.raises(ValueError, match="flip: duplicate value in 'axis'"):
        ubridge.flip(x, (0, -3))


def test_no_view_has_negative_strides(device: Device) -> None:
    """Views that would share memory are refused; copies equal numpy's results."""
    array = np.arange(6, dtype=np.float32)[::-1]
    for make in (ubridge.asarray, ubridge.array, ubridge.from_numpy):
        np.testing.assert_array_equal(make(array).to_numpy(), array)
    x = ubridge.asarray(array)
    np.testing.assert_array_equal(x[::-1].to_numpy(), array[::-1])
    with pytest.raises(ArgumentValueError, match=r"got -1: .*no negative strides"):
        x.layout.sliced(0, slice(None, None, -1))
    x[::-2] = 0
    assert (x.to_numpy() == array * [1, 0, 1, 0, 1, 0]).all()
    with pytest.raises(ArgumentValueError, match="strides and start offset: expected none below 0"):
        ubridge.Layout((6,), (-1,), 5)
    with pytest.raises(BufferError, match="expected strides of at least 0, got -1"):
        ubridge.from_dlpack(array, device="host")
    if device.backend == "cuda":
        address = int(x.buffer.as_device_ptr())
        told = {"shape": (6,), "typestr": "<f4", "data": (address + 20, False), "version": 3}
        source = SimpleNamespace(__cuda_array_interface__={**told, "strides": (-4,)})
        with pytest.raises(BufferError, match="contiguous"):
            DeviceBuffer.from_cuda_array_interface(source)


def test_from_dlpack_views_a_tensor_of_ours(device: Device) -> None:
    """It needs no device type of DLPack, which has none for OpenCL with addresses and WebGPU."""
    x = ubridge.arange(6, device=device).reshape(2, 3).T
    y = ubridge.from_dlpack(x, device=device)
    y[1] = 7
    assert x.to_numpy().tolist() == [[0, 3], [7, 7], [2, 5]]
    assert (y.dtype, y.layout) == (x.dtype, x.layout)


def test_take(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    for dtype, kind, layout in cases(op_row, rng, "index_select"):
        x = operand(rng, device, layout, dtype, shape_of(rng, layout), special=False)
        axis = int(rng.integers(-x.array.ndim, x.array.ndim))
        shape = tuple(int(one) for one in rng.integers(0, 6, int(rng.integers(0, 3))))
        ids, array = drawn_ids(rng, device, x.array.shape[axis], shape, kind)
        got = ubridge.take(x.tensor, ids, axis).to_numpy()
        expected = np.take(x.array, array.astype(np.int64), axis)
        told = f"take {dtype} by {kind} {layout} {x.array.shape} along {axis}"
        assert got.shape == expected.shape, told
        assert got.tobytes() == expected.tobytes(), told


def test_gather(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    for dtype, kind, layout in cases(op_row, rng, "gather"):
        x = operand(rng, device, layout, dtype, shape_of(rng, layout), special=False)
        axis = int(rng.integers(-x.array.ndim, x.array.ndim))
        shape = list(x.array.shape)
        shape[axis] = int(rng.integers(1, 9))
        ids, array = drawn_ids(rng, device, x.array.shape[axis], tuple(shape), kind)
        got = ubridge.gather(x.tensor, ids, axis).to_numpy()
        expected = np.take_along_axis(x.array, array.astype(np.int64), axis)
        told = f"gather {dtype} by {kind} {layout} {x.array.shape} along {axis}"
        assert got.tobytes() == expected.tobytes(), told


@pytest.mark.parametrize("name", ["scatter", "scatter_add"])
def test_scatter(name: str, op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    for dtype, kind, layout in [*cases(op_row, rng, name)] or [("f32", "i64", "stepped")]:
        if layout == "broadcast" or dtype in ("f16", "bf16", "f8e4m3"):
            continue
        x = operand(rng, device, layout, dtype, shape_of(rng, layout), special=False)
        axis = int(rng.integers(-x.array.ndim, x.array.ndim))
        shape = list(x.array.shape)
        shape[axis] = int(rng.integers(1, 9))
        ids, array = drawn_ids(rng, device, x.array.shape[axis], tuple(shape), kind)
        source = operand(rng, device, "transposed", dtype, tuple(shape), special=False)
        expected = np.array(x.array)
        front = np.moveaxis(expected, axis, 0)
        values = np.moveaxis(source.array, axis, 0)
        where = np.moveaxis(array.astype(np.int64), axis, 0)
        for index in np.ndindex(where.shape):
            at = (where[index], *index[1:])
            front[at] = values[index] + (front[at] if name == "scatter_add" else 0)
        returned = getattr(ubridge, name)(x.tensor, ids, source.tensor, axis)
        assert returned is x.tensor
        told = f"{name} {dtype} by {kind} {layout} {x.array.shape} along {axis}"
        np.testing.assert_allclose(
            x.tensor.to_numpy().astype(np.float64),
            expected.astype(np.float64),
            1e-6,
            1e-6,
            err_msg=told,
        )


def test_index_add(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    for dtype, kind, layout in cases(op_row, rng, "index_add"):
        if layout == "broadcast" or dtype in ("f16", "bf16", "f8e4m3"):
            continue
        x = operand(rng, device, layout, dtype, shape_of(rng, layout), special=False)
        axis = int(rng.integers(-x.array.ndim, x.array.ndim))
        ids, array = drawn_ids(rng, device, x.array.shape[axis], (int(rng.integers(1, 9)),), kind)
        shape = list(x.array.shape)
        shape[axis] = array.size
        source = operand(rng, device, "stepped", dtype, tuple(shape), special=False)
        expected = np.array(x.array)
        front = np.moveaxis(expected, axis, 0)
        np.add.at(front, array.astype(np.int64), np.moveaxis(source.array, axis, 0))
        ubridge.index_add(x.tensor, ids, source.tensor, axis)
        np.testing.assert_allclose(
            x.tensor.to_numpy().astype(np.float64),
            expected.astype(np.float64),
            1e-5,
            1e-5,
            err_msg=f"index_add {dtype} by {kind} {layout} {x.array.shape} along {axis}",
        )


def test_embedding_and_ids_from_the_host(device: Device, rng: np.random.Generator) -> None:
    table = operand(rng, device, "offset", "f32", (11, 6), special=False)
    ids = rng.integers(-11, 11, (3, 4))
    got = ubridge.embedding(ids, table.tensor)
    np.testing.assert_array_equal(got.to_numpy(), table.array[ids])
    np.testing.assert_array_equal(
        ubridge.take(table.tensor, [2, -1], 1).to_numpy(), table.array[:, [2, -1]]
    )
    assert ubridge.take(table.tensor, [], 0).shape == (0, 6)


@pytest.mark.parametrize("wrong", [11, -12, 1 << 40])
def test_ids_from_the_host_are_checked_before_anything_runs(device: Device, wrong: int) -> None:
    table = ubridge.zeros((11, 6), device=device)
    with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for axis with size 11"):
        ubridge.embedding([0, wrong], table)
    with pytest.raises(IndexError, match=f"take: index {wrong} is out of bounds"):
        ubridge.take(table, [[wrong]], 0)


def test_ids_on_the_device_are_checked_there(device: Device, rng: np.random.Generator) -> None:
    """The error is raised with the result, once, and the device remains usable."""
    table = operand(rng, device, "contiguous", "f32", (11, 6), special=False)
    for wrong in (11, -3):
        ids = ubridge.from_numpy(np.array([1, wrong, 2]), device=device)
        with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for axis with size"):
            ubridge.take(table.tensor, ids, 0).to_numpy()
        right = ubridge.from_numpy(np.array([1, 2]), device=device)
        got = ubridge.take(table.tensor, right, 0).to_numpy()
        np.testing.assert_array_equal(got, table.array[[1, 2]])
        with pytest.raises(IndexError, match="out of bounds"):
            ubridge.index_add(ubridge.zeros((5, 2), device=device), ids, ubridge.zeros((3, 2)), 0)
            DeviceExecutor.of(device).synchronize()


async def awaited(what: Stream | Event) -> None:
    await what


@pytest.mark.parametrize(
    "waiting", ["stream", "event", "device", "buffer", "await stream", "await event"]
)
def test_whoever_waits_hears_of_a_wrong_id(waiting: str, device: Device) -> None:
    """The error names the operation and is raised once; the stream and the device stay usable."""
    table = ubridge.ones((11, 6), device=device)
    ids = ubridge.from_numpy(np.array([1, 11, 2]), device=device)
    right = ubridge.from_numpy(np.array([1, 2]), device=device)
    with Stream(StreamFlags.NON_BLOCKING, device=device) as stream, Event(device=device) as event:
        if device.backend == "tops":
            pytest.skip("ids are checked before anything is launched")
        found = ubridge.take(table, ids, 0, stream=stream)
        event.record(stream)
        wait: Callable[[], object] = {
            "stream": stream.synchronize,
            "event": event.synchronize,
            "device": device.synchronize,
            "buffer": lambda: found.buffer.to_numpy(stream=stream),
            "await stream": lambda: asyncio.run(awaited(stream)),
            "await event": lambda: asyncio.run(awaited(event)),
        }[waiting]
        with pytest.raises(IndexError, match=r"^take: index 11 is out of bounds") as caught:
            wait()
        assert str(caught.value).endswith(
            "for axis with size 11 (position 1 of the ids; kernel is_i64_f32)"
        )
        wait()
        assert found[0].tolist() == [1] * 6
        assert ubridge.take(table, right, 0, stream=stream).to_numpy().sum() == 12
        stream.synchronize()


def test_what_does_not_fit_is_refused(device: Device) -> None:
    x = ubridge.zeros((3, 4), device=device)
    with pytest.raises(ArgumentTypeError, match="arrays used as indices must be of integer"):
        ubridge.take(x, [0.5])
    with pytest.raises(ArgumentTypeError, match="arrays used as indices must be of integer"):
        ubridge.take(x, ubridge.zeros(2, device=device))
    with pytest.raises(ArgumentValueError, match="axis 2 is out of bounds"):
        ubridge.take(x, [0], 2)
    with pytest.raises(ArgumentValueError, match=r"gather: expected ids of the tensor's shape but"):
        ubridge.gather(x, [[0, 1]], 0)
    with pytest.raises(ArgumentValueError, match=r"index_add: expected a slice of the source for"):
        ubridge.index_add(x, [0], ubridge.zeros((2, 4), device=device), 0)
    with pytest.raises(ArgumentTypeError, match="expected a source of the tensor's dtype f32"):
        ubridge.index_add(x, [0], ubridge.zeros((1, 4), "f64", device=device), 0)
    with pytest.raises(IndexError, match="cannot take from axis 0, which has size 0"):
        ids = ubridge.zeros(2, "u32", device=device)
        ubridge.take(ubridge.zeros((0, 4), device=device), ids)


def test_ids_of_small_types(device: Device, op_row: OpRow, rng: np.random.Generator) -> None:
    """All values of these dtypes are valid ids, and ids from the host do not overflow."""
    if not op_row.has(OPS["index_select"], "i64", "u32"):
        pytest.skip("the device takes other ids")
    table = np.arange(300, dtype=np.int64)
    x = ubridge.from_numpy(table, device=device)
    for kind in ("u1", "u2", "u4", "i2", "i4", "i8"):
        ids = rng.integers(0, 256, 40).astype(kind)
        ids[:2] = 255, 0
        wide = "u32" if kind[0] == "u" else "i64"
        name = as_dtype(ids.dtype).name
        is_taken = name == wide or op_row.has(OPS["astype"], name, wide)
        for given in (ids, ubridge.from_numpy(ids, device=device))[: 1 + is_taken]:
            np.testing.assert_array_equal(ubridge.take(x, given).to_numpy(), table[ids])
            np.testing.assert_array_equal(ubridge.gather(x, given, 0).to_numpy(), table[ids])
    for kind in ("i1", "i2", "i4", "i8"):
        ids = np.array([-1, -128, 127, 0], kind)
        np.testing.assert_array_equal(ubridge.take(x, ids).to_numpy(), table[ids])
    for wrong in (np.array([300], "u2"), np.array([2**64 - 1], "u8"), np.array([-301])):
        with pytest.raises(IndexError, match=f"take: index {wrong[0]} is out of bounds"):
            ubridge.take(x, wrong)


@pytest.mark.parametrize("kind", ["u1", "u4", "i8"])
def test_the_highest_id_of_a_type_is_an_id_as_any_other(
    kind: str, device: Device, op_row: OpRow, rng: np.random.Generator
) -> None:
    """`launch_*` treat this id as a mark; functions on tensors and graph nodes raise an error."""
    if not op_row.has(OPS["index_select"], "f32", as_dtype(np.dtype(kind)).name):
        pytest.skip("the device takes other ids")
    highest = int(np.iinfo(kind).max)
    wrong = np.array([1, highest, 0], kind)
    ids, values = ubridge.from_numpy(wrong, device=device), rng.random(3, "f4")
    source = ubridge.from_numpy(values, device=device)

    def of_a_graph(name: str, *operands: ubridge.DeviceTensor) -> ubridge.DeviceTensor:
        graph = ubridge.ComputeGraph(device)
        leaves = [graph.add_leaf(one) for one in operands]
        node = graph.add_op(name, None, (3,), leaves, ubridge.OpParams(integer=0))
        ubridge.execute_graph(graph)
        return graph.tensor(node)

    calls: dict[str, Callable[[], ubridge.DeviceTensor]] = {
        "take": lambda: ubridge.take(source, ids),
        "gather": lambda: ubridge.gather(source, ids, 0),
        "embedding": lambda: ubridge.embedding(ids, source.reshape(3, 1)),
        "scatter": lambda: ubridge.scatter(source.copy(), ids, source, 0),
        "scatter_add": lambda: ubridge.scatter_add(source.copy(), ids, source, 0),
        "index_add": lambda: ubridge.index_add(source.copy(), ids, source, 0),
    }
    if kind != "u1":  # u8 ids need a cast, which is a node of its own
        calls |= {
            "node take": lambda: of_a_graph("index_select", source, ids),
            "node gather": lambda: of_a_graph("gather", source, ids),
            "node scatter": lambda: of_a_graph("scatter", source.copy(), ids, source),
        }
    for name, call in calls.items():
        for _ in range(2):
            with pytest.raises(IndexError, match=f"index {highest} is out of bounds"):
                call().to_numpy()
                raise AssertionError(name)
    if device.backend != "tops":
        operands, stream = (
            (source.buffer, source.layout, ids.buffer, ids.layout),
            Stream(device=device),
        )
        expected = [values[1], 0, values[0]]
        for launch in (ubridge.launch_index_select, ubridge.launch_gather):
            np.testing.assert_array_equal(launch(*operands, 0).to_numpy(), expected)
            with ubridge.trace(device=device) as graph:
                out = launch(*operands, 0)
            plan = graph.instantiate(stream)
            plan.replay(stream)
            stream.synchronize()
            plan.close()
            np.testing.assert_array_equal(out.to_numpy(), expected)
        for name in ("scatter", "scatter_add"):
            out = DeviceBuffer.zeros(3, "f32", device=device)
            ubridge.launch_scatter(
                name, out, source.layout, ids.buffer, ids.layout, source.buffer, source.layout, 0
            )
            np.testing.assert_array_equal(out.to_numpy(), [values[2], values[0], 0])


def test_indices_that_were_just_made_are_read_as_they_are(
    device: Device, op_row: OpRow, rng: np.random.Generator
) -> None:
    if not op_row.has(OPS["index_select"], "f32", "u32"):
        pytest.skip("the device takes other ids")
    values = rng.random(3, "f4")
    source = ubridge.from_numpy(values, device=device)
    where = ubridge.argsort(source)
    assert where.dtype == np.uint32
    np.testing.assert_array_equal(ubridge.take(source, where).to_numpy(), np.sort(values))
    np.testing.assert_array_equal(ubridge.sort(source).to_numpy(), np.sort(values))
    with ubridge.trace(device=device) as graph:
        ubridge.sort(source)
        ubridge.topk(source, 2)
        ubridge.take(source, where)
    assert "Astype" not in str(graph)


def test_a_wrong_id_is_raised_by_streams_that_may_have_met_it(
    device: Device, op_row: OpRow
) -> None:
    """Each stream that may have met the wrong id raises the error once, in any order of waits;
    other streams never do."""
    if device.backend == "tops":
        pytest.skip("ids are checked before anything is launched")
    table, other = ubridge.ones((11, 6), device=device), ubridge.ones(3, device=device)
    wrong = ubridge.from_numpy(np.array([1, 11, 2]), device=device)
    right = ubridge.from_numpy(np.array([1, 2]), device=device)
    device.synchronize()
    with (
        Stream(device=device) as guilty,
        Stream(device=device) as marked,
        Stream(device=device) as plain,
    ):
        ubridge.take(table, wrong, stream=guilty)
        guilty_is_done = guilty.record_event()
        found = ubridge.take(table, right, stream=marked)
        ubridge.add(other, 1, stream=plain)
        while not guilty_is_done.query():
            pass
        plain.synchronize()
        assert ubridge.add(other, 1).tolist() == [2, 2, 2]
        # Host kernels know their stream, so only the guilty stream raises the error.
        raising = (guilty,) if device.backend == "host" else (marked, guilty)
        count = "by one of 2 streams" if len(raising) == 2 else r"kernel is_i64_f32\)$"
        for stream in raising:
            with pytest.raises(IndexError, match=rf"^take: index 11 .*{count}"):
                stream.synchronize()
        for stream in (guilty, marked, plain):
            stream.synchronize()
        assert found.to_numpy(stream=marked).sum() == 12
        # A wait for the results raises the error, in any stream.
        zeros = ubridge.take(table, wrong, stream=guilty)
        with pytest.raises(IndexError, match=r"^take: index 11 is out of bounds"):
            zeros.to_numpy()
        with pytest.raises(IndexError):
            guilty.synchronize()
        # A stream that waits for the event may depend on the results, so it raises the error, too.
        ubridge.take(table, wrong, stream=guilty)
        plain.wait_event(guilty.record_event())
        with pytest.raises(IndexError):
            plain.synchronize()
        with pytest.raises(IndexError):
            guilty.synchronize()
        device.synchronize()


@pytest.mark.parametrize("way", ["event", "event of a follower", "copy", "closed"])
def test_a_stream_that_waits_raises_no_later_fault(
    way: str, device: Device, rng: np.random.Generator
) -> None:
    """The waiting stream depends on work before the event, or on the copied buffer's last use."""
    if device.backend == "tops":
        pytest.skip("ids are checked before anything is launched")
    x = ubridge.ones(11, device=device)
    wrong = ubridge.from_numpy(np.array([1, 11 + int(rng.integers(9))]), device=device)
    right = ubridge.from_numpy(np.array([1, 2]), device=device)
    device.synchronize()

    def follow(guilty: Stream, found: ubridge.DeviceTensor) -> list[Callable[[], object]]:
        """Make streams wait for the guilty stream's work so far; return functions that wait for
        these streams."""
        if way == "copy":
            return [found.to_numpy]
        event, waits = guilty.record_event(), []
        for _ in range(1 + (way == "event of a follower")):
            follower = Stream(device=device)
            follower.wait_event(event)
            event = follower.record_event()
            waits.append(follower.synchronize)
        return waits

    guilty = Stream(device=device)
    for _ in range(3):
        # On devices other than the host, an error is not tied to a launch; so wait on the host.
        found = ubridge.take(x, right, stream=guilty)
        if device.backend != "host":
            guilty.synchronize()
        waits = follow(guilty, found)
        ubridge.take(x, wrong, stream=guilty)
        done = guilty.record_event()
        while not done.query():
            time.sleep(0)
        if way == "closed":
            guilty.close()
        for wait in waits:
            wait()
        if way == "closed":
            with pytest.raises(IndexError, match=r"^take: index"):
                Stream.default(device=device).synchronize()
            guilty = Stream(device=device)
        else:
            with pytest.raises(IndexError, match=r"^take: index"):
                guilty.synchronize()
        device.synchronize()
        # Each of the two streams raises an earlier fault once.
        waits = follow(guilty, ubridge.take(x, wrong, stream=guilty))
        ubridge.take(x, right, stream=guilty)
        for wait in (*waits, guilty.synchronize):
            with pytest.raises(IndexError, match=r"^take: index"):
                wait()
        device.synchronize()


Chosen: TypeAlias = Callable[
    [ubridge.DeviceTensor, ubridge.DeviceTensor, Stream], ubridge.DeviceTensor
]
CHOOSING: dict[str, Chosen] = {
    "take": lambda x, ids, stream: ubridge.take(x, ids, stream=stream),
    "gather": lambda x, ids, stream: ubridge.gather(x, ids, 0, stream=stream),
    "scatter": lambda x, ids, stream: ubridge.scatter(x, ids, x, 0, stream=stream),
    "scatter_add": lambda x, ids, stream: ubridge.scatter_add(x, ids, x, 0, stream=stream),
    "index_add": lambda x, ids, stream: ubridge.index_add(x, ids, x, 0, stream=stream),
    "kv_append": lambda x, ids, stream: ubridge.kv_append(
        x.reshape(1, 1, 1, -1), x.reshape(1, 1, 1, -1), ids[:1], stream=stream
    ),
}


@pytest.mark.parametrize("size", [4, 1 << 18])
@pytest.mark.parametrize("operation", CHOOSING)
def test_the_host_raises_a_wrong_id_in_the_stream_that_met_it(
    operation: str, size: int, host: Device, rng: np.random.Generator
) -> None:
    """The error is raised once and in no other stream, whether kernels run on the caller's thread
    or in the pool."""
    wrong = size + int(rng.integers(1, 100))
    right_ids = np.zeros(size, "i8")
    wrong_ids = right_ids.copy()
    wrong_ids[0 if operation == "kv_append" else rng.integers(size)] = wrong
    given = [ubridge.from_numpy(ids, device=host) for ids in (right_ids, wrong_ids)]
    turns = {
        "guilty": [int(one) for one in rng.integers(0, 2, 12)],
        "innocent": [0] * 12,
    }
    heard: dict[str, list[str]] = {"guilty": [], "innocent": []}
    begin = threading.Barrier(2)

    def work(name: str) -> None:
        x = ubridge.ones(size, device=host)
        with Stream(device=host) as stream:
            begin.wait()
            for is_wrong in turns[name]:
                CHOOSING[operation](x, given[is_wrong], stream)
                for _ in range(2):
                    try:
                        stream.synchronize()
                    except IndexError as error:
                        heard[name].append(str(error))

    threads = [threading.Thread(target=work, args=(name,)) for name in turns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard["innocent"] == []
    assert len(heard["guilty"]) == sum(turns["guilty"])
    for said in heard["guilty"]:
        assert said.startswith(f"{operation}: index {wrong} is out of bounds")
        assert said.endswith(")"), "names no number of streams"
    host.synchronize()


def test_a_replay_of_the_host_raises_a_wrong_id_in_its_stream(
    host: Device, rng: np.random.Generator
) -> None:
    x = ubridge.ones(11, device=host)
    ids = ubridge.from_numpy(np.array([1, 11 + int(rng.integers(9))]), device=host)
    ubridge.take(x, ids[:1])
    host.synchronize()
    with Stream(device=host) as guilty, Stream(device=host) as other:
        with guilty.capture() as plan:
            ubridge.take(x, ids, stream=guilty)
        for _ in range(2):
            plan.replay()
            other.synchronize()
            with pytest.raises(IndexError, match=r"^take: index"):
                guilty.synchronize()
            guilty.synchronize()
        plan.close()
    host.synchronize()


def test_the_default_stream_raises_a_wrong_id_of_a_closed_stream(
    device: Device, rng: np.random.Generator
) -> None:
    """A closed stream cannot be waited for, and a new stream may get its handle."""
    if device.backend == "tops":
        pytest.skip("ids are checked before anything is launched")
    x = ubridge.ones(11, device=device)
    ids = ubridge.from_numpy(np.array([1, 11 + int(rng.integers(9))]), device=device)
    right = ubridge.zeros(2, "i64", device=device)
    device.synchronize()
    for _ in range(3):
        with Stream(device=device) as guilty:
            found = ubridge.take(x, ids, stream=guilty)
        # While another stream is busy, the driver does not wait in `close`.
        with Stream(device=device) as other:
            if device.backend == "host":
                ubridge.take(x, right, stream=other)
            other.synchronize()
            with pytest.raises(IndexError, match=r"^take: index"):
                found.to_numpy()
            Stream.default(device=device).synchronize()
            other.synchronize()
    device.synchronize()


@pytest.mark.parametrize(
    ("shape", "strides"), [((3, 4), (0, 1)), ((3, 4), (3, 1)), ((2, 2, 2), (1, 1, 4))]
)
def test_nothing_is_written_where_elements_share_an_address(
    shape: tuple[int, ...], strides: tuple[int, ...], host: Device
) -> None:
    buffer = DeviceBuffer.zeros(64, "f32", device=host)
    layout = ubridge.Layout(shape, strides)
    aliasing = ubridge.DeviceTensor(buffer, layout)
    source = ubridge.ones((1, *shape[1:]), device=host)
    ids = ubridge.zeros(source.shape, "i64", device=host)
    plain = DeviceBuffer.zeros(64, "f32", device=host)
    for name, write in (
        ("scatter", lambda: ubridge.scatter(aliasing, ids, source, 0)),
        ("scatter_add", lambda: ubridge.scatter_add(aliasing, ids, source, 0)),
        ("index_add", lambda: ubridge.index_add(aliasing, [0], source, 0)),
        ("", lambda: aliasing.fill(1)),
        (
            "copy",
            lambda: ubridge.launch_copy(plain, ubridge.Layout.contiguous(shape), buffer, layout),
        ),
    ):
        with pytest.raises(ArgumentValueError, match=f"^{name}.* several elements at one address"):
            write()
    assert not buffer.to_numpy().any()
