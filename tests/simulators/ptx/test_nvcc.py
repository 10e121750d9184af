"""Kernels of nvcc 13 that take CUDA's own headers: wmma, calls through pointers, grid-wide waits.

`tests/data/ptx/make.py nvcc` made these files, which ptxas accepted as valid PTX.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from simulators.ptx import wmma
from simulators.ptx.launch import Allocation, LaunchError, Module
from simulators.ptx.sites import Check
from uhal.ptx.instructions import FORMS

DATA = Path(__file__).resolve().parents[2] / "data" / "ptx" / "nvcc"
PADDING = 16


def module(name: str, check: Check = "on") -> Module:
    return Module((DATA / f"{name}.ptx").read_text(), check)


# -- wmma ------------------------------------------------------------------------------------------

FACTORS = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f64": np.float64,
    "s8": np.int8,
    "u8": np.uint8,
    "s4": np.int8,
    "u4": np.uint8,
}
SUMS = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "s32": np.int32}
PRODUCTS = [
    (name, entry)
    for name in ("wmma_sm_75", "wmma_sm_80")
    for entry in module(name).kernels
    if entry[-3:] in ("row", "col")
]


def in_memory(values: np.ndarray, layout: str) -> np.ndarray:
    """Return a matrix with padding between its rows, or between its columns."""
    lines = values if layout == "row" else values.T
    padded = np.full((lines.shape[0], lines.shape[1] + PADDING), 77, lines.dtype)
    padded[:, : lines.shape[1]] = lines
    return padded


def drawn(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> np.ndarray:
    if kind[0] in "su":
        bits = int(kind[1:])
        low = -(1 << (bits - 1)) if kind[0] == "s" else 0
        return rng.integers(low, low + (1 << bits), shape).astype(FACTORS[kind])
    values = rng.normal(size=shape).astype(FACTORS[kind])
    # tf32 ignores the low bits of an f32; they are poisoned so that an error shows.
    return (values.view("u4") & 0xFFFFE000 | 0x1FFF).view("f4") if kind == "tf32" else values


def exact(values: np.ndarray, kind: str) -> np.ndarray:
    seen = (values.view("u4") & 0xFFFFE000).view("f4") if kind == "tf32" else values
    return seen.astype("f8")


def nibbles(values: np.ndarray) -> np.ndarray:
    """Pack two values in a byte, the first in the low bits."""
    low = values.view("u1") & 15
    return low[:, ::2] | low[:, 1::2] << 4


@pytest.mark.drawn(1 / 2)
@pytest.mark.parametrize(("name", "entry"), PRODUCTS)
def test_products(name: str, entry: str, rng: np.random.Generator, seed: int) -> None:
    kind, total, *rest = entry.split("_")
    rows, columns, depth = (int(one) for one in rest[:3])
    a, b = drawn(rng, kind, (rows, depth)), drawn(rng, kind, (depth, columns))
    c = (100 * rng.normal(size=(rows, columns))).astype(SUMS[total])
    left, right, old = map(in_memory, (a, b, c), rest[3:])
    strides = [one.shape[1] for one in (left, right, old)]
    if kind in ("s4", "u4"):
        left, right = nibbles(left), nibbles(right)
    new = np.full_like(old, 99)
    module(name).kernel(entry).launch([1], [32], [left, right, old, new, *strides], seed=seed)
    got = new[:, :-PADDING] if rest[5] == "row" else new[:, :-PADDING].T
    expected = exact(a, kind) @ exact(b, kind) + c.astype("f8")
    tolerance = {"f16": 1e-3, "f32": 1e-6, "f64": 1e-14, "s32": 0}[total]
    np.testing.assert_allclose(got.astype("f8"), expected, rtol=tolerance, atol=30 * tolerance)
    assert (new[:, -PADDING:] == 99).all()


@pytest.mark.parametrize("entry", ["b1_xor", "b1_and"])
def test_products_of_bits(entry: str, rng: np.random.Generator, seed: int) -> None:
    a, b = (rng.integers(0, 2, (8, 128), dtype="u1") for _ in range(2))
    c = rng.integers(-50, 50, (8, 8), dtype="i4")
    left, right = (np.packbits(one, axis=1, bitorder="little") for one in (a, b))
    d = np.full_like(c, 99)
    arguments = [left, right, c, d, 128, 128, 8]
    module("wmma_sm_80").kernel(entry).launch([1], [32], arguments, seed=seed)
    combine = np.bitwise_xor if entry == "b1_xor" else np.bitwise_and
    counts = combine(a[:, None, :], b[None, :, :]).sum(axis=2)
    np.testing.assert_array_equal(d.T, counts + c.T)


@pytest.mark.parametrize("check", ["on", "off", "strict"])
def test_gemm(check: Check, rng: np.random.Generator, seed: int) -> None:
    m, n, k = 64, 96, 48
    a, b = rng.normal(size=(m, k)).astype("f2"), rng.normal(size=(k, n)).astype("f2")
    c = rng.normal(size=(m, n)).astype("f4")
    expected = 1.5 * (a.astype("f8") @ b.astype("f8")) - 0.25 * c
    numbers = [n, k, *(np.float32(one).tobytes() for one in (1.5, -0.25))]
    kernel = module("wmma_sm_80", check).kernel("gemm")
    kernel.launch([n // 32, m // 32], [128], [a, b, c, *numbers], seed=seed)
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-4)


def test_a_fragment_past_the_end() -> None:
    kernel = module("wmma_sm_80").kernel("f16_f32_16_16_16_row_col_row")
    a, b = np.zeros(15 * 16 + 14, "f2"), np.zeros(256, "f2")
    c, d = np.zeros(256, "f4"), np.zeros(256, "f4")
    with pytest.raises(LaunchError, match=r"load of 4 bytes.* out of bounds, it ends 4 bytes past"):
        kernel.launch([1], [32], [a, b, c, d, 16, 16, 16])
    with pytest.raises(LaunchError, match="needs all 32 lanes, 31 are there"):
        kernel.launch([1], [31], [b, b, c, d, 16, 16, 16])


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_doubles_round_as_they_are_told(mode: str, seed: int) -> None:
    d = np.zeros(64)
    tiny, one = 2.0**-80, "0d3FF0000000000000"
    text = f""".version 9.0\n.target sm_80\n.address_size 64
        .visible .entry k(.param .u64 d, .param .f64 c) {{ .reg .f64 %f<5>; .reg .b64 %d;
        ld.param.u64 %d, [d]; ld.param.f64 %f0, [c]; mov.f64 %f1, {one};
        wmma.mma.sync.aligned.row.col.m8n8k4.{mode}.f64.f64.f64.f64
            {{%f3, %f4}}, {{%f0}}, {{%f0}}, {{%f1, %f1}};
        wmma.store.d.sync.aligned.row.m8n8k4.global.f64 [%d], {{%f3, %f4}}; ret; }}"""
    for sign in (1, -1):
        # The product tiny² is positive; a negative summand reverses the rounding toward zero.
        signed = text if sign == 1 else text.replace(one, "0dBFF0000000000000")
        Module(signed).kernel("k").launch([1], [32], [d, np.float64(tiny).tobytes()], seed=seed)
        up = {"rz": sign < 0, "rm": False, "rp": True}[mode]
        expected = float(sign)
        for _ in range(4 * up):  # one step for each of the four products
            expected = np.nextafter(expected, np.inf)
        assert (d == expected).all()


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas here")
def test_ptxas_takes_every_form_of_wmma(tmp_path: Path) -> None:
    registers = {"f16": ("r", 8, 4), "f32": ("f", 8, 8), "bf16": ("r", 4, 4), "tf32": ("r", 4, 4)}
    small = {"m8n32k16": (1, 4), "m32n8k16": (4, 1), "m16n16k16": (2, 2)}

    def vector(kind: str, which: str, shape: str) -> str:
        letter, factor, total = registers.get(kind, ("r", 1, 2))
        count = total if which in "cd" else factor
        if kind == "bf16" and shape != "m16n16k16":
            count = {"m8n32k16": (2, 8), "m32n8k16": (8, 2)}[shape][which == "b"]
        if kind in ("s8", "u8"):
            count = small[shape][which == "b"]
        if kind == "s32" and shape in small:
            count = 8
        if kind == "f64":
            letter, count = "d", (2 if which in "cd" else 1)
        return "{" + ", ".join(f"%{letter}{index}" for index in range(count)) + "}"

    lines = []
    for row in FORMS:
        if row.name != "wmma":
            continue
        for spelling in row.spellings():
            parts = spelling.split(".")
            shape = next(one for one in parts if one in wmma._SHAPES)
            kinds = [one for one in parts if one in wmma._KINDS]
            if "aligned" not in parts:
                continue  # compilers wrote it so for PTX before 6.3
            if parts[1] == "load":
                lines.append(f"{spelling} {vector(kinds[0], parts[2], shape)}, [%p], 128;")
            elif parts[1] == "store":
                lines.append(f"{spelling} [%p], {vector(kinds[0], 'd', shape)}, 128;")
            else:
                four = kinds if len(kinds) == 4 else [kinds[0], "f16", "f16", kinds[1]]
                given = (vector(k, w, shape) for k, w in zip(four, "dabc", strict=True))
                lines.append(f"{spelling} {', '.join(given)};")
    assert len(lines) > 300
    source = tmp_path / "wmma.ptx"
    source.write_text(
        ".version 9.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x) {\n"
        ".reg .b32 %r<9>; .reg .f32 %f<9>; .reg .f64 %d<9>; .reg .b64 %p;\n"
        "ld.param.u64 %p, [x];\n" + "\n".join(lines) + "\nret; }\n"
    )
    command = ["ptxas", "-arch=sm_80", "-O0", "-o", str(tmp_path / "x"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[:2000]


# -- calls through pointers ------------------------------------------------------------------------


def test_calls_through_a_table(rng: np.random.Generator, seed: int) -> None:
    n = 100
    which = rng.integers(0, 3, n, dtype="i4")
    x, y = rng.normal(size=(2, n)).astype("f4")
    z = np.full(n, np.nan, "f4")
    calls = module("calls_sm_80")
    calls.kernel("apply").launch([2], [64], [which, x, y, z, n], seed=seed)
    np.testing.assert_array_equal(z, np.choose(which, [x + y, x - y, x * y]))
    area = np.full(n, np.nan, "f4")
    round_ones = np.where(which > 1, 1, 0).astype("i4")
    calls.kernel("areas").launch([2], [64], [round_ones, x, area, n], seed=seed)
    expected = x.astype("f8") ** 2 * np.where(round_ones, 3.25, 1)
    np.testing.assert_allclose(area, expected, rtol=1e-6)


def test_calls_of_functions_that_wait(rng: np.random.Generator, seed: int) -> None:
    x = rng.integers(-9, 9, 128, dtype="i4")
    kernel = module("calls_sm_80", "strict").kernel("together")
    for which, expected in ((0, x[::-1]), (1, x.reshape(4, 32).sum(1).repeat(32))):
        y = np.full(128, 99, "i4")
        kernel.launch([1], [128], [x, y, which], seed=seed)
        np.testing.assert_array_equal(y, expected)


def test_a_call_of_no_function(rng: np.random.Generator) -> None:
    """An address from the table of pointers works; other addresses and other types are refused."""
    calls = module("calls_sm_80")
    words = np.ctypeslib.as_array(
        (np.ctypeslib.ctypes.c_uint64 * 3).from_address(calls.address("table"))
    )
    x, y = rng.normal(size=(2, 32)).astype("f4")
    z = np.zeros(32, "f4")
    kernel = calls.kernel("apply_given")
    kernel.launch([1], [32], [int(words[1]), x, y, z])
    np.testing.assert_array_equal(z, x - y)
    unlike = int(np.ctypeslib.ctypes.c_uint64.from_address(calls.address("other")).value)
    assert unlike not in words.tolist()
    for address in (0, int(words[0]) + 8, unlike):
        with pytest.raises(
            LaunchError, match=rf"a call of address 0x{address:x},|address 0,"
        ) as no:
            kernel.launch([1], [32], [address, x, y, z])
        assert no.value.outcome == "no function"
        assert no.value.line


def test_a_function_that_calls_itself_through_a_pointer(seed: int) -> None:
    """sum(n) = n + next(n - 1), where the word `next` contains the address of sum."""
    text = """.version 9.0\n.target sm_80\n.address_size 64
        .func (.param .b32 r) sum(.param .b32 n);
        .global .align 8 .u64 next[1] = {sum};
        .func (.param .b32 r) sum(.param .b32 n) { .reg .b32 %r<4>; .reg .b64 %d; .reg .pred %p;
        ld.param.u32 %r1, [n]; setp.eq.u32 %p, %r1, 0; @%p bra DONE; sub.u32 %r2, %r1, 1;
        ld.global.u64 %d, [next];
        { .param .b32 given; .param .b32 got; st.param.b32 [given], %r2;
        form: .callprototype (.param .b32 _) _ (.param .b32 _); call (got), %d, (given), form;
        ld.param.b32 %r3, [got]; } add.u32 %r1, %r1, %r3;
        DONE: st.param.b32 [r], %r1; ret; }
        .visible .entry k(.param .u64 y) { .reg .b32 %r<3>; .reg .b64 %d<2>;
        ld.param.u64 %d0, [y]; mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %d0;
        mov.u64 %d1, sum;
        { .param .b32 given; .param .b32 got; st.param.b32 [given], %r0;
        to: .calltargets sum; call (got), %d1, (given), to; ld.param.b32 %r1, [got]; }
        st.global.u32 [%d0], %r1; ret; }"""
    y = np.zeros(40, "u4")
    Module(text).kernel("k").launch([1], [40], [y], seed=seed)
    np.testing.assert_array_equal(y, np.arange(40) * np.arange(1, 41) // 2)


# -- grid-wide waits -------------------------------------------------------------------------------


@pytest.mark.parametrize("check", ["on", "strict"])
def test_blocks_that_wait_for_each_other(check: Check, rng: np.random.Generator, seed: int) -> None:
    n, rounds = 1000, 5
    y, z = rng.normal(size=n).astype("f4"), np.full(n, np.nan, "f4")
    expected = y.astype("f8")
    for _ in range(rounds):
        expected = 0.5 * (expected + np.roll(expected, -1))
    grid = module("grid_sm_80", check)
    smooth = grid.kernel("smooth")
    smooth.launch([7], [32, 2], [y, z, n, rounds], cooperative=True, seed=seed)
    np.testing.assert_allclose(z, expected, rtol=1e-5, atol=1e-5)
    x = rng.normal(size=5000)
    parts, all_see = np.full(20, np.nan), np.full(20 * 64, np.nan)
    arguments = [x, parts, all_see, x.size]
    grid.kernel("sum").launch([20], [64], arguments, cooperative=True, seed=seed)
    np.testing.assert_allclose(all_see, x.sum(), rtol=0, atol=1e-8)


def test_a_plain_launch_cannot_wait_for_the_grid() -> None:
    grid = module("grid_sm_80")
    valid = np.full(1, 7, "i4")
    for cooperative in (False, True):
        grid.kernel("is_valid").launch([2], [1], [valid], cooperative=cooperative)
        assert valid[0] == cooperative
    y = np.zeros(8, "f4")
    with pytest.raises(LaunchError, match="trapped"):
        grid.kernel("smooth").launch([2], [4], [y, y, 8, 1])


def test_a_block_that_never_comes() -> None:
    done = np.zeros(4, "i4")
    with pytest.raises(LaunchError, match="blocks that have ended") as late:
        kernel = module("grid_sm_80").kernel("leave_one_out")
        kernel.launch([4], [32], [done], cooperative=True, milliseconds=300)
    assert late.value.outcome == "timeout"
    assert done.tolist() == [0, 0, 0, 1]


def test_memory_of_the_grid_is_checked() -> None:
    """The grid's memory ends behind the words that count blocks."""
    text = """.version 9.0\n.target sm_80\n.address_size 64
        .visible .entry k(.param .u32 at) { .reg .b32 %r<4>; .reg .b64 %d<4>;
        mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2; mov.b64 %d1, {%r2, %r1};
        ld.param.u32 %r3, [at]; cvt.u64.u32 %d2, %r3; add.u64 %d1, %d1, %d2;
        ld.global.u32 %r3, [%d1]; bar.sync 0; ret; }"""
    kernel = Module(text).kernel("k")
    kernel.launch([2], [2], [252], cooperative=True)
    with pytest.raises(LaunchError, match="out of bounds"):
        kernel.launch([2], [2], [256], cooperative=True)


