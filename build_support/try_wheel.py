"""Tests a wheel as a new user would: `python -m build_support.try_wheel [WHEEL] [--whole]`.

The wheel, by default the one for this interpreter in `dist/`, is installed into a clean environment
below `build/`. A user's first commands run there. `PATH` holds the environment and a few programs
of the system: no compiler, no build of this checkout. A part of the conformance suite runs too;
`--whole` runs all of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from build_support import typos
from build_support.wheels import read

ROOT = Path(__file__).resolve().parents[1]
COMPILERS = "cc c++ gcc g++ clang clang++ nvcc zig cython".split()
PROGRAMS = "sh env uname ldconfig".split()
"""Programs that Python's own libraries call; no others are visible besides Python."""
SIMULATED = ("cuda", "rocm")
PART = "test_launches or test_memory or test_capture"
"""Files of the conformance suite that launch kernels of every shape."""


def main(arguments: list[str]) -> int:
    """Print each step with its time; exit status 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m build_support.try_wheel", description=__doc__)
    parser.add_argument("wheel", nargs="?", type=Path)
    parser.add_argument("--whole", action="store_true", help="all of the conformance suite")
    chosen = parser.parse_args(arguments)
    wheel = chosen.wheel or _wheel_of_this()
    with tempfile.TemporaryDirectory(dir=_work()) as name:
        site = Site(Path(name))
        # Kernels of PTX must be linked; ziglang links them on systems without a linker.
        wanted = f"{wheel.resolve()}[sim,kernels,conformance,llm]"
        site.run("-m", "pip", "install", "-q", wanted, visible=True)
        for compiler in COMPILERS:
            assert shutil.which(compiler, path=site.path) is None, f"{compiler} can be found"
        site.uhal("network_test")
        reported = site.uhal("doctor")
        assert "host   ok" in reported and "kernel right" in reported, reported
        site.uhal("component_test", "--backend", "host")
        _conformance(site, () if chosen.whole else ("-k", PART))
        _model(site)
        # The newest type checker, as a user installs it; the commands above run without it.
        site.run("-m", "pip", "install", "-q", "mypy", visible=True)
        checked = typos.main(str(site.python), mypy=str(site.python))
        assert checked == 0, "a type checker missed a user's typo"
        if _has_simulators(wheel):
            _simulators(site)
        _project(site)
    print(f"{wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB, works without a compiler")
    return 0


def _conformance(site: Site, selection: tuple[str, ...]) -> None:
    """Run the wheel's suite on this computer's CPU, and read its report."""
    report = site.folder / "report.json"
    site.uhal("conformance", "--backend", "host", "--report", str(report), *selection)
    reported = json.loads(report.read_text(encoding="utf-8"))
    summary = reported["summary"]
    assert summary["failed"] == 0 and summary["passed"] > 50, summary
    assert reported["conforms"] or selection, summary
    print(f"  {summary['passed']} passed")


def _model(site: Site) -> None:
    """Make a language model and continue a prompt twice, with the same result."""
    site.uhal("make-model", "made", "--seed", "7")
    command = ("generate", "made", "--prompt", "Once upon", "-n", "12", "--ignore-end")
    said = {site.uhal(*command, "--backend", "host") for _ in range(2)}
    assert len(said) == 1 and len(*said) > 12, said


def _simulators(site: Site) -> None:
    """Run a network, a module, a program and a single kernel on simulated drivers."""
    for backend in SIMULATED:
        library = site.uhal("sim", "path", backend).strip()
        assert Path(library).is_relative_to(site.folder), library
        environment = {f"UHAL_{backend.upper()}_LIBRARY": library, "UHAL_BACKEND": backend}
        reported = site.uhal("doctor", environment=environment)
        assert "kernel right" in reported, reported
        reported = site.uhal("sim", "run", "--backend", backend, "-m", "uhal", "network_test")
        assert backend in reported, reported
    (kernels,) = site.folder.glob("environment/lib/*/site-packages/uhal_conformance/images/cuda")
    buffers = ("f32[100]=range", "f32[100]=1")
    reported = site.uhal(
        *("sim", "run", str(kernels / "basic.ptx"), "--entry", "saxpy"),
        *("--grid", "1", "--block", "128", "--args", "u64=100", "f32=2", *buffers),
    )
    assert "min 1 max 199 mean 100" in reported, reported


def _project(site: Site) -> None:
    """Write a project; if it cannot be built, print the packages to install."""
    site.uhal("new", "project")
    names = {path.name for path in (site.folder / "project").rglob("*")}
    assert {"kernels.cu", "program.py", "Makefile", "launch.json"} <= names, names


class Site:
    """A clean environment with a restricted path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.python = self.folder / "environment" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", str(folder / "environment")], check=True)
        programs = folder / "programs"
        programs.mkdir()
        for name in PROGRAMS:
            found = shutil.which(name)
            if found:
                (programs / name).symlink_to(found)
        self.path = f"{folder / 'environment' / 'bin'}{os.pathsep}{programs}"

    def uhal(self, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
        """Run a command of uhal there; return its output."""
        return self.run("-m", "uhal", *arguments, environment=environment)

    def run(
        self, *arguments: str, environment: Mapping[str, str] | None = None, visible: bool = False
    ) -> str:
        """Run the environment's Python; return its output, or print it and raise on failure."""
        print("$ python", *arguments, end="", flush=True)
        # The user's variables for pip's index are passed to pip, but not to programs.
        kept = os.environ if visible else {}
        began = time.monotonic()
        done = subprocess.run(
            [str(self.python), *arguments],
            cwd=self.folder,
            env={**kept, "PATH": self.path, "HOME": str(self.folder), **(environment or {})},
            capture_output=True,
            encoding="utf-8",
        )
        print(f"  {time.monotonic() - began:.1f} s")
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout}{done.stderr}\nexit status {done.returncode}")
        return done.stdout


def _has_simulators(wheel: Path) -> bool:
    """Whether the wheel has simulated drivers: a cross-compiled wheel has none."""
    return any(name.startswith("uhal_simulators/build/lib") for name in read(wheel))


def _wheel_of_this() -> Path:
    tag = f"cp3{sys.version_info.minor}"
    found = sorted((ROOT / "dist").glob(f"*-{tag}-{tag}-*_{os.uname().machine}.whl"))
    if not found:
        raise SystemExit("there is no wheel for this interpreter in dist/: make wheel")
    return found[-1]


def _work() -> Path:
    folder = ROOT / "build" / "tried"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
