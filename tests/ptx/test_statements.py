"""Control flow, memory, warps and functions of kernels, equal to numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ptx.conftest import Array, Launch
from tests.ptx.test_values import EVERY, drawn, named, numpy_type
from uhal import ptx
from uhal.ptx import Type, bits_as, f32, i32, if_, kernel, loop, pred, shared, u32, variable, while_


def test_branches_and_loops(launch: Launch, rng: np.random.Generator) -> None:
    @kernel("i32 n, const i32* x, i32* out")
    def statements(n: Any, x: Any, out: Any) -> None:
        t = i32(ptx.thread_index())
        total = variable(i32, 0)
        for i in loop(n):
            value = x[i]
            with if_((value & 1) == 0):
                total += value
                with if_(value > 50):
                    total -= 7
                with ptx.else_():
                    total += t
            with ptx.else_():
                with if_(value == 13):
                    ptx.continue_()
                total ^= i
        turns = variable(i32, t + 1)
        steps = variable(i32)
        steps.set(0)
        with while_(lambda: turns != 1):
            with if_(steps > 60):
                ptx.break_()
            turns.set(ptx.select((turns & 1) == 0, turns >> 1, turns * 3 + 1))
            steps += 1
        unrolled = variable(i32, 0)
        for i in loop(t, n, 3, unroll=4):
            with if_(i % 5 == 4):
                ptx.continue_()
            with if_(i > 40):
                ptx.break_()
            unrolled += i * x[i]
        for row, one in enumerate((total, steps, unrolled)):
            out[t + row * 32] = one
        with if_(t > 20):
            ptx.exit_()
        out[t + 96] = 1

    n = 53
    x = rng.integers(0, 100, n, "i4")
    expected = np.zeros((4, 32), "i4")
    for t in range(32):
        total = 0
        for i in range(n):
            value = int(x[i])
            if value % 2 == 0:
                total += value
                total += -7 if value > 50 else t
            elif value != 13:
                total ^= i
        turns, steps = t + 1, 0
        while turns != 1 and steps <= 60:
            turns = turns // 2 if turns % 2 == 0 else turns * 3 + 1
            steps += 1
        unrolled = 0
        for i in range(t, n, 3):
            if i % 5 == 4:
                continue
            if i > 40:
                break
            unrolled += i * int(x[i])
        expected[:, t] = total, steps, unrolled, t <= 20
    _, got = launch(statements, n, x, np.zeros(128, "i4"))
    np.testing.assert_array_equal(got.reshape(4, 32), expected)


def test_every_kind_of_memory(launch: Launch, rng: np.random.Generator) -> None:
    table = rng.standard_normal((4, 8)).astype("f4")

    @kernel("const f32* x, f32* out")
    def memories(x: Any, out: Any) -> None:
        t, u = ptx.thread_index(), ptx.thread_index("y")
        tile = shared(f32, 4, 9)
        more = ptx.dynamic_shared(f32)
        mine = ptx.local(f32, 3)
        constants = ptx.constant(f32, table)
        kept = ptx.module_variable(f32, 32, "kept")
        tile[u, t] = x[u * 8 + t]
        more[t * 4 + u] = x[u * 8 + t]
        mine[t % 3] = f32(t)
        kept[u * 8 + t] = x[u * 8 + t] * 2
        ptx.barrier()
        out.at(u * 8)[t] = tile[u, 7 - t] + tile[3, 8 - 1]
        out[32 + u * 8 + t] = more.at(1)[t * 4] + mine[t % 3]
        out[64 + u * 8 + t] = constants[u, t] + kept[u * 8 + t]

    x = rng.standard_normal((4, 8)).astype("f4")
    _, got = launch(memories, x.ravel(), np.zeros(96, "f4"), block=(8, 4), shared=128)
    got = got.reshape(3, 4, 8)
    t = np.arange(8, dtype="f4")
    np.testing.assert_array_equal(got[0], x[:, ::-1] + x[3, 7])
    np.testing.assert_array_equal(got[1], np.broadcast_to(x[1] + t, (4, 8)))
    np.testing.assert_array_equal(got[2], table + x * 2)
    kept = memories.module().get_global("kept", "f32").to_numpy()
    np.testing.assert_array_equal(kept.reshape(4, 8), x * 2)


def test_vectors_and_bytes_of_every_type(launch: Launch, rng: np.random.Generator) -> None:
    kinds = (*EVERY, ptx.i8, ptx.u8)
    signature = ", ".join(f"const {of}* from_{of}, {of}* to_{of}" for of in kinds)

    def body(*given: Any) -> None:
        t = ptx.thread_index()
        for source, out in zip(given[::2], given[1::2], strict=True):
            for count in (1, 2, 4):
                if count * source.of.bytes <= 16:
                    values = source.load((t + 1) * count, count)
                    out.store((t + 1) * count, values, how="cs" if count == 2 else "")
                    out = out.at(8 * 8)
                    source = source.at(8 * 8)

    arrays = [
        rng.integers(0, 256, (256, of.bytes), "u1").view(numpy_type(of)).ravel() for of in kinds
    ]
    given = [array for one in arrays for array in (one, np.zeros_like(one))]
    got = launch(named(signature, body), *given, block=7)
    for of, source, found in zip(kinds, arrays, got[1::2], strict=True):
        expected = np.zeros_like(source)
        for row, count in enumerate(one for one in (1, 2, 4) if one * of.bytes <= 16):
            part = slice(64 * row + count, 64 * row + 8 * count)
            expected[part] = source[part]
        np.testing.assert_array_equal(found.view("u1"), expected.view("u1"))


ATOMICS = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def test_atomics_of_every_type(launch: Launch, rng: np.random.Generator) -> None:
    integers = (ptx.i32, ptx.u32, ptx.i64, ptx.u64)
    cases = [(name, of) for of in integers for name in ATOMICS]
    cases += [("add", ptx.f32), ("add", ptx.f64), ("add", ptx.f16)]
    signature = ", ".join(f"const {of}* x{i}, {of}* out{i}" for i, (_, of) in enumerate(cases))

    def body(*given: Any) -> None:
        t = ptx.global_index()
        for (name, of), x, out in zip(cases, given[::2], given[1::2], strict=True):
            tile = shared(of, 1)
            with if_(ptx.thread_index() == 0):
                tile[0] = of(0) if name in ("add", "xor") else out[0]
            ptx.barrier()
            if of.bits >= 32:
                tile.atomic(name, 0, x[t], how="relaxed.cta")
                ptx.barrier()
                with if_(ptx.thread_index() == 0):
                    out.atomic(name, 0, tile[0])
            else:
                out.atomic(name, 0, x[t])

    given: list[Array] = []
    expected = []
    for name, of in cases:
        x = drawn(of, rng) if of.is_integer else rng.integers(-8, 8, 64).astype(numpy_type(of))
        start = np.zeros(1, x.dtype) if name in ("add", "xor") else x[:1].copy()
        given += [x, start.copy()]
        with np.errstate(over="ignore"):
            expected.append(ATOMICS[name].reduce(x, initial=start[0]).astype(x.dtype))
    got = launch(named(signature, body), *given, grid=2, block=32)
    for (name, of), found, wanted in zip(cases, got[1::2], expected, strict=True):
        assert found[0] == wanted, (name, of)


def test_compare_and_swap_and_counters(launch: Launch) -> None:
    @kernel("u32* lock, u32* out")
    def counted(lock: Any, out: Any) -> None:
        ptx.op("atom.global.inc.u32", lock.at(1), 5)
        old = variable(u32, lock.load(0, how="volatile"))
        swapped = variable(u32, old)
        swapped += 1
        with while_(lambda: old != swapped):
            swapped.set(old)
            old.set(lock.atomic("cas", 0, old + 3, compare=old))
        out[ptx.thread_index()] = lock.atomic("exch", 2, ptx.thread_index())

    lock, out = launch(counted, np.zeros(3, "u4"), np.full(32, 99, "u4"))
    assert list(lock[:2]) == [96, 32 % 6]
    assert sorted([*out, lock[2]]) == sorted([0, *range(32)])


@pytest.mark.parametrize("width", [32, 8])
def test_shuffles_and_votes_of_a_warp(width: int, launch: Launch, rng: np.random.Generator) -> None:
    signature = ", ".join(f"const {of}* from_{of}, {of}* to_{of}" for of in EVERY)
    modes = ("up", "down", "bfly", "idx")

    def body(*given: Any) -> None:
        t = ptx.lane_index()
        for source, out in zip(given[:-2:2], given[1:-2:2], strict=True):
            for row, mode in enumerate(modes):
                out[t + row * 32] = ptx.shuffle(mode, source[t], 3, width)
        words, votes = given[-2:]
        truth = words[t] > 128
        votes[t] = ptx.vote("ballot", truth)
        for row, mode in enumerate(("all", "any", "uni"), 1):
            votes[t + row * 32] = u32(ptx.vote(mode, truth | (t < 2)))
        votes[t + 128] = ptx.match_any(words[t] & 3)
        votes[t + 160] = ptx.warp_reduce("add", words[t])
        votes[t + 192] = ptx.warp_reduce("max", words[t])
        votes[t + 224] = ptx.active_mask() ^ ptx.special("lanemask_lt")
        ptx.warp_barrier()

    sources = [drawn(of, rng)[:32] for of in EVERY]
    words = rng.integers(0, 256, 32, "u4")
    given = [array for one in sources for array in (one, np.zeros(128, one.dtype))]
    made = named(f"{signature}, const u32* words, u32* votes", body)
    got = launch(made, *given, words, np.zeros(256, "u4"))
    lane = np.arange(32)
    first = lane // width * width
    from_lane = (
        np.where(lane - 3 < first, lane, lane - 3),
        np.where(lane + 3 >= first + width, lane, lane + 3),
        lane ^ 3,
        first + 3,
    )
    for source, found in zip(sources, got[1:-2:2], strict=True):
        expected = np.stack([source[one] for one in from_lane])
        np.testing.assert_array_equal(found.view("u1"), expected.ravel().view("u1"))
    votes = got[-1].reshape(8, 32)
    truth = (words > 128) | (lane < 2)
    ballot = sum(1 << i for i in range(32) if words[i] > 128)
    expected = [
        np.full(32, ballot, "u4"),
        *(np.full(32, one) for one in (truth.all(), truth.any(), truth.all() or not truth.any())),
        [sum(1 << j for j in range(32) if words[j] & 3 == one & 3) for one in words],
        np.full(32, words.sum()),
        np.full(32, words.max()),
        [0xFFFFFFFF ^ ((1 << i) - 1) for i in range(32)],
    ]
    np.testing.assert_array_equal(votes, np.array(expected, "u4"))


def test_named_barriers_and_fences(launch: Launch) -> None:
    @kernel("i32* out")
    def halves(out: Any) -> None:
        t = i32(ptx.thread_index())
        box = shared(i32, 64)
        with if_(t < 32):
            box[t] = t * t
            ptx.fence("cta")
            ptx.barrier_arrive(1, 64)
        with ptx.else_():
            ptx.barrier(1, 64)
            out[t - 32] = box[63 - t]

    (out,) = launch(halves, np.zeros(32, "i4"), block=64)
    np.testing.assert_array_equal(out, np.arange(32)[::-1] ** 2)


@ptx.function("const f32* x, i32 n", returns=f32)
def total_of(x: Any, n: Any) -> Any:
    total = variable(f32, 0)
    for i in loop(n):
        total += x[i]
    return total


@ptx.function("f32* x, f32 by")
def scale_first(x: Any, by: Any) -> None:
    x[0] *= by


@ptx.function("f32 x", returns=f32)
def doubled_root(x: Any) -> Any:
    return ptx.sqrt(x) * 2


@ptx.function("f32 x, u8 unused", returns=f32)
def root_of_root(x: Any, unused: Any) -> Any:
    return doubled_root(doubled_root(x)) + f32(unused)


def test_device_functions_take_pointers_of_any_space(
    launch: Launch, rng: np.random.Generator
) -> None:
    @kernel("f32* x, f32* out")
    def calls(x: Any, out: Any) -> None:
        t = ptx.thread_index()
        tile = shared(f32, 33)
        tile[t + 1] = x[t]
        ptx.barrier()
        with if_(t == 0):
            out[0] = total_of(x.at(2), 5)
            out[1] = total_of(tile.at(3), 5)
            scale_first(tile.at(4), 3.0)
            out[2] = tile[4]
            out[3] = root_of_root(x[0], 4)

    x = rng.uniform(1, 2, 32).astype("f4")
    _, out = launch(calls, x, np.zeros(4, "f4"))
    sums = np.add.accumulate(x[2:7])[-1]
    root = np.float32(2)
    expected = [sums, sums, x[3] * 3, np.sqrt(np.sqrt(x[0]) * root) * root + np.float32(4)]
    np.testing.assert_array_equal(out, np.array(expected, "f4"))
    assert calls.ptx.count(".func ") == 4  # each function occurs once


def test_messages_and_text(launch: Launch, capfd: pytest.CaptureFixture[str]) -> None:
    @kernel("i32 n, f32* out")
    def speaks(n: Any, out: Any) -> None:
        with if_(ptx.thread_index() == 3):
            ptx.printf("%d of %u: %.2f %%\n", n, ptx.thread_index(), f32(n) / 4)
        out[ptx.thread_index()] = ptx.text(
            "fma.rn.f32 {result}, {0}, {0}, {1};",
            f32(n),
            f32(ptx.thread_index()),
            result=f32,
        )

    (out,) = launch(speaks, 10, np.zeros(32, "f4"))
    np.testing.assert_array_equal(out, 100 + np.arange(32))
    assert "10 of 3: 2.50 %\n" in capfd.readouterr().out


def test_asynchronous_copies_and_matrices(launch: Launch, rng: np.random.Generator) -> None:
    """One 16×8×16 product by `mma`, its operands by `cp.async` and `ldmatrix`."""

    @kernel("const f16* a, const f16* b, f32* c")
    def product(a: Any, b: Any, c: Any) -> None:
        lane = ptx.lane_index()
        tiles = shared(ptx.f16, 24, 16)
        ptx.copy_async(tiles.at(lane * 8), a.at(lane * 8))
        with if_(lane < 16):
            ptx.copy_async(tiles.at(256 + lane * 8), b.at(lane * 8), 16, used=16)
        ptx.copies_commit()
        ptx.copies_wait()
        ptx.warp_barrier()
        rows = ptx.load_matrices(tiles.at((lane % 16) * 16 + (lane >> 4) * 8), 4)
        columns = ptx.load_matrices(tiles.at(256 + (lane % 8) * 16 + (lane >> 3) % 2 * 8), 2)
        zero = f32(0.0)
        sums = ptx.multiply_matrices("m16n8k16", "f32.f16.f16.f32", rows, columns, [zero] * 4)
        row, column = lane >> 2, (lane & 3) * 2
        c.store(row * 8 + column, sums[:2])
        c.store((row + 8) * 8 + column, sums[2:])

    a, b = (rng.integers(-4, 5, shape).astype("f2") for shape in ((16, 16), (8, 16)))
    *_, c = launch(product, a.ravel(), b.ravel(), np.full(128, np.nan, "f4"))
    np.testing.assert_array_equal(c.reshape(16, 8), a.astype("f4") @ b.T.astype("f4"))
    assert ".target sm_80" in product.ptx


def test_values_of_predicates_and_aliases(launch: Launch) -> None:
    @kernel("i32* out")
    def aliases(out: Any) -> None:
        t = i32(ptx.thread_index())
        x = variable(i32, t)
        before = x.copy()
        same = bits_as(x, u32)
        x += 5
        flag = variable(pred, True)
        with if_(t > 3):
            flag.set(t > 8)
        out[t] = x * 100 + before * 10 + i32(same) + ptx.select(flag, i32(1000), 0)

    (out,) = launch(aliases, np.zeros(12, "i4"), block=12)
    t = np.arange(12)
    flag = np.where(t > 3, t > 8, True)
    np.testing.assert_array_equal(out, (t + 5) * 100 + t * 11 + flag * 1000)


def test_a_closure_specialises_a_kernel(launch: Launch, rng: np.random.Generator) -> None:
    def scaled(of: Type, factor: float, count: int) -> Any:
        @kernel(f"const {of}* x, {of}* out")
        def scale(x: Any, out: Any) -> None:
            for k in range(count):
                i = ptx.thread_index() + 32 * k
                out[i] = of(f32(x[i]) * factor)

        return scale

    for of, factor, count in ((ptx.f16, 2.0, 1), (f32, 0.5, 3)):
        made = scaled(of, factor, count)
        x = rng.standard_normal(32 * count).astype(numpy_type(of))
        _, out = launch(made, x, np.zeros_like(x))
        np.testing.assert_array_equal(out, (x.astype("f4") * np.float32(factor)).astype(x.dtype))
        assert made.ptx.count("st.global") == count
