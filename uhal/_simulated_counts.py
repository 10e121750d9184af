"""`python -m uhal sim run --count` and `sim counts`: what kernels ask of a GPU, without one."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uhal.profiler.counts import KernelCounts

_DESCRIPTION = """\
Print what a simulated CUDA driver counted: UHAL_SIM_CHECK=count UHAL_SIM_COUNTS=FILE.
"""


def add_command(parser: argparse.ArgumentParser) -> None:
    """Give the parser of `sim counts` its options."""
    parser.description = _DESCRIPTION
    parser.add_argument("file", type=Path, help="the file that UHAL_SIM_COUNTS named")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts as JSON")
    parser.add_argument("--lines", type=int, default=12, metavar="N", help="lines of each kernel")


def show(options: argparse.Namespace) -> int:
    """Print the counts of a file; return the exit status."""
    from uhal.profiler import counts, counts_table

    try:
        found = counts.read(options.file)
    except (OSError, ValueError) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 1
    print(counts_table.text(found, options.lines), end="")
    _write_json(found, options.json)
    return 0


def run(program: Callable[[Mapping[str, str]], int], every: str | None, output: str | None) -> int:
    """Run a program with more variables; print what its driver counted, to stderr.

    Returns the program's exit status.
    """
    from uhal.profiler import counts, counts_table

    with tempfile.TemporaryDirectory(prefix="uhal-counts-") as folder:
        file = Path(folder) / "counts.jsonl"
        file.touch()
        status = program(variables(file, every))
        found = counts.read(file)
    print(counts_table.text(found), end="", file=sys.stderr)
    _write_json(found, output)
    return status if status >= 0 else 128 - status


def variables(file: Path, every: str | None) -> dict[str, str]:
    """Variables that make the simulated CUDA driver count."""
    found = {"UHAL_SIM_CHECK": "count", "UHAL_SIM_COUNTS": str(file)}
    return found if every is None else found | {"UHAL_SIM_COUNT_EVERY": every}


def _write_json(found: list[KernelCounts], output: str | Path | None) -> None:
    from uhal.profiler import counts

    if output is not None:
        Path(output).write_text(json.dumps(counts.as_dict(found), indent=1) + "\n", "utf-8")
