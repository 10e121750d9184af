"""The oldest release of wgpu that pyproject.toml allows: tests of this folder run over it.

A soak runs the conformance suite and the tests of ubridge, too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.children import ROOT, untold
from tests.requirements import missing
from tests.sampling import SOAK, rounds

SAMPLE = tuple(
    f"test_{name}.py" for name in ("abi", "backend", "barriers", "drivers", "translator", "written")
)
TESTS = (
    *(str(Path("tests", "webgpu", name)) for name in SAMPLE),
    *(("tests/conformance", "tests/ubridge") if SOAK else ()),
)


def oldest(folder: Path) -> tuple[str, Path]:
    """Return the release's number, and a folder that has its package and is kept between runs."""
    allowed = re.search(
        r'^webgpu = \["wgpu>=([\d.]+),', (ROOT / "pyproject.toml").read_text(), re.M
    )
    assert allowed is not None, "pyproject.toml names no oldest release of wgpu"
    home = folder / f"wgpu-{allowed[1]}"
    if not home.is_dir():
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            made = Path(unfinished, "packages")
            pip = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install")
            wanted = ("--no-deps", "--target", str(made), f"wgpu=={allowed[1]}")
            done = subprocess.run([*pip, *wanted], capture_output=True, text=True)
            if done.returncode:
                missing(f"cannot be had: wgpu {allowed[1]}\n{done.stderr}")
            made.replace(home)
    return allowed[1], home


def test_the_oldest_release_passes_the_tests_of_the_newest(
    folder: Path, software: Mapping[str, str], seed: int
) -> None:
    release, home = oldest(folder)
    paths = (str(home), str(ROOT), os.environ.get("PYTHONPATH", ""))
    environment = {
        **untold(),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "UHAL_TEST_SEED": str(seed),
        "UHAL_TEST_SOAK": str(int(SOAK)),
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *TESTS, "-k", "webgpu"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=rounds(600, 24 * 3600),
    )
    told = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0 and told is not None, f"wgpu {release}: {done.stdout[-6000:]}"
    assert int(told[1]) > rounds(20, 500), done.stdout[-2000:]
