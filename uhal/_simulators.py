"""`python -m uhal sim`: the simulated drivers installed beside this package.

This module loads none of them. `path` prints the variable and the path for a program; `run` starts
a program with both set, or launches a kernel of an image.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from uhal import _simulated_counts, _simulated_program, _simulated_run

LIBRARIES = {backend: names[0] for backend, (_, names) in _simulated_program.DRIVERS.items()}
"""Maps a backend to the library that replaces its driver."""

_BESIDE = Path(__file__).resolve().parent.parent
_INSTALLED = _BESIDE / "uhal_simulators"

# In a checkout the folder has a shorter name.
FOLDER = (_INSTALLED if _INSTALLED.is_dir() else _BESIDE / "simulators") / "build"


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Add the commands of `sim` to its parser; `run` executes them."""
    commands = parser.add_subparsers(dest="sim_command", metavar="command", required=True)
    path = commands.add_parser(
        "path",
        help="print the file of a simulated driver",
        description="Print the file of a simulated driver. Exit status 1 when there is none.",
    )
    path.add_argument("driver", choices=LIBRARIES, help="the simulated library")
    _simulated_counts.add_commands(
        commands.add_parser("counts", help="print a simulated driver's counts of kernels"),
        commands.add_parser("resources", help="print registers and spills of an image's kernels"),
    )
    _simulated_run.add_command(
        commands.add_parser(
            "run",
            help="run a program, or a kernel of a PTX file",
            description=_simulated_program.DESCRIPTION + _simulated_run.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )


def run(options: argparse.Namespace) -> int:
    """Run a command of `sim`; return the exit status."""
    if options.sim_command == "counts":
        return _simulated_counts.show_counts(options)
    if options.sim_command == "resources":
        return _simulated_counts.show_resources(options)
    name = "cuda" if options.sim_command == "run" else options.driver
    library = _library(name)
    if library is None:
        return 1
    if options.sim_command == "run":
        return _simulated_run.run(options, library)
    print(library)
    return 0


def run_program(arguments: Sequence[str]) -> int | None:
    """Replace this process by the program of `sim run`; `None` if it names a kernel instead."""
    before, command = _simulated_program.split(arguments)
    if not command:
        return None
    settings = _simulated_program.read_settings(before)
    if _library(settings.backend) is None:
        return 1
    try:
        return _simulated_program.run(settings, command, FOLDER)
    except OSError as error:
        print(f"sim run: {error}", file=sys.stderr)
        return 1


def _library(name: str) -> Path | None:
    library = FOLDER / LIBRARIES[name]
    if library.is_file():
        return library
    print(_why_absent(library), file=sys.stderr)
    return None


def _why_absent(library: Path) -> str:
    if not sys.platform.startswith("linux"):
        return "Simulated drivers are built on Linux only."
    checkout = library.parent.parent.parent / "Makefile"
    if not checkout.is_file():
        return f"This installation of uhal carries no {library.name}."
    return f"{library} is not built: run `make simulators` in {checkout.parent}."
