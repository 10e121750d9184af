"""Kernels are rewritten for devices without f16, and for devices that only support SPIR-V 1.0."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opencl_backend import compile as opencl_compile
from opencl_backend.earlier import in_version
from opencl_backend.halves import CAPABILITY_FLOAT16, without_halves
from tests.children import check_child
from tests.conformance.rows import KERNELS
from tests.opencl.test_spirv import tool
from tests.sampling import rounds
from uhal import Device, DeviceBuffer, Module
from uhal.errors import InvalidImageError, NotSupportedError
from uhal.images.spirv import SpirvModule
from uhal.images.spirv_slices import Cutter
from uhal.images.spirv_words import OP_TYPE_FLOAT

SOURCE = """
#include <uhal/kernel.h>
#include <uhal/vector.h>
KERNEL(widen, (u64 n, const f16 *x, f32 *y)) { GRID_STRIDE(i, n) { y[i] = f32(x[i]); } }
KERNEL(widen_twice, (u64 n, const f16 *x, f64 *y)) { GRID_STRIDE(i, n) { y[i] = f64(x[i]); } }
KERNEL(narrow, (u64 n, const f32 *x, f16 *y)) { GRID_STRIDE(i, n) { y[i] = f16(x[i]); } }
KERNEL(narrow_twice, (u64 n, const f64 *x, f16 *y)) { GRID_STRIDE(i, n) { y[i] = f16(x[i]); } }
KERNEL(from_integers, (u64 n, const i32 *x, f16 *y)) { GRID_STRIDE(i, n) { y[i] = f16(x[i]); } }
KERNEL(arithmetic, (u64 n, const f16 *a, const f16 *b, f16 *y)) {
    GRID_STRIDE(i, n) {
        y[5 * i] = a[i] + b[i];
        y[5 * i + 1] = a[i] - b[i];
        y[5 * i + 2] = a[i] * b[i];
        y[5 * i + 3] = a[i] / b[i];
        y[5 * i + 4] = -a[i];
    }
}
KERNEL(comparison, (u64 n, const f16 *a, const f16 *b, f16 given, f16 *y, i32 *z)) {
    GRID_STRIDE(i, n) {
        y[i] = a[i] < b[i] ? given : b[i];
        z[3 * i] = i32(a[i]);
        z[3 * i + 1] = a[i] <= b[i];
        z[3 * i + 2] = a[i] != b[i];
    }
}
template <u32 count> using halves = f16 __attribute__((ext_vector_type(count)));
template <u32 count, class Type> using many = Type __attribute__((ext_vector_type(count)));
template <u32 count>
DEVICE_FUNCTION void compute_vectors(u64 n, const f16 *a, const f16 *b, f16 *y, i32 *z) {
    typedef halves<count> Halves;
    GRID_STRIDE(i, n / count) {
        const vec<f16, count> left = load_vector<count>(a + count * i);
        const vec<f16, count> right = load_vector<count>(b + count * i);
        Halves p, q, swapped;
        many<count, u16> bits;
        memcpy(&p, &left, sizeof p);
        memcpy(&q, &right, sizeof q);
        memcpy(&bits, &left, sizeof bits);
        for (u32 k = 0; k < count; k++) swapped[k] = p[k ^ 1];
        const many<count, f32> wide = __builtin_convertvector(p, many<count, f32>);
        const many<count, f64> double_wide = __builtin_convertvector(p, many<count, f64>) / 3.1;
        const many<count, i16> less = p < q;
        bits *= 3;
        Halves other;
        memcpy(&other, &bits, sizeof other);
        const Halves answers[] = {
            p + q, p - q, p * q, p / q, -p, other, swapped,
            __builtin_convertvector(wide * 1.1f, Halves),
            __builtin_convertvector(double_wide, Halves),
            __builtin_convertvector(__builtin_convertvector(q, many<count, i32>), Halves),
        };
        for (u32 k = 0; k < 10; k++) {
            vec<f16, count> answer;
            memcpy(&answer, &answers[k], sizeof answer);
            store_vector(y + n * k + count * i, answer);
        }
        for (u32 k = 0; k < count; k++) z[count * i + k] = less[k];
    }
}
#define VECTORS(count)                                                                   \
    KERNEL(vectors_##count, (u64 n, const f16 *a, const f16 *b, f16 *y, i32 *z)) {       \
        compute_vectors<count>(n, a, b, y, z);                                           \
    }
