"""uhal with a lane that checks nothing and keeps no books: what both cost is the difference."""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path

from build_support.jobs import build
from build_support.native import lane_job

ROOT = Path(__file__).resolve().parents[2]


class UncheckedLane(MetaPathFinder):
    """Finds that lane where uhal imports its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name != "uhal._lane":
            return None
        return importlib.util.spec_from_file_location(name, self._path)


def main(library: str, backend: str) -> None:
    job = lane_job(ROOT, ROOT / "build" / "unsafe", unsafe=True)
    output = sys.stdout
    sys.stdout = sys.stderr
    try:
        build([job], ROOT)
    finally:
        sys.stdout = output
    sys.meta_path.insert(0, UncheckedLane(job.output))
    from benchmarks.workers import uhal_calls

    uhal_calls.main(library, backend, "uhal, unchecked")


if __name__ == "__main__":
    main(*sys.argv[1:])
