"""The kernel language: its compiled form, its errors, and its 16-bit floats."""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.host_kernels import INCLUDE, build, compiler, has_compiler, refusal
from tests.host_runtime.driver import Driver
from tests.requirements import needed
from uhal.images.elf import Elf
from uhal.images.host_module import ParameterFacts, signature_of

pytestmark = needed(has_compiler(), "kernels are compiled here")

EVERYTHING = """
#include <uhal/kernel.h>
DEVICE_GLOBAL(f32, table, 64);
DEVICE_FUNCTION f32 square(f32 x) { return x * x; }
KERNEL(stream_like, (u64 n, f32 a, const f32 *x, f32 *y)) {
    GRID_STRIDE(i, n) { y[i] = a * x[i] + y[i]; }
}
KERNEL(transcendental, (u64 n, const f32 *x, f32 *y)) {
    GRID_STRIDE(i, n) { y[i] = expf(x[i]); }
}
KERNEL(halves, (u64 n, const f16 *x, const bf16 *y, f16 *z)) {
    GRID_STRIDE(i, n) { z[i] = f16(f32(x[i]) + f32(y[i])); }
}
KERNEL(nothing, ()) {}
struct Doubled { DEVICE_METHOD f32 operator()(f32 x) const { return x + x; } };
template <class T> DEVICE_FUNCTION void helped(BLOCK block, u64 n, const T *x, T *y) {
    REGISTER_OF(block, f32, value, MAX_THREADS);
    THREADS_OF(block, t) { value(t) = 1; }
    BARRIER();
    THREADS_OF(block, t) { value(t) += 1; }
    GRID_STRIDE_OF(block, i, n) { y[i] = T(Doubled{}(f32(x[i]))); }
}
KERNEL(helper, (u64 n, const f8e4m3 *x, f8e4m3 *y)) { helped(THIS_BLOCK, n, x, y); }
KERNEL_BOUNDED(tiles, 128, (const f32 *x, f32 *out, bool flag)) {
    SHARED(f32, line, 128);
    SHARED(f32, tile, 8, 9);
    SHARED(f32, cube, 2, 3, 4);
    DYNAMIC_SHARED(f32, scratch);
    REGISTER(f32, sum, 128);
    THREADS(t) {
        if (t >= 72) continue;
        sum(t) = square(x[t]);
        line[t] = sum(t);
        tile[t / 9][t % 9] = sum(t);
        cube[t % 2][t % 3][t % 4] = sum(t);
        if (flag) scratch[t] = 1;
    }
    BARRIER();
    THREADS(t) {
        if (THREAD_X(t) < 72) out[t] = line[t] + tile[t / 9][t % 9] + cube[0][0][0] + table[t % 64];
        if (THREAD_Y(t) + THREAD_Z(t) == gridDim.y) out[blockIdx.x] = sum(t);
    }
}
"""
LEVELS = ["x86-64-v2", "x86-64-v3", "x86-64-v4"] if platform.machine() == "x86_64" else []


@pytest.mark.drawn(1)
@pytest.mark.parametrize("level", LEVELS)
def test_every_level_compiles_without_a_warning(level: str) -> None:
    build(EVERYTHING, "-Wall", "-Wextra", "-Wshadow", f"-march={level}")


@pytest.mark.skipif("clang" in compiler()[0], reason="reads gcc's report")
@pytest.mark.drawn(1)
@pytest.mark.parametrize("level", LEVELS)
def test_loops_over_work_items_vectorize(level: str, tmp_path: Path) -> None:
    source = tmp_path / "k.cpp"
    source.write_text(EVERYTHING, encoding="utf-8")
    flags = ["-std=c++17", "-O3", "-fno-math-errno", "-fPIC", f"-march={level}", f"-I{INCLUDE}"]
    command = [*compiler(), *flags, "-fopt-info-vec-optimized", "-c", str(source)]
    done = subprocess.run([*command, "-o", "/dev/null"], capture_output=True, text=True, check=True)
    vectorized = {int(line) for line in re.findall(r"k\.cpp:(\d+):", done.stderr)}
    lines = EVERYTHING.split("\n")
    expected = ["stream_like", "halves"]
    if (platform.libc_ver()[0] == "glibc" and "vector_math" in done.stderr) or _has_vector_math():
        expected.append("transcendental")
    for name in expected:
        head = next(number for number, line in enumerate(lines, 1) if f"({name}," in line)
        assert head + 1 in vectorized, (name, done.stderr)


