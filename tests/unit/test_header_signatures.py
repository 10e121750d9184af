"""Signatures by <uhal/kernel.h> in PTX, cubins, fatbins, code objects and SPIR-V."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from build_support import hip_compiler
from cuda_backend.images import select
from cuda_backend.targets import DeviceTarget
from opencl_backend import compile as opencl_compile
from tests.requirements import needed
from uhal.errors import InvalidImageError
from uhal.images.header_signature import read_signature, with_header
from uhal.images.host_module import CONST, POINTER, ParameterFacts, signature_of
from uhal.images.hsaco import read_hsaco
from uhal.images.spirv import SpirvModule
from uhal.images.spirv_slices import Cutter
from uhal.signature import Signature

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """\
#include <uhal/kernel.h>
enum Mode : u8 { off, on };
struct Shape { u32 d[3]; };
typedef float real;
#define INDEX long long
KERNEL(typed, (const u32 n, real a, unsigned char b, bool c, f16 d, bf16 e, f8e4m3 q, Mode mode,
               Shape shape, INDEX index, const real *__restrict__ x, void *raw, i8 *bytes,
               const void *constant, Shape *shapes, u64 **pointers, const bf16 *const y)) {
    GRID_STRIDE(i, n) { ((f32 *)raw)[i] = x[i] + a + f32(d) + f32(e) + index + shape.d[0] + b; }
}
KERNEL_BOUNDED(nothing, 64, ()) {}
"""
DECLARED = {
    "typed": (
        "u32 n, f32 a, u8 b, bool c, f16 d, bf16 e, f8e4m3 q, u8 mode, bytes[12] shape, i64 index, "
        "const f32* x, ptr raw, i8* bytes, const ptr constant, ptr shapes, ptr pointers, "
        "const bf16* y"
    ),
    "nothing": "",
}
OFFSETS = [0, 4, 8, 9, 10, 12, 14, 15, 16, 32, 40, 48, 56, 64, 72, 80, 88]


def declarations(signatures: dict[str, Signature]) -> dict[str, str]:
    return {entry: told.declaration for entry, told in signatures.items()}


@pytest.mark.drawn(1)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize(
    "options",
    [("-ptx", "-arch=compute_75"), ("-cubin", "-arch=sm_80"), ("-fatbin", "-arch=sm_80")],
    ids=lambda options: options[0],
)
def test_nvcc_and_the_header_are_enough(options: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    flags = subprocess.run(
        [sys.executable, "-m", "uhal", "cflags", "--include"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    command = ["nvcc", "-std=c++17", *flags, *options, "k.cu", "-o", "image"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    found = select(
        (tmp_path / "image").read_bytes(), DeviceTarget("cuda:0", (8, 0), (13, 0))
    ).signatures
    assert declarations(dict(found)) == DECLARED
    assert [parameter.offset for parameter in found["typed"]] == OFFSETS
    assert "kernel.h" in str(found["typed"])


@needed(hip_compiler.toolchain(), "no pinned clang")
def test_code_objects(tmp_path: Path) -> None:
    # The compiler runs in the repository, but the source may be in another folder.
    source = tmp_path / "k.cu"
    source.write_text(SOURCE)
    hip_compiler.compile_hsaco(source, "gfx1100", tmp_path / "image", tells_signatures=True)
    image = (tmp_path / "image").read_bytes()
    assert declarations(read_hsaco(image).signatures) == DECLARED
    hip_compiler.compile_hsaco(source, "gfx1100", tmp_path / "image")
    assert b"uhal_signature" not in (tmp_path / "image").read_bytes()


@needed(hip_compiler.toolchain(), "no pinned clang")
def test_spirv() -> None:
    module = SpirvModule(opencl_compile.kernels(SOURCE))
    assert declarations(dict(module.signatures)) == DECLARED
    cutter = Cutter(module)
    assert not cutter.whole and not cutter.variables, "constants are no variables of kernels"


def test_the_images_own_facts_count_first() -> None:
    image = Signature.parse("u32, unknown[8]", entry="k", source="image")
    told = with_header(image, {"k": b"vI0004cf0008|(u32 count, const f32 *x)\0", "other": b"?"})
    assert told.declaration == "u32 count, const f32* x"
    renamed = Signature.parse("u32 n, ptr x", entry="k", source="image")
    with pytest.raises(InvalidImageError, match="differ in name"):
        with_header(renamed, {"k": b"vI0004cf0008|(u32 count, const f32 *x)\0"})


@pytest.mark.parametrize(
    ("constant", "words"),
    [
        (b"vI0004", "damaged"),
        (b"vI000|(u32 n)", "damaged"),
        (b"vI00g4|(u32 n)", "damaged"),
        (b"xI0004|(u32 n)", "damaged"),
        (b"vI0008|(u32 n)", "8 bytes in the image"),
        (b"vI0004pf0008|(u32 n, f32 *x)", "kernel.h has 2"),
        (b"vf0004|(f32 n)", "differ in"),
    ],
)
def test_a_damaged_constant_is_refused(constant: bytes, words: str) -> None:
    image = Signature.parse("u32 n", entry="k", source="image")
    with pytest.raises(InvalidImageError, match=words):
        with_header(image, {"k": constant})
    assert read_signature("k", b"vI0004|(u32 n)\0\0").declaration == "u32 n"


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        ("(u32 count, const f32 * values)", "u32 count, const f32* values"),
        ("( u32, f32 *__restrict__ )", "u32, f32*"),
        ("(..., (*)())", "u32, f32*"),
        ("(only)", "u32, f32*"),
        ("()", "u32, f32*"),
    ],
)
def test_names_come_from_the_parameter_list_if_it_has_them(text: str, declared: str) -> None:
    flags = POINTER | (CONST if "const" in declared else 0)
    facts = [ParameterFacts(4, 4, 0, ord("I")), ParameterFacts(8, 8, flags, ord("f"))]
    assert signature_of("entry", text, facts).declaration == declared
