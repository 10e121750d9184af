"""`ptxas`, if installed: its targets, and whether it accepts a text."""

from __future__ import annotations

import functools
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sampling import SOAK

LAST = 100
needs_ptxas = pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas is not on the PATH")


def run_ptxas(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ptxas", *arguments], capture_output=True, text=True)


@functools.cache
def every_target() -> tuple[str, ...]:
    """Return all targets up to sm_100 in order, including architecture-specific targets
    (sm_90a)."""
    named = set(re.findall(r"'sm_(\d+)([af]?)'", run_ptxas("--help").stdout))
    return tuple(
        f"sm_{number}{suffix}"
        for number, suffix in sorted((int(number), suffix) for number, suffix in named)
        if number <= LAST
    )


def targets(first: int, rng: random.Random) -> list[str]:
    """Return the first target and a random compatible target; in a soak all compatible targets."""
    found = [one for one in every_target() if int(re.sub(r"\D", "", one)) >= first]
    assert found[0] == f"sm_{first}" and found[-1].startswith(f"sm_{LAST}")
    return found if SOAK else [found[0], rng.choice(found[1:] or found)]


def compiled(
    text: str, target: str, folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """Compile a text for a target."""
    path = folder / "text.ptx"
    path.write_text(text)
    return run_ptxas(*options, f"-arch={target}", str(path), "-o", str(folder / "out"))
