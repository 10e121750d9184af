"""Runs a program in a process of its own on the simulated CUDA driver.

A driver reads its settings once, and faults are permanent, so such tests need a new process.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.requirements import needed
from tests.sampling import rounds
from uhal_conformance.children import run_text

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
IMAGES = ROOT / "ubridge" / "kernels" / "images" / "cuda"
LIBRARY = ROOT / "simulators" / "build" / "libcuda.so.1"

needs_simulator = needed(
    LIBRARY.is_file(), "the simulated CUDA driver is not built: make simulators"
)


def run_python(*arguments: str, **environment: str) -> str:
    """Run the interpreter as `run_freely` does; return its output.

    The interpreter must succeed and write nothing to standard error.
    """
    done = run_freely(*arguments, **environment)
    told = " ".join(f"{name}={value}" for name, value in environment.items())
    said = f"{told} python {' '.join(arguments)}\n{done.stdout}{done.stderr}"
    assert (done.returncode, done.stderr) == (0, ""), said
    return done.stdout


def run_freely(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the interpreter where every library finds the simulator.

    The child inherits none of uhal's variables.
    """
    inherited = {name: value for name, value in os.environ.items() if "UHAL_" not in name}
    settings = {
        "LD_LIBRARY_PATH": str(LIBRARY.parent),
        "PYTHONPATH": str(ROOT),
        "UHAL_BACKEND": "cuda",
        "UHAL_CUDA_LIBRARY": str(LIBRARY),
        **environment,
    }
    return run_text(
        _as_text([*map(str, arguments)]), inherited | settings, timeout=rounds(300, 3000)
    )


def _as_text(arguments: Sequence[str]) -> str:
    """Return a program that does what `python -W error` does with the arguments."""
    head = "import runpy, sys, warnings; warnings.simplefilter('error'); "
    match arguments:
        case ["-c", code, *given]:
            run = f"exec(compile({code!r}, '<string>', 'exec'))"
            argv = ["-c", *given]
        case ["-m", module, *given]:
            run = f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
            argv = [module, *given]
        case [*argv]:
            run = f"runpy.run_path({argv[0]!r}, run_name='__main__')"
    return f"{head}sys.argv = {argv!r}; {run}"


def run_program(name: str, *arguments: str, **environment: str) -> str:
    """Run a file of `programs/`; return its output."""
    return run_python(str(PROGRAMS / name), *arguments, **environment)
