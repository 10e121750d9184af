"""The committed ROCm images are up to date with their sources, and readable."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import ubridge
from build_support import hip_compiler, rocm_kernels
from build_support.kernel_manifest import MANIFEST
from rocm_backend.compile import FREESTANDING
from rocm_backend.images import select
from rocm_backend.targets import DeviceTarget
from tests.requirements import missing
from tests.sampling import rounds
from tests.ubridge.committed_images import (
    ROOT,
    check_as_new_as_their_sources,
    check_every_module_was_compiled,
    digest,
    manifest_of,
)
from uhal.images.amd_target import TargetId
from uhal.signature import Signature, merge

IMAGES = ROOT / rocm_kernels.IMAGES
DEVICES = {
    "gfx90a": "gfx90a:sramecc+:xnack-",
    "gfx942": "gfx942:sramecc+:xnack+",
    "gfx1030": "gfx1030",
    "gfx1100": "gfx1100",
    "gfx1201": "gfx1201",
}


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return manifest_of(rocm_kernels)


def test_the_compiler_is_the_one_that_pyproject_installs(manifest: dict[str, Any]) -> None:
    pinned = f"{hip_compiler.PACKAGE}=={hip_compiler.PINNED}"
    assert f'"{pinned}"' in (ROOT / "pyproject.toml").read_text("utf-8")
    assert manifest["compiler"].startswith(pinned.replace("==", " ") + ", zlib ")


def test_every_module_was_compiled() -> None:
    check_every_module_was_compiled(rocm_kernels, ubridge.modules())


@pytest.mark.parametrize("module", ubridge.modules())
def test_images_are_as_new_as_their_sources(module: str, manifest: dict[str, Any]) -> None:
    made = manifest["modules"][module]
    check_as_new_as_their_sources(
        rocm_kernels, made, f"ubridge/kernels/{module}.cu", "uhal/include/uhal/kernel_hip.h"
    )


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("module", ubridge.modules())
@pytest.mark.parametrize("target", rocm_kernels.TARGETS)
def test_what_is_chosen(module: str, target: str, manifest: dict[str, Any]) -> None:
    image = (IMAGES / f"{module}{rocm_kernels.SUFFIX}").read_bytes()
    found = select(image, DeviceTarget("rocm:0", (TargetId.parse(DEVICES[target]),)))
    assert found.chosen.description == f"code object for {target}"
    assert found.contents.version == 4
    declared = Signature.parse_sidecar(
        (IMAGES / f"{module}{rocm_kernels.SUFFIX}.sig").read_text("utf-8")
    )
    told = {name: signature.declaration for name, signature in declared.items()}
    assert told == manifest["modules"][module]["signatures"]
    for kernel in found.contents.kernels:
        assert kernel.exported and not kernel.hidden and not kernel.foreign
        # Private memory means spilled registers, which are slow.
        assert kernel.private_bytes == 0
        both = merge(kernel.signature, declared[kernel.name])
        assert both is not None and both.declaration == told[kernel.name]
        assert [one.offset for one in both] == [one.offset for one in declared[kernel.name]]


def test_the_language_compiles_for_every_target(tmp_path: Path) -> None:
    """Features that no module uses: globals, 16-bit floats, all shared memory, mathematics."""
    if hip_compiler.toolchain() is None:
        missing(f"needs {hip_compiler.PACKAGE} {hip_compiler.PINNED}")
    source = tmp_path / "language.cu"
    calls = re.findall(r"^UHAL_MATH_([12])\((\w+)\)", _mathematics(), re.MULTILINE)
    assert len(calls) > 8
    body = [
        line
        for count, name in calls
        for line in (
            f"a[i] = {name}f({', '.join(['a[i]'] * int(count))});",
            f"b[i] = {name}({', '.join(['b[i]'] * int(count))});",
        )
    ]
    of_f32 = ("expf", "exp2f", "logf", "log2f", "log10f", "tanhf")
    body += [f"a[i] = {name}(a[i]);" for name in of_f32]
    body += [f"b[i] = {name}(b[i]);" for name in ("exp", "log", "tanh")]
    body += ["a[i] = powf(a[i], a[i + 1]);"]
    source.write_text(
        "#include <math.h>\n#include <string.h>\n#include <uhal/kernel.h>\n"
        "DEVICE_GLOBAL(f32, table, 64);\n"
        "KERNEL_BOUNDED(shared, 128, (const f16 *x, bf16 *y, f32 *out, bool flag)) {\n"
        "    SHARED(f32, line, 128);\n    SHARED(bf16, cube, 2, 3, 4);\n"
        "    DYNAMIC_SHARED(f32, scratch);\n    REGISTER(f32, sum, 128);\n"
        "    THREADS(t) {\n        if (t > 72) continue;\n"
        "        sum(t) = line[t] = f32(x[t]);\n        cube[t % 2][t % 3][t % 4] = bf16(sum(t));\n"
        "        if (flag) scratch[t] = table[t % 64];\n    }\n    BARRIER();\n"
        "    THREADS(t) {\n"
        "        out[THREAD_X(t) + THREAD_Y(t) * THREAD_Z(t)] = sum(t) + line[9] + scratch[0];\n"
        "        y[t] = cube[0][0][blockIdx.x % gridDim.y];\n    }\n}\n"
        "KERNEL(mathematics, (u64 n, f32 *a, f64 *b)) {\n    GRID_STRIDE(i, n) {\n"
        + "\n".join(body)
        + "\n    }\n}\n"
    )
    for target in rocm_kernels.TARGETS:
        output = tmp_path / f"{target}.hsaco"
        hip_compiler.compile_hsaco(source, target, output)
        shared, mathematics = rocm_kernels.read_hsaco(output.read_bytes()).kernels
        assert (shared.max_block_threads, mathematics.max_block_threads) == (128, 1024)
        assert shared.group_bytes == 128 * 4 + 24 * 2
        assert b"\0table\0" in output.read_bytes()


def _mathematics() -> str:
    return (ROOT / hip_compiler.INCLUDE / FREESTANDING / "math.h").read_text("utf-8")


def test_building_again_gives_the_same_bytes(
    tmp_path: Path, manifest: dict[str, Any], seed: int
) -> None:
    if rocm_kernels.compiler() != manifest["compiler"]:
        missing(f"needs {manifest['compiler']}")
    # Build from a copy in another folder: images must not contain paths.
    elsewhere = tmp_path / "another folder"
    for folder in (rocm_kernels.KERNELS, hip_compiler.INCLUDE):
        ignored = shutil.ignore_patterns("host", "images")
        shutil.copytree(ROOT / folder, elsewhere / folder, ignore=ignored)
    output = tmp_path / "images"
    drawn = random.Random(seed).choice(["activation", "convolution"])
    names = rounds([drawn], list(ubridge.modules()))
    rocm_kernels.main(output, elsewhere, names)
    made = {path.name: digest(path) for path in output.iterdir()}
    del made[MANIFEST]
    expected: dict[str, str] = {}
    for name in names:
        expected |= manifest["modules"][name]["images"]
    assert made == expected