def test_memory_of_a_table_is_the_modules() -> None:
    calls = module("calls_sm_80")
    assert Allocation(calls.address("table"), 24) in calls.allocations()


# -- video -----------------------------------------------------------------------------------------


def parts(words: np.ndarray, count: int, *, signed: bool = False) -> np.ndarray:
    """Return the exact bytes or halves of words, the lowest first."""
    kind = f"{'i' if signed else 'u'}{4 // count}"
    return words.view(kind).reshape(-1, count).astype("i8")


def joined(values: np.ndarray) -> np.ndarray:
    count = values.shape[1]
    return values.astype(f"u{4 // count}").reshape(-1).view("u4")


def simd(name: str, count: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the result of __v<name><count> by CUDA's manual."""
    bits = 32 // count
    signed = name in ("absdiffs", "sads", "avgs", "addss", "subss", "maxs", "setges")
    a, b = (parts(one, count, signed=signed) for one in (x, y))
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if name in ("sadu", "sads"):
        return np.abs(a - b).sum(axis=1).astype("u4")
    return joined(
        {
            "absdiffu": lambda: np.abs(a - b),
            "absdiffs": lambda: np.abs(a - b),
            "avgu": lambda: (a + b + 1) >> 1,
            # Rounded to nearest, halves away from zero.
            "avgs": lambda: np.sign(a + b) * ((np.abs(a + b) + 1) >> 1),
            "addus": lambda: np.clip(a + b, low, high),
            "addss": lambda: np.clip(a + b, low, high),
            "subus": lambda: np.clip(a - b, low, high),
            "subss": lambda: np.clip(a - b, low, high),
            "minu": lambda: np.minimum(a, b),
            "maxs": lambda: np.maximum(a, b),
            "cmpltu": lambda: np.where(a < b, -1, 0),
            "setges": lambda: a >= b,
        }[name]()
    )


FUNCTIONS = (
    "absdiffu absdiffs sadu sads avgu avgs addus addss subus subss minu maxs cmpltu setges".split()
)


def words_with_edges(rng: np.random.Generator, count: int) -> np.ndarray:
    words = rng.integers(0, 1 << 32, (2, count), dtype="u4")
    edges = np.array([0, 0x80808080, 0x7F7F7F7F, 0xFFFFFFFF, 0x80008000, 0x7FFF7FFF], "u4")
    words[:, ::3] = rng.choice(edges, words[:, ::3].shape)
    return words


def test_simd_functions(rng: np.random.Generator, seed: int) -> None:
    n = 200
    x, y = words_with_edges(rng, n)
    made = np.zeros((2 * len(FUNCTIONS), n), "u4")
    kernel = module("video_sm_75").kernel("functions")
    kernel.launch(
        [2], [128], [np.ascontiguousarray(x), np.ascontiguousarray(y), made, n], seed=seed
    )
    for index, name in enumerate(FUNCTIONS):
        for at, count in enumerate((2, 4)):
            expected = simd(name, count, x, y)
            np.testing.assert_array_equal(made[2 * index + at], expected, f"__v{name}{count}")


def test_video_instructions(rng: np.random.Generator, seed: int) -> None:
    n = 200
    x, y = words_with_edges(rng, n)
    c = x ^ np.uint32(0x5A5A5A5A)
    u, v = parts(x, 4), parts(y, 4)
    difference = parts(x, 2, signed=True) - parts(y, 2, signed=True)
    expected = [
        c + np.abs(u - v).sum(axis=1).astype("u4"),
        simd("addss", 4, x, y),
        simd("avgu", 4, x, y),
        joined(u < v),
        joined(np.clip(difference, -(1 << 15), (1 << 15) - 1)),
        simd("maxs", 2, x, y),
        c + np.abs(x.astype("i8") - y.astype("i8")).astype("u4"),
        np.minimum(x.view("i4"), y.view("i4")).view("u4"),
    ]
    made = np.zeros((len(expected), n), "u4")
    kernel = module("video_sm_75").kernel("instructions")
    kernel.launch(
        [2], [128], [np.ascontiguousarray(x), np.ascontiguousarray(y), made, n], seed=seed
    )
    np.testing.assert_array_equal(made, expected)