VECTORS(2)
VECTORS(4)
VECTORS(8)
KERNEL(moves, (u64 n, const f16 *a, f16 *y)) {
    GRID_STRIDE(i, n / 8) { store_vector(y + 8 * i, load_vector<8>(a + 8 * i)); }
}
"""
SIGNATURES = {
    "widen": "u64 n, const f16* x, f32* y",
    "widen_twice": "u64 n, const f16* x, f64* y",
    "narrow": "u64 n, const f32* x, f16* y",
    "narrow_twice": "u64 n, const f64* x, f16* y",
    "from_integers": "u64 n, const i32* x, f16* y",
    "arithmetic": "u64 n, const f16* a, const f16* b, f16* y",
    "comparison": "u64 n, const f16* a, const f16* b, f16 given, f16* y, i32* z",
    "moves": "u64 n, const f16* a, f16* y",
    **{f"vectors_{n}": "u64 n, const f16* a, const f16* b, f16* y, i32* z" for n in (2, 4, 8)},
}
POISON = 0x5A
Layer = Callable[..., Mapping[str, str]]


@pytest.fixture(scope="module")
def image() -> bytes:
    return opencl_compile.kernels(SOURCE)


@pytest.fixture
def plain(layer: Layer) -> Mapping[str, str]:
    """A device without f16 that only supports SPIR-V 1.0; its driver refuses everything else."""
    return layer(UHAL_LAYER_HIDES="cl_khr_fp16", UHAL_LAYER_IL="SPIR-V_1.0 ")


def same(got: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> None:
    """Compare bits; a NaN equals any NaN."""
    assert got.dtype == wanted.dtype
    bits = f"u{got.itemsize}"
    equal = got.view(bits) == wanted.view(bits)
    if got.dtype.kind == "f":
        equal |= np.isnan(got) & np.isnan(wanted)
    wrong = np.flatnonzero(~equal)[:5]
    assert equal.all(), [(int(i), got[i], wanted[i]) for i in wrong]


def compute_in_halves(path: str, seed: int, count: int) -> None:
    """Compare f16 arithmetic with numpy on every f16, and on numbers between neighbors."""
    rng = np.random.default_rng(seed)
    halves = np.arange(1 << 16, dtype="u2").view("f2")
    with Device(0, "opencl") as device, np.errstate(all="ignore"):
        assert "cl_khr_fp16" not in str(device.attributes["CL_DEVICE_EXTENSIONS"])
        module = Module.from_file(Path(path))

        def run(name: str, size: int, dtype: str, *given: Any) -> np.ndarray[Any, Any]:
            poison = bytes([POISON]) * (size * np.dtype(dtype).itemsize)
            out = DeviceBuffer.from_numpy(np.frombuffer(poison, dtype))
            arguments = [
                DeviceBuffer.from_numpy(one) if isinstance(one, np.ndarray) else one
                for one in given
            ]
            function = module.get_function(name, SIGNATURES[name])
            function[16, 64](len(given[0]), *arguments, out)
            found: np.ndarray[Any, Any] = out.to_numpy()
            return found

        same(run("moves", halves.size, "f2", halves), halves)
        same(run("widen", halves.size, "f4", halves), halves.astype("f4"))
        same(run("widen_twice", halves.size, "f8", halves), halves.astype("f8"))
        # the numbers half-way between two neighbors, and the doubles next to them
        exact = halves.astype("f8")
        middle = exact + 0.5 * (np.roll(exact, -1) - exact)
        beside = np.concatenate([middle, *(np.nextafter(middle, to) for to in (-np.inf, np.inf))])
        some = rng.integers(0, 1 << 64, count, "u8", endpoint=False).view("f8")
        doubles = np.concatenate([beside, some, exact, -beside])
        same(run("narrow_twice", doubles.size, "f2", doubles), doubles.astype("f2"))
        floats = np.concatenate(
            [doubles.astype("f4"), rng.integers(0, 1 << 32, count, "u4").view("f4")]
        )
        same(run("narrow", floats.size, "f2", floats), floats.astype("f2"))
        integers = rng.integers(-(1 << 31), 1 << 31, count).astype("i4")
        integers[::2] >>= rng.integers(0, 31, integers[::2].size).astype("i4")
        expected = integers.astype("f8").astype("f2")
        same(run("from_integers", count, "f2", integers), expected)
        a, b = (halves[rng.integers(0, 1 << 16, count)] for _ in range(2))
        found = run("arithmetic", 5 * count, "f2", a, b).reshape(-1, 5)
        for column, wanted in enumerate((a + b, a - b, a * b, a / b, -a)):
            same(np.ascontiguousarray(found[:, column]), wanted)
        small = np.where(np.abs(b) < 1000, b, np.float16(7))
        columns: list[np.ndarray[Any, Any]]
        columns = [a + small, a - small, a * small, a / small, -a, (a.view("u2") * 3).view("f2")]
        columns += [
            a.reshape(-1, 2)[:, ::-1].ravel(),
            (a.astype("f4") * np.float32(1.1)).astype("f2"),
        ]
        columns += [(a.astype("f8") / 3.1).astype("f2"), small.astype("i4").astype("f2")]
        for length in (2, 4, 8):
            less = DeviceBuffer.from_numpy(np.full(count, POISON, "i4"))
            chosen = DeviceBuffer.from_numpy(np.full(10 * count, 3, "f2"))
            arguments = [DeviceBuffer.from_numpy(one) for one in (a, small)]
            kernel = module.get_function(f"vectors_{length}", SIGNATURES[f"vectors_{length}"])
            kernel[4, 64](count, *arguments, chosen, less)
            for row, wanted in zip(chosen.to_numpy().reshape(10, -1), columns, strict=True):
                same(row, wanted)
            assert np.array_equal(less.to_numpy(), np.where(a < small, -1, 0))
        chosen = DeviceBuffer.from_numpy(np.full(count, 3, "f2"))
        told = DeviceBuffer.from_numpy(np.full(3 * count, POISON, "i4"))
        module.get_function("comparison", SIGNATURES["comparison"])[16, 64](
            count,
            DeviceBuffer.from_numpy(a),
            DeviceBuffer.from_numpy(b),
            np.float16(1.5),
            chosen,
            told,
        )
        same(chosen.to_numpy(), np.where(a < b, np.float16(1.5), b))
        answers = told.to_numpy().reshape(-1, 3)
        finite = np.isfinite(a)
        assert np.array_equal(answers[finite, 0], a[finite].astype("i4"))
        assert np.array_equal(answers[:, 1], a <= b)
        assert np.array_equal(answers[:, 2], a != b)


def test_numbers_are_those_of_a_device_with_f16(
    plain: Mapping[str, str], image: bytes, tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "halves.spv"
    path.write_bytes(image)
    count = rounds(1 << 16, 1 << 22)
    assert check_child(compute_in_halves, str(path), seed, count, environment=plain) == ""


def test_nothing_of_f16_is_left(packages: Path, image: bytes, tmp_path: Path) -> None:
    module = SpirvModule(image)
    cutter = Cutter(module)
    for entry in module.entries.values():
        cut = SpirvModule(cutter.cut(entry).image)
        made = without_halves(cut)
        assert made is not None
        tool(packages, "spirv-val", made, tmp_path, "--target-env", "spv1.2")
        found = SpirvModule(made)
        assert CAPABILITY_FLOAT16 not in found.capabilities
        floats = [one for one in found.globals.values() if one.opcode == OP_TYPE_FLOAT]
        assert all(found.words[one.start + 2] != 16 for one in floats)
        assert len(found.signatures[entry.name]) == len(cut.signatures[entry.name])


def test_every_kernel_of_ours_can_do_without(
    packages: Path, tmp_path: Path, rng: np.random.Generator
) -> None:
    """Every kernel has a form for SPIR-V 1.0 without f16. Khronos's validator checks some."""
    folder = KERNELS.parents[2] / "ubridge" / "kernels" / "images" / "opencl"
    for path in sorted(folder.glob("*.spv.gz")):
        module = SpirvModule(gzip.decompress(path.read_bytes()), path.name)
        cutter = Cutter(module)
        names = list(module.entries)
        judged = {str(name) for name in rng.permutation(names)[: rounds(4, len(names))]}
        for entry in module.entries.values():
            cut = cutter.cut(entry)
            made: bytes | None = cut.image
            if CAPABILITY_FLOAT16 in cut.capabilities:
                made = without_halves(SpirvModule(cut.image, path.name))
            assert made is not None, (path.name, entry.name)
            made = in_version(made, (1, 0), entry.name)
            if entry.name in judged:
                tool(packages, "spirv-val", made, tmp_path, "--target-env", "spv1.0")


