"""Tries a wheel as a stranger would: `python -m build_support.try_wheel [WHEEL]`.

The wheel, by default the one for this interpreter in `dist/`, is installed into a clean
environment below `build/`. There the doctor, the programs that compare themselves with numpy, and
the same on the simulated drivers are run with a path that holds the environment and a few programs
of the system: no compiler, no build of this checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from build_support.wheels import read

ROOT = Path(__file__).resolve().parents[1]
COMPILERS = "cc c++ gcc g++ clang clang++ nvcc zig cython".split()
PROGRAMS = "sh env uname ldconfig".split()
"""What a program may find besides Python: what Python's own libraries ask for."""


def main(arguments: list[str]) -> int:
    """Print each step as it is done; exit status 1 if one fails."""
    wheel = Path(arguments[0]) if arguments else _wheel_of_this()
    with tempfile.TemporaryDirectory(dir=_work()) as name:
        folder = Path(name)
        site = Site(folder)
        # Kernels of PTX are linked, which ziglang does where the system has nothing for it.
        wanted = f"{wheel.resolve()}[sim,kernels]"
        site.run("-m", "pip", "install", "-q", wanted, visible=True)
        for compiler in COMPILERS:
            assert shutil.which(compiler, path=site.path) is None, f"{compiler} can be found"
        told = site.run("-m", "uhal", "doctor")
        assert "host   ok" in told and "kernel right" in told, told
        site.run("-m", "uhal", "network_test", "--random")
        site.run("-m", "uhal", "component_test", "--backend", "host")
        if _has_simulators(wheel):
            for backend in ("rocm", "cuda"):
                library = site.run("-m", "uhal", "sim", "path", backend).strip()
                assert Path(library).is_relative_to(folder.resolve()), library
                environment = {f"UHAL_{backend.upper()}_LIBRARY": library, "UHAL_BACKEND": backend}
                told = site.run("-m", "uhal", "doctor", environment=environment)
                assert "kernel right" in told, told
                site.run("-m", "uhal", "network_test", environment=environment)
    print(f"{wheel.name} works without a compiler")
    return 0


class Site:
    """A clean environment and the little it may see."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        subprocess.run([sys.executable, "-m", "venv", str(folder / "environment")], check=True)
        programs = folder / "programs"
        programs.mkdir()
        for name in PROGRAMS:
            found = shutil.which(name)
            if found:
                (programs / name).symlink_to(found)
        self.path = f"{folder / 'environment' / 'bin'}{os.pathsep}{programs}"

    def run(
        self, *arguments: str, environment: Mapping[str, str] | None = None, visible: bool = False
    ) -> str:
        """Run Python there; return what it printed. A failure shows that and raises."""
        print("$ python", *arguments, flush=True)
        # What pip needs to reach an index is the user's; programs get nothing of it.
        kept = os.environ if visible else {}
        done = subprocess.run(
            [str(self._folder / "environment" / "bin" / "python"), *arguments],
            cwd=self._folder,
            env={**kept, "PATH": self.path, "HOME": str(self._folder), **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout}\nexit status {done.returncode}")
        return done.stdout


def _has_simulators(wheel: Path) -> bool:
    """Whether the wheel carries them: those for another machine than its maker's do not."""
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