def _has_vector_math() -> bool:
    name, version = platform.libc_ver()
    return name == "glibc" and tuple(map(int, version.split(".")[:2])) >= (2, 35)


def test_a_module_exports_one_symbol_and_shares_none() -> None:
    symbols = [
        symbol
        for symbol in Elf(build(EVERYTHING)).dynamic_symbols
        if symbol.section != 0 and symbol.other & 3 == 0
    ]
    assert [symbol.name for symbol in symbols] == ["uhal_host_module"]
    unique = 10
    assert not any(symbol.binding == unique for symbol in symbols)


def test_several_sources_make_one_module(tmp_path: Path) -> None:
    library = tmp_path / "k.so"
    sources = []
    for name in ("first", "second"):
        source = tmp_path / f"{name}.cpp"
        source.write_text(f"#include <uhal/kernel.h>\nKERNEL({name}, (u32 *x)) {{ x[0] = 1; }}\n")
        sources.append(str(source))
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", f"-I{INCLUDE}"]
    subprocess.run([*compiler(), *flags, *sources, "-o", str(library)], check=True)
    driver = Driver()
    with driver.module(library.read_bytes()) as module:
        for name in ("first", "second"):
            assert driver.function(module, name)


def test_parameter_types_are_the_compilers() -> None:
    source = """
    #include <uhal/kernel.h>
    enum Mode : u8 { off, on };
    struct Shape { u32 d[3]; };
    typedef float real;
    #define INDEX long long
    KERNEL(typed, (const u32 n, real a, unsigned char b, bool c, f16 d, bf16 e, Mode mode,
                   Shape shape, INDEX index, const real *__restrict__ x, void *raw,
                   const void *constant, Shape *shapes, u64 **pointers)) {}
    """
    driver = Driver()
    info_type = driver.api.header.ctype("uhalHostKernelInfo")
    with driver.module(build(source)) as module:
        info = info_type()
        driver.api.uhalHostModuleGetKernel(info, 0, module)
        facts = [
            ParameterFacts(each.size, each.alignment, each.flags, each.dtype)
            for each in info.parameters[: info.parameter_count]
        ]
        signature = signature_of("typed", info.parameter_text.decode(), facts)
    assert signature.declaration == (
        "u32 n, f32 a, u8 b, bool c, f16 d, bf16 e, u8 mode, bytes[12] shape, i64 index, "
        "const f32* x, ptr raw, const ptr constant, ptr shapes, ptr pointers"
    )
    offsets = [parameter.offset for parameter in signature]
    assert offsets == [0, 4, 8, 9, 10, 12, 14, 16, 32, 40, 48, 56, 64, 72]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("()", []),
        ("(void)", []),
        ("(u32 n)", ["n"]),
        ("(u32, const f32 *, unsigned int, f32 a)", [None, None, None, "a"]),
        ("(pair<u32, f32> p, f32 *x)", None),
    ],
)
def test_names_come_from_the_text(text: str, names: list[str | None] | None) -> None:
    count = 2 if names is None else len(names)
    facts = [ParameterFacts(4, 4, 0, ord("I"))] * count
    signature = signature_of("k", text, facts)
    assert [parameter.name for parameter in signature] == (["p", "x"] if names is None else names)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("KERNEL(k, (u32 *x)) { THREADS(t) { BARRIER(); x[t] = 1; } }", "between THREADS regions"),
        ("KERNEL(k, (u32 *x)) { GRID_STRIDE(i, 9) { BARRIER(); } x[0] = 1; }", "THREADS regions"),
        ("KERNEL(k, ()) { SHARED(f64, big, 6145); big[0] = 1; }", "48 KiB"),
        ("struct Big { u8 b[5000]; };\nKERNEL(k, (Big b)) { (void)b; }", "4096 bytes"),
        ("KERNEL_BOUNDED(k, 2000, ()) {}", "1 to 1024"),
        ("#include <string>\nKERNEL(k, (std::string s)) { (void)s; }", "copied as bytes"),
    ],
)
def test_misuse_does_not_compile(body: str, words: str) -> None:
    assert words in refusal(f"#include <uhal/kernel.h>\n{body}\n")


