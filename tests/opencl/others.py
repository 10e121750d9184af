"""OpenCL runtimes besides Intel's current runtime: PoCL from Debian, and Intel's of 2022.

Nothing is installed: packages and wheels are unpacked in a folder that is kept between runs.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.children import ROOT
from tests.debian_packages import LIBRARIES, unpack
from tests.requirements import missing

_FOREIGN = ("UHAL_", "POCL_", "OCL_ICD_", "CL_CONFIG_")
"""Variables that a developer may have set for other runs."""
_LOADER = "libOpenCL.so.1"


@dataclass(frozen=True)
class Runtime:
    """A command and an environment that run a Python program on a runtime."""

    command: Sequence[str]
    environment: Mapping[str, str]

    def run(
        self, *options: str, timeout: float = 600, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the interpreter with these options, in this checkout."""
        # The Python of another runtime lacks some of CI's packages, so tests that need them are
        # skipped.
        kept = {
            name: one
            for name, one in os.environ.items()
            if name != "CI" and not name.startswith(_FOREIGN)
        }
        return subprocess.run(
            [*self.command, *options],
            cwd=ROOT,
            env={**kept, **self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
        )


def pocl_3(folder: Path) -> Runtime:
    """PoCL 3.1 of Debian 12, which does not support SPIR-V."""
    root = unpack(folder, "pocl-3")
    loader = unpack(folder, "opencl") / LIBRARIES
    return Runtime(
        [sys.executable],
        {
            "LD_LIBRARY_PATH": os.pathsep.join([str(root / LIBRARIES), str(loader)]),
            "OCL_ICD_VENDORS": str(root / LIBRARIES / "libpocl.so.2"),
            "UHAL_OPENCL_LIBRARY": str(loader / _LOADER),
        },
    )


def pocl_7(folder: Path) -> Runtime:
    """PoCL 7.1: every kind of memory, no f16. It needs a newer C library than most systems have.

    So the interpreter, and every interpreter that tests start, runs with the newer C library.
    """
    root = unpack(folder, "pocl-7")
    libraries = root / LIBRARIES
    system = os.pathsep.join([str(libraries), *_system_libraries()])
    run = [str(libraries / "ld-linux-x86-64.so.2"), "--library-path"]
    home = folder / f"{root.name}-python"
    translator = home / "bin" / "llvm-spirv"
    if not home.is_dir():
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            made = Path(unfinished, "python")
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
            python = made / "bin" / "python"
            python.unlink()
            interpreter = os.path.realpath(sys.executable)
            _script(python, [*run, system, "--argv0", str(home / "bin" / "python"), interpreter])
            program = root / "usr" / "bin" / "llvm-spirv-21"
            _script(made / "bin" / "llvm-spirv", [*run, str(libraries), str(program)])
            made.replace(home)
    packages = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    loader = unpack(folder, "opencl") / LIBRARIES
    return Runtime(
        [str(home / "bin" / "python")],
        {
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sorted(packages)]),
            "OCL_ICD_VENDORS": str(libraries / "libpocl.so.2"),
            "UHAL_OPENCL_LIBRARY": str(loader / _LOADER),
            "POCL_PATH_LLVM_SPIRV": str(translator),
            "POCL_CACHE_DIR": str(home / "cache"),
        },
    )


def intel_2022(folder: Path) -> Runtime:
    """Intel's runtime 2022.0.1, which only supports SPIR-V 1.0, without f16."""
    wheels = ("intel-opencl-rt==2022.0.1", "intel-cmplr-lib-rt==2022.0.1", "tbb<2022")
    home = folder / "intel-opencl-2022.0.1"
    if not home.is_dir():
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            made = Path(unfinished, "environment")
            subprocess.run([sys.executable, "-m", "venv", made], check=True)
            pip = [str(made / "bin" / "python"), "-m", "pip", "-q", "--disable-pip-version-check"]
            done = subprocess.run([*pip, "install", *wheels], capture_output=True, text=True)
            if done.returncode:
                missing(f"cannot be had: {', '.join(wheels)}\n{done.stderr}")
            (made / "lib").replace(home)
    return Runtime(
        [sys.executable],
        {
            "LD_LIBRARY_PATH": str(home),
            "UHAL_OPENCL_LIBRARY": str(home / "libintelocl.so"),
            # On an unknown CPU, Intel's compiler aborts the process at a call of floor().
            "CL_CONFIG_CPU_TARGET_ARCH": "skx" if _has_avx512() else "core-avx2",
        },
    )


def _system_libraries() -> list[str]:
    """Folders of the interpreter's other libraries on this system."""
    found = subprocess.run(
        ["/sbin/ldconfig", "-N", "-v"], capture_output=True, text=True, check=False
    )
    return [line.split(":")[0] for line in found.stdout.splitlines() if line.startswith("/")]


def _script(path: Path, command: Sequence[str]) -> None:
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def _has_avx512() -> bool:
    return "avx512vl" in Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
