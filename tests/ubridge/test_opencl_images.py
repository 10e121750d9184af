"""The committed OpenCL images are up to date with their sources, and small."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import pytest

import ubridge
from build_support import hip_compiler, opencl_kernels
from tests.requirements import missing
from tests.sampling import rounds
from tests.ubridge.committed_images import (
    ROOT,
    check_as_new_as_their_sources,
    check_every_module_was_compiled,
    manifest_of,
)
from uhal.images.spirv import SpirvModule
from uhal.signature import Signature, merge

IMAGES = ROOT / opencl_kernels.IMAGES
MOST_BYTES = 3_000_000


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return manifest_of(opencl_kernels)


def test_every_module_was_compiled(manifest: dict[str, Any]) -> None:
    pinned = f"{hip_compiler.PACKAGE} {hip_compiler.PINNED}, zlib "
    assert manifest["compiler"].startswith(pinned)
    check_every_module_was_compiled(opencl_kernels, ubridge.modules())


def test_they_are_small() -> None:
    assert sum(path.stat().st_size for path in IMAGES.glob("*.gz")) <= MOST_BYTES


@pytest.mark.parametrize("module", ubridge.modules())
def test_images_are_as_new_as_their_sources(module: str, manifest: dict[str, Any]) -> None:
    made = manifest["modules"][module]
    check_as_new_as_their_sources(
        opencl_kernels, made, f"ubridge/kernels/{module}.cu", "uhal/include/uhal/kernel_opencl.h"
    )


@pytest.mark.parametrize("module", ubridge.modules())
def test_an_image_has_the_kernels_its_sidecar_describes(module: str) -> None:
    name = f"{module}{opencl_kernels.SUFFIX}"
    told = SpirvModule(gzip.decompress((IMAGES / name).read_bytes()), name).signatures
    beside = Signature.parse_sidecar((IMAGES / f"{name}.sig").read_text("utf-8"))
    assert list(told) == list(beside)
    for entry, declared in beside.items():
        merged = merge(told[entry], declared)
        assert merged is not None
        assert all(parameter.kind != "unknown" for parameter in merged)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("module", ubridge.modules()[:: rounds(9, 1)])
def test_the_same_sources_give_the_same_bytes(
    module: str, manifest: dict[str, Any], tmp_path: Path
) -> None:
    """Rebuild in another folder, with this machine's compiler."""
    if opencl_kernels.compiler() != manifest["compiler"]:
        missing(f"made with {manifest['compiler']}, here is {opencl_kernels.compiler()}")
    root = tmp_path / "elsewhere"
    for folder in ("uhal/include", "ubridge/kernels"):
        ignored = shutil.ignore_patterns("images", "host")
        shutil.copytree(ROOT / folder, root / folder, ignore=ignored)
    opencl_kernels.main(tmp_path / "made", root, [module])
    for path in (tmp_path / "made").glob(f"{module}.*"):
        assert path.read_bytes() == (IMAGES / path.name).read_bytes(), path.name
