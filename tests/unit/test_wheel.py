"""A wheel carries the simulated drivers that a program needs, and finds them."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from build_support.wheels import LARGEST
from tests.children import untold
from tests.requirements import needed_module
from tests.sampling import SOAK

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.skipif(not SOAK, reason="building a wheel takes half a minute: make soak"),
    pytest.mark.skipif(sys.platform != "linux", reason="simulated drivers are built on Linux"),
]


def test_a_wheel_works_where_there_is_no_compiler() -> None:
    needed_module("auditwheel")
    for tool in ("wheels", "try_wheel"):
        options = ["--only-this"] if tool == "wheels" else []
        command = [sys.executable, "-m", f"build_support.{tool}", *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8")
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_a_wheel_carries_the_simulated_drivers(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run([*pip, "wheel", *options, "."], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    # The wheel contains kernels of every level, and the simulated drivers.
    assert wheel.stat().st_size <= LARGEST
    names = zipfile.ZipFile(wheel).namelist()
    assert {"LICENSE", "licenses/ggml.txt"} <= {
        name.partition(".dist-info/licenses/")[2] for name in names
    }
    python = tmp_path / "environment" / "bin" / "python"
    venv = [sys.executable, "-m", "venv", "--without-pip", str(python.parents[1])]
    subprocess.run(venv, check=True)
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    # The wheel's dependencies are importable here.
    (site / "needed.pth").write_text(sysconfig.get_path("purelib"))
    install = [*pip, "--python", str(python), "install", "--no-deps", str(wheel)]
    subprocess.run(install, check=True)

    def uhal(*arguments: str, **environment: str) -> str:
        # No kernel is translated yet, so the driver must find the Python of its environment.
        done = subprocess.run(
            [str(python), "-m", "uhal", *arguments],
            cwd=tmp_path,
            env={**untold(), "UHAL_SIM_CACHE": str(tmp_path / "translated"), **environment},
            capture_output=True,
            encoding="utf-8",
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    library = uhal("sim", "path", "cuda").strip()
    assert Path(library).is_relative_to(site)
    told = uhal("doctor", UHAL_CUDA_LIBRARY=library, UHAL_BACKEND="cuda")
    assert "cuda   ok       compute capability 8.6" in told
    assert "kernel right" in told
    # The wheel contains the PTX executor, but no build scripts.
    assert not (site / "uhal_simulators" / "build.py").exists()
    assert (site / "uhal_simulators" / "ptx" / "runtime" / "grid.c").is_file()
    assert not (site / "simulators").exists()
