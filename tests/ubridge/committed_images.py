"""Shared checks of every vendor's committed images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from build_support.kernel_manifest import MANIFEST, source_digest

ROOT = Path(__file__).resolve().parents[2]
STALE = "the images are older than the sources: run make kernels"


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def manifest_of(kernels: ModuleType) -> dict[str, Any]:
    """Manifest of the built images; `kernels` is the build's module in `build_support`."""
    found: dict[str, Any] = json.loads((ROOT / kernels.IMAGES / MANIFEST).read_text("utf-8"))
    return found


def check_every_module_was_compiled(kernels: ModuleType, modules: Sequence[str]) -> None:
    """Check that exactly these modules exist, and no other files beside their images.

    Kernels in WGSL also lie there, for tests/webgpu/test_written.py.
    """
    manifest = manifest_of(kernels)
    assert sorted(manifest["modules"]) == sorted(modules), STALE
    listed = {name for module in manifest["modules"].values() for name in module["images"]}
    found = {path.name for path in (ROOT / kernels.IMAGES).iterdir() if path.suffix != ".wgsl"}
    assert found == listed | {MANIFEST}


def check_as_new_as_their_sources(
    kernels: ModuleType, made: Mapping[str, Any], *sources: str
) -> None:
    """Check that a module's images were made of the current sources, including `sources`."""
    changed = [
        path for path, known in made["sources"].items() if source_digest(ROOT / path) != known
    ]
    assert not changed, STALE
    assert set(sources) <= made["sources"].keys()
    assert all(path.startswith(("uhal/", "ubridge/")) for path in made["sources"])
    for name, known in made["images"].items():
        path = ROOT / kernels.IMAGES / name
        assert digest(path) == known, f"{name} is not what make kernels made"
