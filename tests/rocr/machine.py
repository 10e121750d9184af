"""Runs programs on AMD's own, unmodified runtime over a model of one GPU.

The runtime is Debian's package of ROCr 7.2. If this system's C library is too old for the package,
the interpreter runs with a newer C library from Debian. `child.py` runs in the child process.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.debian_packages import LIBRARIES, unpack
from tests.rocr import topology
from tests.rocr.topology import Gpu

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = "libhsa-runtime64.so.1"
_MODEL = Path(__file__).with_name("device_model.c")
_LIBC_NEEDED = (2, 38)
_FOREIGN = ("HSA_", "ROCR_", "LOADER_", "GPU_", "UHAL_")
"""Variables that a developer may have set for other runs."""


@dataclass(frozen=True)
class Machine:
    """A computer with one GPU."""

    gpu: Gpu
    command: Sequence[str]
    """Command that runs a Python program, up to the interpreter's options."""
    environment: Mapping[str, str]

    def start(
        self, function: Callable[..., object], *arguments: Any, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Call a function of a module below `tests/` in a process on this machine.

        Arguments and the result are written as JSON; the result is the last line printed.
        """
        module = Path(function.__code__.co_filename).relative_to(ROOT).with_suffix("")
        called = (".".join(module.parts), function.__name__, json.dumps(arguments))
        return subprocess.run(
            [*self.command, "-m", "tests.rocr.child", *called],
            cwd=ROOT,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def call(self, function: Callable[..., object], *arguments: Any, **environment: str) -> Any:
        """Call a function like `start`; check that it succeeds silently, and return its result."""
        done = self.start(function, *arguments, **environment)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr or done.stdout
        return json.loads(done.stdout.splitlines()[-1])


def machine(gpu: Gpu, folder: Path) -> Machine:
    """Assemble a machine from the packages in `folder`; fail or skip the test like `unpack`."""
    runtime = unpack(folder, "rocr-7.2") / LIBRARIES
    model = _build_model(folder)
    described = folder / f"{gpu.processor}-{_digest(Path(topology.__file__))}"
    if not described.is_dir():
        unfinished = folder / f"{gpu.processor}-{os.getpid()}"
        topology.write(unfinished, gpu)
        _publish(unfinished, described)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    packages = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    environment = {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sorted(packages)]),
        "UHAL_ROCM_LIBRARY": str(runtime / RUNTIME),
        "HSA_MODEL_LIB": str(model),
        # The CPU copies code to the device, because the model lacks the copy engine that ROCr uses
        # for code of more than 1 MiB.
        "HSA_CO_DMACOPY_SIZE": str(1 << 30),
        "HSA_MODEL_TOPOLOGY": str(described),
    }
    if _libc_version() >= _LIBC_NEEDED:
        search = os.pathsep.join(filter(None, [str(runtime), kept.get("LD_LIBRARY_PATH")]))
        return Machine(gpu, [sys.executable], {**environment, "LD_LIBRARY_PATH": search})
    libc = unpack(folder, "libc-2.41") / LIBRARIES
    loader = str(libc / "ld-linux-x86-64.so.2")
    # Give the loader no symbolic link: Python would look for its own files beside the link.
    interpreter = os.path.realpath(sys.executable)
    search = os.pathsep.join([str(libc), str(runtime)])
    return Machine(gpu, [loader, "--library-path", search, interpreter], environment)


def _libc_version() -> tuple[int, ...]:
    """Return glibc's version; any other C library counts as too old."""
    try:
        name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (ValueError, OSError):
        return (0,)
    return tuple(int(part) for part in version.split(".")) if name == "glibc" else (0,)


def _build_model(folder: Path) -> Path:
    compiler = shlex.split(os.environ.get("CC", "cc"))
    options = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread")
    library = folder / f"device_model-{_digest(_MODEL)}.so"
    if not library.exists():
        unfinished = library.with_suffix(f".{os.getpid()}")
        command = [*compiler, *options, str(_MODEL), "-o", str(unfinished)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.fail(f"$ {shlex.join(command)}\n{done.stderr}", pytrace=False)
        unfinished.replace(library)
    return library


def _publish(unfinished: Path, name: Path) -> None:
    """Rename a folder to its final name, unless another process did so meanwhile."""
    try:
        unfinished.replace(name)
    except OSError:
        if not name.is_dir():
            raise


def _digest(source: Path) -> str:
    return hashlib.sha256(source.read_bytes()).hexdigest()[:16]
