"""Prints the bytes on disk of a library and its requirements.

    python -m benchmarks.workers.installed DISTRIBUTION

An editable installation of uhal only points to the checkout. In this case the checkout's packages
are counted. They are built for one instruction level, and lack the simulated drivers of a wheel.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (*(path.parent.name for path in ROOT.glob("*_backend/__init__.py")), "uhal", "ubridge")


def installed_bytes(name: str, seen: set[str]) -> int:
    """Bytes of a distribution and its requirements without extras, each counted once."""
    name = re.sub("[-_.]+", "-", name).lower()
    if name in seen:
        return 0
    seen.add(name)
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return 0  # of another platform
    own = _checkout_bytes() if name == "uhal-py" else _file_bytes(found)
    wanted = [one for one in found.requires or [] if "extra ==" not in one]
    return own + sum(
        installed_bytes(re.match(r"[\w.-]+", one)[0], seen)  # type: ignore[index]
        for one in wanted
    )


def _file_bytes(found: Distribution) -> int:
    paths = (Path(found.locate_file(file)) for file in found.files or [])
    return sum(path.stat().st_size for path in paths if path.is_file())


def _checkout_bytes() -> int:
    return sum(
        path.stat().st_size
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


if __name__ == "__main__":
    print(installed_bytes(sys.argv[1], set()))
