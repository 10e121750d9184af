"""`python -m uhal sim run program.py`: any program, with a simulated driver as the system's."""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from uhal import _simulated_counts
from uhal.images.private_folder import private_folder, read_own, user_cache

DESCRIPTION = """\
Run a program on a simulated driver, or launch one kernel of an image.

  python -m uhal sim run [settings] program.py [argument …]
  python -m uhal sim run [settings] -m module [argument …]    also -c, and any executable
  python -m uhal sim run kernel.ptx [option …]                also a fatbin

A program finds the simulated library where it looks for the vendor's. A program for CUDA may
compile to cubins by NVRTC, nvJitLink or nvcc: the simulated driver runs the PTX that comes with
these cubins. Its settings:
  --backend cuda        whose driver is simulated: cuda, rocm or tops
  --profile sm_90       the device (default: sm_86; for a kernel of an image sm_90)
  --check strict        what is checked of kernels: 0, 1 or strict
  --seed 7              of the order in which threads run
  --count               count what kernels ask of memory, and print it at the end, to stderr
  --count-every 1       count one block of so many; 0, the default, some 64 of each grid
  --count-json FILE     write the counts as JSON
  --count-target sm_90  add registers, spills and occupancy there, which needs ptxas

"""

COMPILERS = "libuhal-compilers.so"
"""Preloaded into programs for CUDA: puts the PTX of a cubin into it."""
NVCC = Path("compilers", "nvcc.py")

DRIVERS = {
    "cuda": ("UHAL_CUDA_LIBRARY", ("libcuda.so.1", "libcuda.so")),
    "rocm": ("UHAL_ROCM_LIBRARY", ("libhsa-runtime64.so.1", "libhsa-runtime64.so")),
    "tops": ("UHAL_TOPS_LIBRARY", ("libtopsrt.so.1", "libtopsrt.so")),
}
"""Maps a backend to its library's variable and to the names by which programs open the library."""
_COUNTS = ("--count-every", "--count-json", "--count-target")
_SETTINGS = ("--backend", "--profile", "--check", "--seed", *_COUNTS)
_FLAGS = ("--count",)
_IMAGES = (".ptx", ".fatbin", ".cubin", ".fatbin.gz")


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of `sim run` into settings and a command.

    Settings come before the program; all arguments after it belong to the program. The command is
    empty for a kernel of an image.
    """
    at = 0
    while at < len(arguments) and arguments[at].partition("=")[0] in (*_SETTINGS, *_FLAGS):
        at += 1 if "=" in arguments[at] or arguments[at] in _FLAGS else 2
    settings, rest = list(arguments[:at]), list(arguments[at:])
    if not rest:
        return settings, []
    if rest[0] in ("-m", "-c") or rest[0].endswith(".py"):
        return settings, [sys.executable, *rest]
    if rest[0].startswith("-") and _names_a_program(rest):
        _parser().error(
            f"{rest[0]}: expected settings before the program, {', '.join(_SETTINGS)}, and their "
            f"values; for a driver say --backend {' or '.join(DRIVERS)}"
        )
    image = rest[0].startswith("-") or rest[0].endswith(_IMAGES)
    executable = None if image else shutil.which(rest[0])
    return settings, [] if executable is None else [executable, *rest[1:]]


def _names_a_program(arguments: Sequence[str]) -> bool:
    """Whether the arguments name a program, not an image of kernels."""
    named = [one.endswith(".py") or one in ("-m", "-c") for one in arguments]
    return any(named) and not any(one.endswith(_IMAGES) for one in arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m uhal sim run")
    choices = {"--backend": tuple(DRIVERS), "--check": ("0", "1", "strict")}
    for name in _SETTINGS:
        parser.add_argument(name, choices=choices.get(name))
    for name in _FLAGS:
        parser.add_argument(name, action="store_true")
    return parser


def read_settings(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options before the program's name; a mistake ends the process with a message."""
    settings = _parser().parse_args(arguments)
    settings.backend = settings.backend or "cuda"
    given = (settings.count_every, settings.count_json, settings.count_target)
    settings.count = settings.count or any(one is not None for one in given)
    if settings.count and (settings.backend != "cuda" or settings.check is not None):
        _parser().error(
            "--count: expected --backend cuda and no --check, because counting replaces checking; "
            "the code of other devices is not executed"
        )
    return settings


def run(settings: argparse.Namespace, command: Sequence[str], folder: Path) -> int:
    """Replace this process by the program, or run it and count; `folder` has the drivers."""
    sys.stdout.flush()
    environment = environment_for(settings, folder, os.environ)
    if not settings.count:
        os.execve(command[0], list(command), environment)
    return _simulated_counts.run(
        lambda variables: subprocess.run(command, env={**environment, **variables}).returncode,
        settings.count_every,
        settings.count_json,
        settings.count_target,
    )


def environment_for(
    settings: argparse.Namespace, folder: Path, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Return variables with which every library finds the simulated driver."""
    backend: str = settings.backend
    variable, names = DRIVERS[backend]
    library = folder / names[0]
    environment = {
        "UHAL_BACKEND": backend,
        "UHAL_SIM_REPORT": "stderr",
        **inherited,
        variable: str(library),
    }
    asked = {
        f"UHAL_SIM_{backend.upper()}_PROFILE": settings.profile,
        "UHAL_SIM_CHECK": settings.check,
        "UHAL_SIM_SEED": settings.seed,
    }
    environment.update({name: value for name, value in asked.items() if value is not None})
    links = {name: library for name in names}
    _put_first(environment, "LD_LIBRARY_PATH", _folder_of(links))
    if backend == "cuda":
        _put_first(environment, "LD_PRELOAD", folder / COMPILERS)
        if shutil.which("nvcc", path=inherited.get("PATH")) is not None:
            _put_first(environment, "PATH", _folder_of({"nvcc": folder.parent / NVCC}))
    return environment


def _put_first(environment: dict[str, str], name: str, path: Path) -> None:
    others = [one for one in environment.get(name, "").split(os.pathsep) if one != str(path)]
    environment[name] = os.pathsep.join([str(path), *filter(None, others)])


def _folder_of(files: Mapping[str, Path]) -> Path:
    """Return a folder with only these names; it is kept for the next run.

    The drivers' own folder has all vendors' libraries, and a wheel cannot hold links.
    Raises `OSError` for a folder that others can write to.
    """
    recipe = repr([sys.executable, *sorted((name, str(file)) for name, file in files.items())])
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    folder = private_folder(private_folder(user_cache("sim-run")) / digest)
    for name, file in files.items():
        entry = folder / name
        unfinished = folder / f"{name}.{os.getpid()}"
        unfinished.unlink(missing_ok=True)
        if file.suffix == ".py":
            command = shlex.join([sys.executable, str(file)])
            script = os.fsencode(f'#!/bin/sh\nexec {command} "$@"\n')
            if read_own(entry, len(script)) == script:
                continue
            unfinished.write_bytes(script)
            unfinished.chmod(0o700)
        else:
            if entry.is_symlink() and entry.readlink() == file:
                continue
            unfinished.symlink_to(file)
        unfinished.replace(entry)
    return folder
