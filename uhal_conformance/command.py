"""`python -m uhal conformance --backend NAME`: the suite on a device of yours, and its report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

_HELP = """\
Run the suite that every backend must pass on a real device, print a table and write a report to
send. Options behind -- are pytest's. Exit status 0 when nothing failed.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the suite; return the exit status."""
    options = _parser().parse_args(_before_dashes(arguments))
    try:
        import pytest  # noqa: F401
    except ImportError:
        print('the suite needs pytest: pip install "uhal-py[conformance]"', file=sys.stderr)
        return 2
    from uhal import registry
    from uhal.images.private_folder import private_folder, user_cache
    from uhal_conformance import report
    from uhal_conformance.gaps import Gaps, read_gaps
    from uhal_conformance.images import KERNELS
    from uhal_conformance.running import run

    if options.kernels:
        print(KERNELS)
        return 0
    if options.backend is None:
        _parser().error("expected --backend NAME")
    try:
        cache = private_folder(user_cache("conformance"))
    except OSError as failure:
        _parser().error(str(failure))
    try:
        gaps = read_gaps(options.gaps) if options.gaps is not None else Gaps()
    except ValueError as failure:
        _parser().error(f"--gaps {failure}")
    record = registry.record(options.backend)
    if record.verdict != "ok":
        print(f"{options.backend}: {record.reason}. {record.next_step}", file=sys.stderr)
        return 2
    found = run(
        options.backend,
        options.ordinal,
        images=options.images.resolve() if options.images else None,
        gaps=gaps,
        seed=options.seed,
        only=options.only,
        cache=cache,
        options=_behind_dashes(arguments),
    )
    print(report.text(found))
    if options.report is not None:
        print(f"wrote {report.write(found, options.report)}")
    return 1 if any(one.outcome == "failed" for one in found.results) or not found.results else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m uhal conformance", description=_HELP)
    parser.add_argument("--backend", metavar="NAME", help="cuda, rocm, …, or a backend of your own")
    parser.add_argument("--ordinal", type=int, default=0, metavar="N", help="the device, from 0")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report as JSON")
    parser.add_argument(
        "--images",
        type=Path,
        metavar="FOLDER",
        help="an image of each of the suite's kernels, made for the device: basic.*, fault.*, …",
    )
    parser.add_argument(
        "--gaps",
        type=Path,
        metavar="FILE",
        help="permanent gaps of the backend and their reasons, as JSON",
    )
    parser.add_argument("--kernels", action="store_true", help="print where those sources are")
    parser.add_argument("--seed", type=int, metavar="N", help="repeat a report's random inputs")
    parser.add_argument(
        "-k", dest="only", default="", metavar="EXPRESSION", help="only the tests it names"
    )
    return parser


def _before_dashes(arguments: Sequence[str]) -> list[str]:
    given = list(arguments)
    return given[: given.index("--")] if "--" in given else given


def _behind_dashes(arguments: Sequence[str]) -> list[str]:
    given = list(arguments)
    return given[given.index("--") + 1 :] if "--" in given else []
