"""The committed CUDA images are up to date with their sources, and readable."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import ubridge
from build_support import cuda_kernels
from build_support.kernel_manifest import MANIFEST
from cuda_backend.images import select
from cuda_backend.targets import DeviceTarget
from tests.sampling import rounds
from tests.shipped_ptx import shipped_ptx, shipped_texts
from tests.ubridge.committed_images import (
    ROOT,
    check_as_new_as_their_sources,
    check_every_module_was_compiled,
    digest,
    manifest_of,
)
from uhal.errors import InvalidImageError
from uhal.images.ptx import read_ptx

IMAGES = ROOT / cuda_kernels.IMAGES
MODULES = ubridge.modules("cuda")


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return manifest_of(cuda_kernels)


def test_every_module_was_compiled() -> None:
    check_every_module_was_compiled(cuda_kernels, MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_images_are_as_new_as_their_sources(module: str, manifest: dict[str, Any]) -> None:
    made = manifest["modules"][module]
    check_as_new_as_their_sources(
        cuda_kernels, made, cuda_kernels.module_sources()[module].as_posix()
    )


@pytest.mark.drawn(12)
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    ("capability", "driver", "expected"),
    [
        ((7, 5), (11, 4), "PTX 6.3 for sm_75"),
        ((8, 0), (11, 4), "PTX 6.3 for sm_75"),
        ((8, 6), (13, 0), "PTX 6.3 for sm_75"),
        ((8, 0), (13, 0), "cubin for sm_80"),
        ((9, 0), (13, 1), "cubin for sm_90"),
        ((12, 1), (13, 1), "PTX 6.3 for sm_75"),
    ],
)
def test_what_is_chosen(
    module: str,
    capability: tuple[int, int],
    driver: tuple[int, int],
    expected: str,
    manifest: dict[str, Any],
) -> None:
    image = (IMAGES / f"{module}.fatbin.gz").read_bytes()
    target = DeviceTarget("cuda:0", capability, driver)
    if module not in ubridge.modules():
        if capability < (8, 0):
            with pytest.raises(InvalidImageError, match=r"written for compute capability 8\.0 or"):
                select(image, target)
            return
        expected = expected.replace("PTX 6.3 for sm_75", "PTX 7.0 for sm_80")
    elif module in cuda_kernels.FURTHER_PTX:
        newest = "PTX 6.5 for sm_75" if capability < (8, 0) else "PTX 7.0 for sm_80"
        expected = expected.replace("PTX 6.3 for sm_75", newest)
    selection = select(image, target)
    assert selection.chosen.description == expected
    assert sorted(selection.signatures) == sorted(manifest["modules"][module]["signatures"])


@pytest.mark.drawn(1 / 3)
@pytest.mark.parametrize("module", MODULES)
def test_signatures_of_the_sources_go_with_the_ptx(module: str, manifest: dict[str, Any]) -> None:
    told = manifest["modules"][module]["signatures"]
    for text in shipped_texts(module).values():
        assert set(read_ptx(text).signatures) == set(told)
    lines = (IMAGES / f"{module}.fatbin.gz.sig").read_text("utf-8").splitlines()
    assert dict(line.split(": ", 1) for line in lines) == told


@pytest.mark.parametrize("module", ["indexing"])
def test_the_fault_channel_can_be_found(module: str) -> None:
    """Check the PTX: a loaded cubin's symbols belong to the driver."""
    text = shipped_ptx(module).decode()
    assert re.search(r"^\.visible \.global .*\buhal_fault\b", text, re.MULTILINE)


def copied(elsewhere: Path) -> Path:
    """Build from a copy in another folder: images must not contain paths."""
    for folder in (cuda_kernels.KERNELS, cuda_kernels.INCLUDE):
        ignored = shutil.ignore_patterns("host", "images")
        shutil.copytree(ROOT / folder, elsewhere / folder, ignore=ignored)
    return elsewhere


def test_building_again_gives_the_same_bytes(
    tmp_path: Path, manifest: dict[str, Any], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    if shutil.which("nvcc") is None or cuda_kernels.compiler() != manifest["compiler"]:
        pytest.skip(f"needs {manifest['compiler']}")
    monkeypatch.setattr(cuda_kernels, "ROOT", copied(tmp_path / "another folder"))
    output = tmp_path / "images"
    drawn = random.Random(seed).choice(["activation", "convolution", "sampling"])
    names = rounds([drawn], list(MODULES))
    cuda_kernels.main(output, names)
    made = {path.name: digest(path) for path in output.iterdir()}
    del made[MANIFEST]
    expected: dict[str, str] = {}
    for name in names:
        expected |= manifest["modules"][name]["images"]
    assert made == expected
    built = json.loads((output / MANIFEST).read_text("utf-8"))
    assert built["modules"] == {name: manifest["modules"][name] for name in names}


def test_only_what_changed_is_compiled(
    tmp_path: Path, manifest: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("nvcc") is None or cuda_kernels.compiler() != manifest["compiler"]:
        pytest.skip(f"needs {manifest['compiler']}")
    root = copied(tmp_path / "another folder")
    monkeypatch.setattr(cuda_kernels, "ROOT", root)
    output = tmp_path / "images"
    shutil.copytree(IMAGES, output)
    compiled: list[str] = []

    def build(name: str, destination: Path) -> dict[str, Any]:
        compiled.append(name)
        return dict(manifest["modules"][name])

    monkeypatch.setattr(cuda_kernels, "build_module", build)
    names = rounds(["activation", "affine", "fused", "reduce"], list(MODULES))
    cuda_kernels.main(output, names)
    assert not compiled
    with (root / cuda_kernels.KERNELS / "rope.h").open("a", encoding="utf-8") as header:
        header.write("static const int another_line = 0;\n")
    (output / "affine.fatbin.gz").write_bytes(b"damaged")
    cuda_kernels.main(output, names)
    assert compiled == ["affine", "reduce"]
