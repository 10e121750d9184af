"""The committed CUDA images: made from the sources that lie beside them, and readable."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import ubridge
from build_support import cuda_kernels
from cuda_backend.images import select
from cuda_backend.targets import DeviceTarget
from uhal.images.ptx import read_ptx

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / cuda_kernels.IMAGES
STALE = "the images are older than the sources: run make kernels"


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((IMAGES / cuda_kernels.MANIFEST).read_text("utf-8"))
    return found


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_module_was_compiled(manifest: dict[str, Any]) -> None:
    assert sorted(manifest["modules"]) == sorted(ubridge.modules()), STALE
    listed = {name for module in manifest["modules"].values() for name in module["images"]}
    assert {path.name for path in IMAGES.iterdir()} == listed | {cuda_kernels.MANIFEST}


@pytest.mark.parametrize("module", ubridge.modules())
def test_images_are_as_new_as_their_sources(module: str, manifest: dict[str, Any]) -> None:
    made = manifest["modules"][module]
    changed = [path for path, known in made["sources"].items() if digest(ROOT / path) != known]
    assert not changed, STALE
    assert f"ubridge/kernels/{module}.cu" in made["sources"]
    for name, known in made["images"].items():
        assert digest(IMAGES / name) == known, f"{name} is not what make kernels made"


@pytest.mark.parametrize("module", ubridge.modules())
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
    image = (IMAGES / f"{module}.fatbin").read_bytes()
    selection = select(image, DeviceTarget("cuda:0", capability, driver))
    assert selection.chosen.description == expected
    assert list(selection.signatures) == list(manifest["modules"][module]["signatures"])


@pytest.mark.parametrize("module", ubridge.modules())
def test_signatures_of_the_sources_are_in_the_ptx(module: str, manifest: dict[str, Any]) -> None:
    told = manifest["modules"][module]["signatures"]
    found = read_ptx((IMAGES / f"{module}.ptx").read_bytes()).signatures
    assert {name: signature.declaration for name, signature in found.items()} == told
    lines = (IMAGES / f"{module}.fatbin.sig").read_text("utf-8").splitlines()
    assert dict(line.split(": ", 1) for line in lines) == told


def test_building_again_gives_the_same_bytes(
    tmp_path: Path, manifest: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("nvcc") is None or cuda_kernels.toolkit() != manifest["compiler"]:
        pytest.skip(f"needs {manifest['compiler']}")
    # A copy elsewhere: no path may find its way into an image.
    elsewhere = tmp_path / "another folder"
    for folder in (cuda_kernels.KERNELS, cuda_kernels.INCLUDE):
        ignored = shutil.ignore_patterns("host", "images")
        shutil.copytree(ROOT / folder, elsewhere / folder, ignore=ignored)
    monkeypatch.setattr(cuda_kernels, "ROOT", elsewhere)
    output = tmp_path / "images"
    cuda_kernels.main(output)
    assert {path.name: digest(path) for path in output.iterdir()} == {
        path.name: digest(path) for path in IMAGES.iterdir()
    }