def test_an_old_standard_is_said() -> None:
    assert "needs C++17" in refusal("#include <uhal/kernel.h>\n", "-std=c++14")


CONVERT = """
#include <uhal/kernel.h>
KERNEL(to_half, (u64 n, const f32 *x, f16 *y)) { GRID_STRIDE(i, n) { y[i] = f16(x[i]); } }
KERNEL(from_half, (u64 n, const f16 *x, f32 *y)) { GRID_STRIDE(i, n) { y[i] = x[i]; } }
KERNEL(to_bfloat, (u64 n, const f32 *x, bf16 *y)) { GRID_STRIDE(i, n) { y[i] = bf16(x[i]); } }
KERNEL(from_bfloat, (u64 n, const bf16 *x, f32 *y)) { GRID_STRIDE(i, n) { y[i] = x[i]; } }
"""


@pytest.mark.parametrize("name", ["half", "bfloat"])
def test_conversions_of_16_bit_floats(name: str, seed: int) -> None:
    """Results equal numpy and ml_dtypes bit for bit, on every 16-bit value and on random floats."""
    rng = np.random.default_rng(seed)
    small = np.dtype(np.float16 if name == "half" else ml_dtypes.bfloat16)
    narrow = np.arange(1 << 16, dtype=np.uint16).view(small)
    bits = rng.integers(0, 1 << 32, 1 << 18, dtype=np.uint32)
    near = bits & np.uint32(0x8FFFFFFF) | np.uint32(0x30000000)  # the range of subnormal halves
    every = narrow.astype(np.float32)
    ties = (every.view(np.uint32) + rng.integers(-1, 2, every.size)).astype(np.uint32)
    wide = np.concatenate([every.view(np.uint32), ties, bits, near]).view(np.float32)
    with np.errstate(all="ignore"):
        expected = wide.astype(small)
    driver = Driver()
    with driver.module(build(CONVERT)) as module, driver.stream() as stream:

        def convert(kernel: str, source: np.ndarray, target: np.ndarray) -> None:
            with driver.memory(source.nbytes) as x, driver.memory(target.nbytes) as y:
                driver.write(x, source, stream)
                values = (ctypes.c_uint64(source.size), ctypes.c_uint64(x), ctypes.c_uint64(y))
                function = driver.function(module, kernel)
                driver.launch(function, (7, 1, 1), (64, 1, 1), stream, *values)
                driver.read(target, y, stream)

        got = np.zeros(wide.size, np.uint16)
        convert(f"to_{name}", wide, got)
        back = np.zeros(narrow.size, np.uint32)
        convert(f"from_{name}", narrow.view(np.uint16), back)
    same = (got == expected.view(np.uint16)) | (np.isnan(wide) & np.isnan(got.view(small)))
    assert same.all(), wide[~same][:5]
    same = (back == every.view(np.uint32)) | (np.isnan(every) & np.isnan(back.view(np.float32)))
    assert same.all(), narrow[~same][:5]


def test_a_block_too_large_for_its_registers_is_reported() -> None:
    source = """
    #include <uhal/kernel.h>
    KERNEL(k, (f32 *x)) { REGISTER(f32, r, 32); THREADS(t) { r(t) = 1; x[t] = r(t); } }
    """
    driver = Driver()
    with driver.module(build(source)) as module, driver.memory(4 * 64) as x, driver.stream() as s:
        k = driver.function(module, "k")
        driver.launch(k, (1, 1, 1), (32, 1, 1), s, ctypes.c_uint64(x))
        got = np.zeros(32, np.float32)
        driver.read(got, x, s)
    assert (got == 1).all()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_the_same_source_is_cuda(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text(EVERYTHING, encoding="utf-8")
    target = tmp_path / "k.ptx"
    flags = ["-ptx", "-arch=compute_75", "-std=c++17", "-rdc=true", f"-I{INCLUDE}"]
    command = ["nvcc", *flags, str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ptx = target.read_text(encoding="utf-8")
    assert set(re.findall(r"\.entry (\w+)", ptx)) == {
        "stream_like",
        "transcendental",
        "halves",
        "nothing",
        "helper",
        "tiles",
    }
    assert re.search(r"\.visible \.global .* table\[256\]", ptx)
    assert "bar.sync" in ptx and ".maxntid 128" in ptx
