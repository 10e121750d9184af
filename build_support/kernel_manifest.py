"""The manifest beside compiled kernels: their sources, and whether they are up to date."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from build_support.words_only import c_code

MANIFEST = "manifest.json"
_WITH_LINES = {"__LINE__", "ASSERT", "PRINTF"}


def read_manifest(path: Path, compiler: str | None) -> Mapping[str, Mapping[str, Any]]:
    """Return a manifest's modules; none without a manifest, or if another compiler wrote it."""
    try:
        manifest = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    modules: Mapping[str, Mapping[str, Any]] = manifest["modules"]
    return modules if manifest["compiler"] == compiler else {}


def write_manifest(
    path: Path, compiler: str | None, modules: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write a manifest for `read_manifest`: the same bytes for the same contents."""
    manifest = {"compiler": compiler, "modules": modules}
    path.write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def is_current(module: Mapping[str, Any], sources: Mapping[str, str], folder: Path) -> bool:
    """Say whether a module was made from these sources and its images are unchanged."""
    return module["sources"] == sources and all(
        (folder / name).is_file() and digest(folder / name) == known
        for name, known in module["images"].items()
    )


def digests(root: Path, paths: Iterable[Path]) -> dict[str, str]:
    """Return the digests of sources, whose paths are relative to `root`."""
    return {path.as_posix(): source_digest(root / path) for path in paths}


def source_digest(path: Path) -> str:
    """Return the SHA-256 of a source's tokens: a changed comment needs no new image.

    The digest covers all bytes of a source whose image holds line numbers.
    """
    tokens = c_code(path.read_text("utf-8"))
    if _WITH_LINES.intersection(tokens):
        return digest(path)
    return hashlib.sha256("\0".join(tokens).encode()).hexdigest()


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
