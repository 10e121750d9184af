"""The kernel language beyond the core: atomics, warps, blocks, vectors, tables, messages.

The kernels are in kernels/language.cu. Sums of floats are compared bit for bit: every target makes
them in the same order.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from uhal import Device, DeviceBuffer, Function, HostBuffer, Module, Stream
from uhal.errors import DeviceWarning, KernelAssertionError
from uhal_conformance.counting_sort import sort
from uhal_conformance.row import DeviceRow

Array = np.ndarray[Any, np.dtype[Any]]

BLOCKS = [1, 31, 32, 33, 64, 100, 256, 1000]
WARP = 32


def blocks_of(kernel: Function) -> list[int]:
    """Return the block sizes that the kernel's registers allow; a warp always fits."""
    most = kernel.attributes.max_threads_per_block
    assert most >= 128
    return [threads for threads in BLOCKS if threads <= most]


@pytest.fixture
def language(device: Device, image: Callable[[str], Path]) -> Iterator[Module]:
    with Module.from_file(image("language")) as module:
        yield module


# -- atomics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["i32", "u32", "i64", "u64", "f32", "f64", "system"])
def test_atomics_lose_nothing(
    device: Device, language: Module, kernel: str, rng: np.random.Generator
) -> None:
    dtype = np.dtype("u4" if kernel == "system" else kernel[0] + str(int(kernel[1:]) // 8))
    size = int(rng.integers(500, 2000))
    if dtype.kind == "f":
        values = rng.integers(-1000, 1000, size).astype(dtype)  # sums are exact in any order
        start = [0, np.inf, np.nan, 0, 0, 0]
    else:
        limits = np.iinfo(dtype)
        values = rng.integers(limits.min, limits.max, size, dtype, endpoint=True)
        start = [0, limits.max, limits.min, 0, 0, 0, -1 if limits.min else limits.max, 0, 0]
    out = DeviceBuffer.from_numpy(np.array(start, dtype))
    tickets = DeviceBuffer.zeros(1, "u32")
    taken = DeviceBuffer.from_numpy(np.full(size, 0xFFFFFFFF, "u4"))
    x = DeviceBuffer.from_numpy(values)
    language.get_function(f"atomics_{kernel}")[7, 64](size, x, out, tickets, taken)
    got = out.to_numpy()
    with np.errstate(over="ignore"):
        assert got[0] == np.add.reduce(values, dtype=dtype)
    assert got[1] == values.min() and got[2] == values.max()
    assert got[3] in values and got[4] == size and got[5] == values[7]
    if dtype.kind != "f":
        assert got[6] == np.bitwise_and.reduce(values)
        assert got[7] == np.bitwise_or.reduce(values)
        assert got[8] == np.bitwise_xor.reduce(values)
    assert tickets.to_numpy()[0] == size
    assert sorted(taken.to_numpy()) == list(range(size))


def test_atomics_lose_nothing_where_blocks_meet(device: Device, language: Module) -> None:
    """Launch a million atomics several times: all CPU threads take part only after the first
    launch."""
    blocks, threads, times = 64, 64, 250
    contended = language.get_function("contended")
    for _ in range(5):
        added, exchanged = DeviceBuffer.zeros(1, "u32"), DeviceBuffer.zeros(1, "u64")
        contended[blocks, threads](times, added, exchanged)
        assert added.to_numpy()[0] == exchanged.to_numpy()[0] == blocks * threads * times


@pytest.mark.parametrize("name", ["i32", "u32", "i64", "u64", "f32", "f64", "block", "system"])
def test_atomics_return_what_was_there(
    device: Device, language: Module, name: str, rng: np.random.Generator
) -> None:
    """Each atomic has its own word, so the word's final value is known, too. Any number replaces a
    NaN."""
    dtype = "u32" if name in ("block", "system") else name
    numpy_type = np.dtype(dtype[0] + str(int(dtype[1:]) // 8))
    size = 200
    if numpy_type.kind == "f":
        values, words = (
            rng.standard_normal(shape).astype(numpy_type) for shape in (size, (size, 9))
        )
        values[rng.random(size) < 0.2] = np.nan
        words[:, 1:3][rng.random((size, 2)) < 0.2] = np.nan
        count = 6
    else:
        limits = np.iinfo(numpy_type)
        values, words = (
            rng.integers(limits.min, limits.max, shape, numpy_type, endpoint=True)
            for shape in (size, (size, 9))
        )
        count = 9
    left, told = DeviceBuffer.from_numpy(words.ravel()), DeviceBuffer.zeros(words.size, dtype)
    kernel = language.get_function(f"returns_{name}")
    kernel[3, 64](size, DeviceBuffer.from_numpy(values), left, told)
    assert np.array_equal(
        told.to_numpy().reshape(size, 9)[:, :count], words[:, :count], equal_nan=count == 6
    )
    with np.errstate(over="ignore"):
        expected = [
            words[:, 0] + values,
            np.fmin(words[:, 1], values),
            np.fmax(words[:, 2], values),
            values,
            values,
            words[:, 5],
        ]
    if count == 9:
        expected += [words[:, 6] & values, words[:, 7] | values, words[:, 8] ^ values]
    got = left.to_numpy().reshape(size, 9)
    for number, one in enumerate(expected):
        assert np.array_equal(got[:, number], one, equal_nan=count == 6), number


def test_atomics_on_shared_memory(
    device: Device, language: Module, rng: np.random.Generator
) -> None:
    values = rng.integers(0, 1 << 32, 250, "u4")
    out = DeviceBuffer.from_numpy(np.full(10, 0xA5A5A5A5, "u4"))
    kernel = language.get_function("atomics_block")
    kernel[1, 256](values.size, DeviceBuffer.from_numpy(values), out)
    got = out.to_numpy()
    assert got[0] == np.add.reduce(values, dtype="u4")
    assert (got[1], got[2], got[4], got[5]) == (values.min(), values.max(), 250, values[7])
    assert got[3] in values
    bits = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)
    assert got[6:9].tolist() == [one.reduce(values) for one in bits]
    assert got[9] == 125


def test_pairs_of_16_bit_floats_are_added_at_once(
    device: Device, language: Module, rng: np.random.Generator
) -> None:
    size = 100
    x = rng.integers(-8, 8, (size, 2)).astype("f2")
    y = rng.integers(-2, 2, (size, 2)).astype(ml_dtypes.bfloat16)
    halves = DeviceBuffer.zeros(2, "f16")
    brains = DeviceBuffer.zeros(2, "bf16")
    given = [DeviceBuffer.from_numpy(one.ravel()) for one in (x, y)]
    language.get_function("atomics_pairs")[3, 32](size, *given, halves, brains)
    assert np.array_equal(halves.to_numpy(), x.sum(0, dtype="f4").astype("f2"))
    assert np.array_equal(brains.to_numpy(), y.astype("f4").sum(0).astype(ml_dtypes.bfloat16))


def test_the_last_block_sees_what_was_fenced(device: Device, language: Module) -> None:
    blocks = 50
    written, arrived, total = (DeviceBuffer.zeros(size, "u32") for size in (blocks, 1, 1))
    language.get_function("last_block")[blocks, 32](written, arrived, total)
    assert total.to_numpy()[0] == blocks * (blocks + 1) // 2


# -- warps and blocks ------------------------------------------------------------------------------


def warps(values: Array) -> list[Array]:
    return [values[start : start + WARP] for start in range(0, values.size, WARP)]


def add(one: Any, other: Any) -> Any:
    """Sum as the kernels do: 16-bit floats are added as f32."""
    wide = np.float32 if one.dtype == np.float16 else one.dtype
    return np.add(one, other, dtype=wide).astype(one.dtype)


def tree(values: Array, operation: Callable[[Any, Any], Any]) -> Any:
    made = values.copy()
    half = WARP // 2
    while half:
        count = min(half, max(made.size - half, 0))
        made[:count] = operation(made[:count], made[half : half + count])
        half //= 2
    return made[0]


def scan(values: Array, operation: Callable[[Any, Any], Any]) -> Array:
    made = values.copy()
    step = 1
    while step < made.size:
        made[step:] = operation(made[:-step].copy(), made[step:])
        step *= 2
    return made


def block_scan(values: Array) -> Array:
    done: list[Array] = []
    for one in warps(values):
        made = scan(one, add)
        done.append(add(np.repeat(done[-1][-1:], made.size), made) if done else made)
    return np.concatenate(done)


def shifted(values: Array, first: int) -> Array:
    return np.concatenate([np.array([first], values.dtype), values[:-1]])


def shuffled(values: Array, source: Callable[[Array], Array]) -> Array:
    made = []
    for one in warps(values):
        lanes = np.arange(one.size)
        wanted = source(lanes)
        made.append(one[np.where(wanted < one.size, wanted, lanes)])
    return np.concatenate(made)


def expected_lanes(values: Array, source: Array, amount: int) -> list[Array]:
    """Return expected rows, in the order of the kernel's functions."""
    size = values.size
    per_warp = [np.arange(start, min(start + WARP, size)) for start in range(0, size, WARP)]
    by_register = [
        one[np.where(source[at] % WARP < one.size, source[at] % WARP, np.arange(one.size))]
        for one, at in zip(warps(values), per_warp, strict=True)
    ]
    total = reduce(add, [tree(one, add) for one in warps(values)])
    scanned = block_scan(values)
    exclusive = add(np.full(size, 2, values.dtype), shifted(scanned, 0))
    exclusive[0] = 2
    return [
        np.concatenate(by_register),
        shuffled(values, lambda lanes: np.full(lanes.size, amount % WARP)),
        shuffled(values, lambda lanes: np.where(lanes < amount, lanes, lanes - amount)),
        shuffled(values, lambda lanes: np.where(lanes + amount < WARP, lanes + amount, lanes)),
        shuffled(values, lambda lanes: lanes ^ amount),
        np.concatenate([np.repeat(tree(one, add), one.size) for one in warps(values)]),
        np.concatenate([np.repeat(one.min(), one.size) for one in warps(values)]),
        np.concatenate([scan(one, add) for one in warps(values)]),
        np.concatenate([shifted(scan(one, np.maximum), -3) for one in warps(values)]),
        np.repeat(total, size),
        scanned,
        np.repeat(scanned[-1], size),
        exclusive,
        np.repeat(scanned[-1], size),
        np.repeat(values[-1], size),
    ]


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "i32"])
def test_lanes(device: Device, language: Module, dtype: str, rng: np.random.Generator) -> None:
    kernel = language.get_function(f"lanes_{dtype}")
    rows, blocks = 15, 2
    for threads in blocks_of(kernel):
        numpy_type = np.dtype(dtype[0] + str(int(dtype[1:]) // 8))
        values = (rng.standard_normal((blocks, threads)) * 100).astype(numpy_type)
        source = rng.integers(0, WARP, threads, "u4")
        amount = int(rng.integers(1, WARP))
        out = DeviceBuffer.uninitialized(rows * blocks * threads, dtype)
        out.set_8(0xA5)
        x = DeviceBuffer.from_numpy(values.ravel())
        kernel[blocks, threads](amount, x, DeviceBuffer.from_numpy(source), out)
        got = out.to_numpy().reshape(rows, blocks, threads)
        for block in range(blocks):
            expected = expected_lanes(values[block], source, amount)
            for number in range(rows):
                one, other = got[number, block], expected[number]
                assert np.array_equal(one, other), (threads, number, amount)


def test_lanes_of_a_block_of_three_axes(
    device: Device, language: Module, rng: np.random.Generator
) -> None:
    values = rng.integers(-1000, 1000, 60, "i4")
    source = np.zeros(60, "u4")
    out = DeviceBuffer.uninitialized(15 * 60, "i32")
    given = [DeviceBuffer.from_numpy(one) for one in (values, source)]
    language.get_function("lanes_i32")[1, (5, 4, 3)](1, *given, out)
    got = out.to_numpy().reshape(15, 60)
    assert np.array_equal(got, np.stack(expected_lanes(values, source, 1)))


def test_votes(device: Device, language: Module, rng: np.random.Generator) -> None:
    kernel = language.get_function("votes")
    for threads in blocks_of(kernel):
        flags = np.stack(
            [rng.integers(0, 2, threads, "u4"), np.zeros(threads, "u4"), np.ones(threads, "u4")]
        )
        masks = DeviceBuffer.zeros(flags.size, "u32")
        found = DeviceBuffer.zeros(9, "u32")
        kernel[3, threads](DeviceBuffer.from_numpy(flags.ravel()), masks, found)
        for block, got in enumerate(masks.to_numpy().reshape(3, threads)):
            for start, one in zip(range(0, threads, WARP), warps(flags[block]), strict=True):
                mask = int(sum(int(bit) << lane for lane, bit in enumerate(one)))
                assert (got[start : start + WARP] == mask).all()
        told = [[row.sum(), row.any(), row.all()] for row in flags]
        assert found.to_numpy().reshape(3, 3).tolist() == told


def test_operations(device: Device, language: Module, rng: np.random.Generator) -> None:
    kernel = language.get_function("operations")
    for threads in blocks_of(kernel):
        values = rng.integers(0, 1 << 32, threads, "u4") | np.uint32(1 << 20)
        out = DeviceBuffer.zeros(9, "u32")
        kernel[1, threads](DeviceBuffer.from_numpy(values), out)
        low = values & np.uint32(0xFFFF)
        assert out.to_numpy().tolist() == [
            np.bitwise_and.reduce(values),
            np.bitwise_or.reduce(values),
            np.bitwise_xor.reduce(values),
            np.multiply.reduce(values, dtype="u4"),
            values.min(),
            values.max(),
            low.max(),
            int(low.argmax()) if (low == low.max()).sum() == 1 else out.to_numpy()[7],
            threads,
        ]


def test_the_extremes_of_numbers_and_nans(
    device: Device, language: Module, rng: np.random.Generator
) -> None:
    kernel = language.get_function("extremes")
    for threads in blocks_of(kernel):
        values = rng.standard_normal((3, threads)).astype("f4")
        values[0][rng.random(threads) < 0.5] = np.nan
        values[0, rng.integers(threads)] = 0.5
        values[1] = np.nan
        out = DeviceBuffer.zeros(6, "f32")
        kernel[3, threads](DeviceBuffer.from_numpy(values.ravel()), out)
        expected = [[np.fmin.reduce(one), np.fmax.reduce(one)] for one in values]
        assert np.array_equal(out.to_numpy().reshape(3, 2), expected, equal_nan=True), threads


# -- vectors, tables, fast mathematics -------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "count"), [("f32", 4), ("f64", 2), ("f16", 8), ("u8", 4), ("u16", 2)]
)
def test_vectors(
    device: Device, language: Module, dtype: str, count: int, rng: np.random.Generator
) -> None:
    numpy_type = np.dtype(dtype[0] + str(int(dtype[1:]) // 8))
    values = rng.integers(0, 200, 40 * count).astype(numpy_type)
    out = DeviceBuffer.zeros(values.size, dtype)
    kernel = language.get_function(f"vectors_{dtype}")
    kernel[2, 16](values.size, DeviceBuffer.from_numpy(values), out)
    assert np.array_equal(out.to_numpy(), values.reshape(-1, count)[:, ::-1].ravel())


def test_a_constant_table(device: Device, language: Module, rng: np.random.Generator) -> None:
    values = rng.standard_normal(101, "f4")
    out = DeviceBuffer.zeros(values.size, "f32")
    kernel = language.get_function("weighted")
    kernel[2, 32](values.size, DeviceBuffer.from_numpy(values), out)
    weights = np.array([0.25, -0.5, 2, 3], "f4")
    assert np.array_equal(out.to_numpy(), values * np.resize(weights, values.size))


def test_fast_mathematics(
    row: DeviceRow, device: Device, language: Module, rng: np.random.Generator
) -> None:
    size = 500
    x = rng.uniform(0.1, 10, size).astype("f4")
    y = rng.uniform(-3, 3, size).astype("f4")
    out = DeviceBuffer.zeros(12 * size, "f32")
    given = [DeviceBuffer.from_numpy(one) for one in (x, y)]
    language.get_function("fast")[4, 64](size, *given, out)
    a, b = x.astype("f8"), y.astype("f8")
    expected = [
        *(np.exp(b), np.exp2(b), np.log(a), np.log2(a), np.sin(b), np.cos(b), np.tanh(b)),
        *(np.sqrt(a), 1 / np.sqrt(a), 1 / a, b / a, a**b),
    ]
    # The header's largest bounds: for CUDA's tanh, and for logarithms near 1. OpenCL gives no
    # bounds. Intel's runtime for CPUs had errors of 2e-4, and of 1.2e-3 in tanh near 0, which
    # subtracts two inexact exponentials.
    tanh, other = (3e-3, 1e-3) if row.backend == "opencl" else (1e-3, 2e-5)
    for number, (got, exact) in enumerate(
        zip(out.to_numpy().reshape(12, -1), expected, strict=True)
    ):
        relative = tanh if number == 6 else other
        np.testing.assert_allclose(got, exact, relative, relative / 10, err_msg=str(number))


# -- messages --------------------------------------------------------------------------------------


def test_what_kernels_print(
    device: Device,
    language: Module,
    rng: np.random.Generator,
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = rng.standard_normal(5, "f4")
    x = DeviceBuffer.from_numpy(values)
    speaks = language.get_function("speaks")
    for _ in range(2):
        speaks[1, 64](5, x)
        device.synchronize()
        lines = sorted(capsys.readouterr().out.splitlines())
        assert lines == [
            f"{index} of -5: {value:.2f}, c%, 0x10000000000" for index, value in enumerate(values)
        ]
    device.synchronize()
    assert capsys.readouterr().out == ""


def test_more_than_is_kept_is_counted(
    device: Device, language: Module, capsys: pytest.CaptureFixture[str]
) -> None:
    x = DeviceBuffer.zeros(1000, "f32")
    for _ in range(5):
        language.get_function("speaks")[1, 1000](1000, x)
    with pytest.warns(DeviceWarning, match="904 messages of kernels were lost, failed asser"):
        device.synchronize()
    assert len(capsys.readouterr().out.splitlines()) == 4096
    device.synchronize()


@pytest.mark.parametrize("stdout", ["none", "ascii", "closed"])
def test_a_program_without_a_terminal_for_it_goes_on(
    device: Device, language: Module, monkeypatch: pytest.MonkeyPatch, stdout: str
) -> None:
    out = None if stdout == "none" else io.TextIOWrapper(io.BytesIO(), "ascii")
    if out is not None and stdout == "closed":
        out.close()
    x = DeviceBuffer.from_numpy(np.full(64, 12, "u4"))
    speaks, asserts = language.get_function("speaks"), language.get_function("asserts")
    speaks[1, 64](1, x.view("f32"))
    monkeypatch.setattr(sys, "stdout", out)
    if stdout != "closed":
        device.synchronize()
        speaks[1, 64](1, x.view("f32"))
    asserts[1, 64](10, x, DeviceBuffer.zeros(64, "u32"))
    with pytest.raises(KernelAssertionError, match="ASSERT"):
        device.synchronize()
    device.synchronize()


WAITS: dict[str, Callable[[DeviceBuffer], object]] = {
    "to_numpy": lambda y: y.to_numpy(),
    "to_numpy in a stream": lambda y: y.to_numpy(stream=Stream.default()),
    "copy_to": lambda y: y.copy_to(np.empty(64, "u4")),
    "copy_to pinned": lambda y: y.copy_to(HostBuffer(64, "u32")),
    "copy_to a buffer": lambda y: y.copy_to(DeviceBuffer.zeros(64, "u32")),
    "copy_from": lambda y: y.copy_from(np.empty(64, "u4")),
    "copy_2d_to": lambda y: y.copy_2d_to(np.empty((8, 8), "u4")),
    "copy_2d_from": lambda y: y.copy_2d_from(np.empty((8, 8), "u4")),
    "copy_2d_from a buffer": lambda y: y[:4].copy_2d_from(y[4:8], (2, 2)),
    "stream": lambda y: Stream.default().synchronize(),
    "event": lambda y: Stream.default().record_event().synchronize(),
    "device": lambda y: y.device.synchronize(),
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_failed_assertion_is_raised_by_whatever_waits(
    device: Device, language: Module, rng: np.random.Generator, wait: str
) -> None:
    x, y = DeviceBuffer.from_numpy(np.full(64, 12, "u4")), DeviceBuffer.zeros(64, "u32")
    device.synchronize()
    language.get_function("asserts")[1, 64](10, x, y)
    with pytest.raises(KernelAssertionError, match=r"ASSERT\(x\[t\] < bound\).*63 more failed"):
        WAITS[wait](y)
    device.synchronize()


def test_a_failed_assertion_is_raised_by_streams_that_may_have_met_it(
    device: Device, language: Module
) -> None:
    """Each stream that may have run the kernel raises the error once, in the first wait. Other
    streams and their copies never raise the error."""
    asserts = language.get_function("asserts")
    x, y, z = DeviceBuffer.from_numpy(np.full(64, 12, "u4")), *zeros(2)
    other = DeviceBuffer.zeros(64, "u32")
    device.synchronize()
    with Stream() as guilty, Stream() as marked, Stream() as plain:
        asserts[1, 64, 0, guilty](10, x, y)
        guilty_is_done = guilty.record_event()
        asserts[1, 64, 0, marked](13, x, z)
        while not guilty_is_done.query():
            pass
        plain.synchronize()
        assert not other.to_numpy().any()
        other.copy_from(np.ones(64, "u4"), stream=plain)
        # Host kernels know their stream.
        raising = (guilty,) if device.backend == "host" else (marked, guilty)
        count = "; by one of 2 streams with such" if len(raising) == 2 else r"63 more failed\)$"
        for stream in raising:
            with pytest.raises(KernelAssertionError, match=count):
                stream.synchronize()
        for stream in (guilty, marked, plain):
            stream.synchronize()
        # A wait for the results raises the error, in any stream.
        asserts[1, 64, 0, guilty](10, x, y)
        with pytest.raises(KernelAssertionError, match="63 more failed"):
            y.to_numpy()
        with pytest.raises(KernelAssertionError):
            guilty.synchronize()
        # A stream that only waits for an earlier event of the failed stream does not raise its
        # error.
        plain.wait_event(guilty.record_event())
        asserts[1, 64, 0, guilty](10, x, y)
        guilty_is_done = guilty.record_event()
        while not guilty_is_done.query():
            pass
        plain.synchronize()
        with pytest.raises(KernelAssertionError):
            guilty.synchronize()
    device.synchronize()


def zeros(count: int) -> list[DeviceBuffer]:
    return [DeviceBuffer.zeros(64, "u32") for _ in range(count)]


def test_an_assertion_names_kernel_line_and_values(
    device: Device, language: Module, rng: np.random.Generator
) -> None:
    values = rng.integers(0, 10, 64, "u4")
    wrong = int(rng.integers(64))
    values[wrong] = 12
    x, y = DeviceBuffer.from_numpy(values), DeviceBuffer.zeros(64, "u32")
    asserts = language.get_function("asserts")
    asserts[1, 64](10, x, y)
    source = (Path(__file__).parent / "kernels" / "language.cu").read_text().splitlines()
    line = next(number for number, text in enumerate(source, 1) if "!ASSERT(x[t]" in text)
    with pytest.raises(KernelAssertionError) as caught:
        device.synchronize()
    said = str(caught.value)
    assert said.startswith(f"ASSERT(x[t] < bound) failed in kernel asserts, line {line}")
    assert said.endswith(": x[t] = 12, bound = 10")
    if "thread" in said:
        assert f"block (0, 0, 0), thread {wrong}" in said
    # The device remains usable, and the kernel ran to its end.
    expected = np.ones(64, "u4")
    expected[wrong] = 0
    assert np.array_equal(y.to_numpy(), expected)
    asserts[1, 64](13, x, y)
    device.synchronize()


# -- all of it together ----------------------------------------------------------------------------


def test_a_counting_sort(device: Device, language: Module, rng: np.random.Generator) -> None:
    sort(language.get_function("counting_sort"), rng)
    device.synchronize()
