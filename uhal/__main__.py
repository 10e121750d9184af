"""`python -m uhal`: what works here, a program that proves it, and how to compile a kernel."""

from __future__ import annotations

import argparse
import importlib
import os
import runpy
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from uhal import _new_project, _simulators, terminal
from uhal._version import __version__
from uhal.images import cpu_level

_PACKAGE = Path(__file__).resolve().parent

_CFLAGS_HELP = """\
Print the options that compile a kernel source for the host backend:

    c++ -x c++ kernel.cu -x none $(python -m uhal cflags) -o kernel.so

With --checked, accesses of the kernels are checked when they run. With --include only the folder
of the headers is named, for nvcc and others: nvcc $(python -m uhal cflags --include) --ptx k.cu

Where the path of uhal holds a blank, put eval "…" around the command.
"""

_EXAMPLES = {
    "network_test": "run a six-layer network and compare it with numpy",
    "component_test": "run each part of a LLaMA layer and compare it with numpy",
    "graph_decoder": "generate with a traced and replayed transformer and compare it with numpy",
}
"""Commands that run an example, and their help texts."""
_MODELS = {
    "generate": "let a language model go on with a prompt",
    "chat": "talk with a language model",
    "serve": "answer over HTTP as OpenAI's interface does, with a language model",
    "bench": "measure a language model: tokens a second at several lengths",
    "make-model": "make a tiny random model, to try all of this without a download",
    "stable-diffusion": "make pictures of a prompt",
}
_MODELS_BY_NAME = (
    *("llama", "mistral", "mixtral", "phi", "yi", "stable-lm", "bigcode", "starcoder2", "chatglm"),
    *("glm4", "qwen", "falcon", "gemma", "rwkv"),
)
"""Commands of `ubridge.models.commands` that have the options of Candle's examples."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; return the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    # All arguments after a program belong to the program.
    if given[:2] == ["sim", "run"]:
        status = _simulators.run_program(given[2:])
        if status is not None:
            return status
    if given[:1] == ["profile"]:
        from uhal.profiler import command as profiler

        return profiler.run(given[1:])
    if given[:1] == ["conformance"]:
        # a separate package, which uses uhal like any program
        command = importlib.import_module("uhal_conformance.command")
        return int(command.main(given[1:]))
    parser = argparse.ArgumentParser(prog="python -m uhal", description=__doc__)
    parser.add_argument("--version", action="version", version=f"uhal {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)

    doctor = commands.add_parser(
        "doctor",
        help="say which backends work here and why the others do not",
        description=(
            "Print a row for each backend, run a kernel on each device found, check its numbers "
            "and time a launch. Exit status 0 when any device computes."
        ),
    )
    doctor.add_argument("-v", "--verbose", action="store_true", help="list the libraries tried")
    doctor.add_argument("--json", action="store_true", help="print one JSON object")

    # Their options are the examples' own, `--help` included.
    for name, summary in _EXAMPLES.items():
        commands.add_parser(name, add_help=False, help=f"{summary}; -h lists its options")
    for name, summary in _MODELS.items():
        commands.add_parser(name, add_help=False, help=f"{summary}; -h lists its options")
    for name in _MODELS_BY_NAME:
        commands.add_parser(name, add_help=False, help=f"generate with a model of {name}'s kind")
    commands.add_parser(
        "profile",
        add_help=False,
        help="run a program and say where its time went; -h lists options",
    )
    commands.add_parser(
        "conformance",
        add_help=False,
        help="run the suite that every backend must pass on a device; -h lists options",
    )
    flags = commands.add_parser(
        "cflags",
        help="print the options that compile a kernel for the host backend",
        description=_CFLAGS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    flags.add_argument("--checked", action="store_true", help="for kernels that are checked")
    flags.add_argument("--include", action="store_true", help="only where the headers are")
    new = commands.add_parser(
        "new",
        help="write a project with kernels of its own into a folder",
        description=(
            "Write a project: kernels, a program, tests on the CPU and a simulated GPU, a "
            "Makefile, settings of VS Code. Where a file of these exists nothing is written."
        ),
    )
    new.add_argument("folder", type=Path, help="where; made if it is not there")
    commands.add_parser("gdb", help="print the file that tells gdb of kernels and buffers")
    _simulators.add_commands(
        commands.add_parser("sim", help="find the simulated drivers that tests run on")
    )

    options, rest = parser.parse_known_args(given)
    if options.command in _EXAMPLES:
        return _run_example(options.command, rest)
    if options.command in (*_MODELS, *_MODELS_BY_NAME):
        run_model = import_module("ubridge.models.commands").main
        return int(run_model(options.command, given[given.index(options.command) + 1 :]))
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.command == "doctor":
        from uhal.doctor import run

        return run(verbose=options.verbose, as_json=options.json)
    if options.command == "sim":
        return _simulators.run(options)
    if options.command == "new":
        return _new_project.create(options.folder)
    if options.command == "gdb":
        print(_new_project.GDB_SCRIPT)
        return 0
    print(cflags(checked=options.checked, only_include=options.include))
    return 0


def cflags(*, checked: bool = False, only_include: bool = False) -> str:
    """Return compiler options for a kernel of the host backend, quoted for a shell."""
    more = cpu_level.CHECKED_FLAGS if checked else ()
    own = () if only_include else (*cpu_level.compile_flags(), *more)
    return shlex.join([*own, f"-I{_PACKAGE / 'include'}"])


def _run_example(name: str, arguments: Sequence[str]) -> int:
    """Run an example as its own program; it may end by `SystemExit`."""
    # An installed uhal carries the examples; in a checkout they lie beside it.
    for folder in (_PACKAGE / "examples", _PACKAGE.parent / "examples"):
        path = folder / f"{name}.py"
        if path.is_file():
            sys.argv = [str(path), *arguments]
            # A program finds the modules beside it.
            sys.path.insert(0, str(folder))
            runpy.run_path(str(path), run_name="__main__")
            return 0
    print(f"{name}.py is missing from this installation of uhal", file=sys.stderr)
    return 1


def _run() -> NoReturn:
    """Run as a program; a closed pipe (`| head`) ends it without a traceback."""
    terminal.accept_every_character()
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)


if __name__ == "__main__":
    _run()
