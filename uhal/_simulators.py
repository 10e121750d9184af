"""`python -m uhal sim`: the simulated drivers that lie beside this package.

`path` loads none of them: a program meets one by the variable or the path that comes out of here.
`run` opens the CUDA one through the same variable.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from uhal import _simulated_run

LIBRARIES = {
    "cuda": "libcuda.so.1",
    "rocm": "libhsa-runtime64.so.1",
    "tops": "libtopsrt.so.1",
}
"""Backend to the library that stands in for its driver."""

# In a checkout and in an installation alike.
FOLDER = Path(__file__).resolve().parent.parent / "simulators" / "build"


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Give the parser of `sim` its own commands; `run` answers them."""
    commands = parser.add_subparsers(dest="sim_command", metavar="command", required=True)
    path = commands.add_parser(
        "path",
        help="print the file of a simulated driver",
        description="Print the file of a simulated driver. Exit status 1 when there is none.",
    )
    path.add_argument("driver", choices=LIBRARIES, help="whose driver it simulates")
    _simulated_run.add_command(
        commands.add_parser(
            "run",
            help="run a kernel of a PTX file",
            description=_simulated_run.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )


def run(options: argparse.Namespace) -> int:
    """Run a command of `sim`; return the exit status."""
    name = "cuda" if options.sim_command == "run" else options.driver
    library = FOLDER / LIBRARIES[name]
    if not library.is_file():
        print(_why_absent(library), file=sys.stderr)
        return 1
    if options.sim_command == "run":
        return _simulated_run.run(options, library)
    print(library)
    return 0


def _why_absent(library: Path) -> str:
    if not sys.platform.startswith("linux"):
        return "Simulated drivers are built on Linux only."
    checkout = library.parent.parent.parent / "Makefile"
    if not checkout.is_file():
        return f"This installation of uhal carries no {library.name}."
    return f"{library} is not built: run `make simulators` in {checkout.parent}."