def ask_for(source: str) -> None:
    image = opencl_compile.kernels(f"#include <uhal/kernel.h>\n{source}")
    with Device(0, "opencl"), Module.from_bytes(image) as module:
        try:
            module.get_function("asks")
        except NotSupportedError as error:
            print(error)


def test_what_has_no_counterpart_is_refused(plain: Mapping[str, str]) -> None:
    """uhal raises an error, and does not call the driver."""
    source = """
    KERNEL(asks, (f16 *y)) { THREADS(t) { y[t] = __builtin_elementwise_sqrt(y[t]); } }
    """
    said = check_child(ask_for, source, environment=plain)
    assert "kernel 'asks' needs what" in said and "Float16 (cl_khr_fp16)" in said


def test_what_is_newer_is_refused(image: bytes) -> None:
    """OpModuleProcessed came with 1.1."""
    module = SpirvModule(image)
    assert in_version(image, (1, 2), "it") == image
    newer = bytearray(image)
    start = module.preamble[-1].end * 4
    newer[start:start] = (2 << 16 | 330).to_bytes(4, "little") + b"us\0\0"
    with pytest.raises(InvalidImageError, match=r"it cannot be given .* SPIR-V 1\.0 alone: .* 330"):
        in_version(bytes(newer), (1, 0), "it")


