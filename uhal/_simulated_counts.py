"""`sim run --count`, `sim counts` and `sim resources`: kernels' requests to a GPU, counted."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from uhal import terminal

if TYPE_CHECKING:
    from uhal.profiler.counts import KernelCounts

_COUNTS = """\
Print what a simulated CUDA driver counted: UHAL_SIM_CHECK=count UHAL_SIM_COUNTS=FILE.
"""
_RESOURCES = """\
Print registers, spills, shared memory and occupancy of the kernels of an image: PTX or a fatbin, as
ptxas compiles it for --target, or a code object for AMD devices, by its metadata.
"""


def add_commands(counts: argparse.ArgumentParser, resources: argparse.ArgumentParser) -> None:
    """Add the options of `sim counts` and `sim resources` to their parsers."""
    counts.description = _COUNTS
    counts.add_argument("file", type=Path, help="the file that UHAL_SIM_COUNTS named")
    counts.add_argument("--json", type=Path, metavar="FILE", help="write the counts as JSON")
    counts.add_argument("--lines", type=int, default=12, metavar="N", help="lines of each kernel")
    counts.add_argument("--target", help="add registers, spills and occupancy there, as in sm_90")
    resources.description = _RESOURCES
    resources.add_argument("image", type=Path, help="PTX, a fatbin or a code object")
    resources.add_argument("--target", help="whom PTX is compiled for, as in sm_90")
    resources.add_argument("--block", type=int, default=256, help="threads of a block")


def show_counts(options: argparse.Namespace) -> int:
    """Print the counts of a file; return the exit status."""
    from uhal.profiler import counts

    try:
        _tell(counts.read(options.file), sys.stdout, options.json, options.target, options.lines)
    except (OSError, ValueError) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 1
    return 0


def show_resources(options: argparse.Namespace) -> int:
    """Print the resources of an image's kernels; return the exit status."""
    from uhal.images.regular_file import require_file
    from uhal.profiler import resources, resources_table

    try:
        require_file(options.image)
        found = resources.of_image(options.image.read_bytes(), options.target)
    except (OSError, ValueError) as error:
        print(f"{options.image}: {error}", file=sys.stderr)
        return 1
    terminal.write(sys.stdout, resources_table.text(found, options.block))
    return 0


def run(
    program: Callable[[Mapping[str, str]], int],
    every: str | None = None,
    output: str | None = None,
    target: str | None = None,
) -> int:
    """Run a program with additional variables; print its driver's counts to stderr.

    Returns the program's exit status.
    """
    from uhal.profiler import counts

    with tempfile.TemporaryDirectory(prefix="uhal-counts-") as folder:
        file = Path(folder) / "counts.jsonl"
        file.touch()
        status = program(variables(file, every))
        found = counts.read(file)
    _tell(found, sys.stderr, output, target)
    return status if status >= 0 else 128 - status


def variables(file: Path, every: str | None) -> dict[str, str]:
    """Variables that make the simulated CUDA driver count."""
    found = {"UHAL_SIM_CHECK": "count", "UHAL_SIM_COUNTS": str(file)}
    return found if every is None else found | {"UHAL_SIM_COUNT_EVERY": every}


def _tell(
    found: Sequence[KernelCounts],
    to: TextIO,
    output: str | Path | None,
    target: str | None,
    lines: int = 12,
) -> None:
    from uhal.profiler import counts, counts_table

    resources = None if target is None else counts.resources_of(found, target)
    terminal.write(to, counts_table.text(found, lines, resources))
    if output is not None:
        reported = counts.as_dict(found, resources)
        Path(output).write_text(json.dumps(reported, indent=1) + "\n", "utf-8")
