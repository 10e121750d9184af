"""The devices the conformance suite runs on: one row each, with its gaps in writing.

A gap is `unsupported` (for good: it describes the backend) or `expected_failures` (for now: the
test must fail, and fails the run once it passes). Keys are patterns of a test's name.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = Path(__file__).resolve().parent / "kernels"


@dataclass(frozen=True)
class Row:
    """One device under test."""

    name: str
    backend: str
    compile: Callable[[Path, Path], Path]
    """Makes an image of a kernel source, in a folder that is kept from run to run."""
    ordinal: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    """Set before the backend is opened."""
    two_devices: Mapping[str, str] | None = None
    """What to set besides to have two devices; `None` where there is one."""
    unsupported: Mapping[str, str] = field(default_factory=dict)
    expected_failures: Mapping[str, str] = field(default_factory=dict)


def compile_for_host(source: Path, folder: Path) -> Path:
    """Compile with this machine's C++ compiler unless the same was compiled before."""
    compiler = os.environ.get("CXX", "c++")
    options = shlex.split(
        subprocess.run(
            [sys.executable, "-m", "uhal", "cflags"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )
    command = [compiler, *options, "-x", "c++", str(source)]
    digest = hashlib.sha256(" ".join(command).encode())
    for path in [source, *sorted((ROOT / "uhal" / "include").rglob("*.h"))]:
        digest.update(path.read_bytes())
    image = folder / f"{source.stem}-{digest.hexdigest()[:16]}.so"
    if not image.exists():
        unfinished = image.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, "-o", str(unfinished)], check=True)
        unfinished.replace(image)
    return image


ROWS = (
    Row(
        "host",
        "host",
        compile_for_host,
        two_devices={"UHAL_HOST_DEVICES": "2"},
        unsupported={"test_events_with_every_flag*INTERPROCESS*": "memory of one process"},
    ),
)


def real_device(text: str) -> Row:
    """The row of a device named on the command line: `cuda` or `cuda:1`."""
    backend, _, ordinal = text.partition(":")
    for row in ROWS:
        if row.backend == backend:
            return replace(row, name=text, ordinal=int(ordinal or 0), environment={})
    raise ValueError(f"--device {text}: no row tells how to make images for {backend!r}")