CARRIES = """
#include <uhal/kernel.h>
KERNEL(adds, (u64 n, const u64 *a, const u64 *b, u64 *y)) {
    GRID_STRIDE(i, n) {
        u64 sum = 0;
        y[2 * i + 1] = __builtin_add_overflow(a[i], b[i], &sum);
        y[2 * i] = sum;
    }
}
KERNEL(takes, (u64 n, const u32 *a, const u32 *b, u32 *y)) {
    GRID_STRIDE(i, n) {
        u32 difference = 0;
        y[2 * i + 1] = __builtin_sub_overflow(a[i], b[i], &difference);
        y[2 * i] = difference;
    }
}
KERNEL(multiplies, (u64 n, const u64 *a, const u64 *b, u64 *y)) {
    GRID_STRIDE(i, n) {
        u64 product = 0;
        y[2 * i + 1] = __builtin_mul_overflow(a[i], b[i], &product);
        y[2 * i] = product;
    }
}
"""


def carry(path: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with Device(0, "opencl"), Module.from_file(Path(path)) as module:
        for name, dtype in (("adds", "u8"), ("takes", "u4")):
            largest = np.iinfo(dtype).max
            a, b = (rng.integers(0, largest, 1000, dtype, endpoint=True) for _ in range(2))
            b[:3], a[:3] = (1, 0, largest), (largest, 0, largest)
            out = DeviceBuffer.from_numpy(np.full(2000, POISON, dtype))
            kernel = module.get_function(name)
            kernel[4, 64](1000, DeviceBuffer.from_numpy(a), DeviceBuffer.from_numpy(b), out)
            found = out.to_numpy().reshape(-1, 2)
            wanted = a + b if name == "adds" else a - b
            assert np.array_equal(found[:, 0], wanted)
            assert np.array_equal(found[:, 1], wanted < a if name == "adds" else a < b)
        try:
            module.get_function("multiplies")
        except InvalidImageError as error:
            print(error)


def test_what_the_drivers_of_the_earliest_version_forgot(
    plain: Mapping[str, str], packages: Path, tmp_path: Path, seed: int
) -> None:
    image = opencl_compile.kernels(CARRIES)
    module = SpirvModule(image)
    for name in ("adds", "takes"):
        made = in_version(Cutter(module).cut(module.entries[name]).image, (1, 0), name)
        told = tool(packages, "spirv-dis", made, tmp_path)
        assert "Carry" not in told and "Borrow" not in told
        tool(packages, "spirv-val", made, tmp_path, "--target-env", "spv1.0")
    (tmp_path / "carries.spv").write_bytes(image)
    said = check_child(carry, str(tmp_path / "carries.spv"), seed, environment=plain)
    assert "'multiplies' cannot be given to a device that takes SPIR-V 1.0 alone" in said
