"""One kernel source, compiled by each target's compiler with the headers alone.

The test needs compilers that users of a device may lack, so it is not part of the suite.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import uhal.compile
from build_support import hip_compiler
from opencl_backend import compile as opencl_compile
from tests.conformance.rows import ROCM_TARGET, ROOT, rocm_target, shipped
from tests.host_kernels import INCLUDE
from tests.requirements import missing
from uhal import Device, Module
from uhal_conformance.counting_sort import sort
from uhal_conformance.images import KERNELS
from uhal_conformance.row import DeviceRow


def plain_image(row: DeviceRow, folder: Path) -> bytes:
    """Return a compiler's output for the source and the header, without other files."""
    source = KERNELS / "language.cu"
    if row.backend in ("host", "skeleton"):
        return _host_image(source)
    if row.backend in ("opencl", "webgpu"):
        if hip_compiler.toolchain() is None:
            missing(f"needs pip install {hip_compiler.PACKAGE}=={hip_compiler.PINNED}")
        return opencl_compile.kernels(source.read_text(encoding="utf-8"))
    image = folder / "image"
    if row.backend == "rocm":
        place = source.relative_to(ROOT)
        target = rocm_target(row.ordinal) if row.prepare is None else ROCM_TARGET
        hip_compiler.compile_hsaco(place, target, image, tells_signatures=True)
    elif row.backend == "cuda" and shutil.which("nvcc") is None:
        return shipped(source, "cuda", ".ptx", "nvcc is not on the PATH").read_bytes()
    elif row.backend == "cuda":
        options = ("-std=c++17", f"-I{INCLUDE}", "-ptx", "-arch=compute_75")
        subprocess.run(["nvcc", *options, str(source), "-o", str(image)], check=True)
    else:
        pytest.skip("types of GCUs' kernels are in a sidecar: no compiler puts them into the image")
    return image.read_bytes()


_host_image = cache(uhal.compile.host)


@pytest.mark.drawn(1, among_backends=True)
def test_one_source_tells_its_types_everywhere(
    row: DeviceRow, device: Device, tmp_path: Path, rng: np.random.Generator
) -> None:
    """The image contains the types, so the kernel takes plain numbers without a sidecar."""
    with Module.from_bytes(plain_image(row, tmp_path)) as module:
        kernel = module.get_function("counting_sort")
        assert kernel.signature is not None
        assert kernel.signature.declaration == ("u32 n, const u8* values, u32* counts, u32* places")
        sort(kernel, rng)
        assert str(module.get_function("atomics_i32").signature).startswith(
            "u64 n, const i32* values, i32* out, u32* tickets, u32* taken"
        )
