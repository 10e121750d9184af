"""`python -m uhal profile program.py [args]`: runs a program and prints its profile."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from uhal import terminal
from uhal.profiler.session import Profile, profile

_HELP = """\
Run a Python program and print where its devices' time went, to stderr. Options stand before the
program; all behind it is the program's own. The command returns the program's
exit status.
"""


def run(arguments: Sequence[str]) -> int:
    """Profile the program that the arguments name; return the exit status."""
    options = _parser().parse_args(arguments)
    if options.module is not None:
        program, rest = options.module, ([options.program] if options.program else [])
    elif options.program is not None:
        program, rest = options.program, []
    else:
        _parser().error("expected a program to run")
    if options.module is None and not os.path.exists(program):
        _parser().error(
            f"expected a program to run, got {terminal.one_line(program)}: no such file"
        )
    found = profile(graphs=options.graphs, limit=options.limit)
    status = 0
    found.start()
    try:
        status = _execute(program, [*rest, *options.arguments], options.module is not None)
    finally:
        found.stop()
        _write(found, options)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m uhal profile", description=_HELP)
    parser.add_argument(
        "-m", dest="module", metavar="MODULE", help="run a module, as python -m does"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots")
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write a trace for ui.perfetto.dev; .gz compresses",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows and events")
    parser.add_argument(
        "--graphs",
        choices=("nodes", "whole"),
        default="nodes",
        help="time each operation of a plan (nodes), or the plan as one (whole)",
    )
    parser.add_argument(
        "--limit", type=int, default=1_000_000, metavar="N", help="keep at most so many records"
    )
    parser.add_argument("--rows", type=int, default=30, metavar="N", help="print so many kernels")
    parser.add_argument("program", nargs="?", help="the program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def _execute(program: str, arguments: Sequence[str], is_module: bool) -> int:
    """Run the program in this process as `__main__`; its exceptions propagate."""
    if not is_module and not Path(program).exists():
        print(f"profile: {program}: there is no such file", file=sys.stderr)
        return 2
    sys.argv = [program, *arguments]
    try:
        if is_module:
            sys.path.insert(0, "")
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(program).resolve().parent))
            runpy.run_path(program, run_name="__main__")
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)
        return 1
    return 0


def _write(found: Profile, options: argparse.Namespace) -> None:
    terminal.write(sys.stderr, found.table(options.rows))
    for path, export in (
        (options.trace, found.export_chrome_trace),
        (options.json, found.export_json),
        (options.html, found.export_html),
    ):
        if path is not None:
            print(f"wrote {export(path)}", file=sys.stderr)


__all__ = ["run"]
