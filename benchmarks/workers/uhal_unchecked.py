"""uhal with a `_lane` built without checks and ledger, to measure their cost."""

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
    """Finds the unchecked `_lane` when uhal imports its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name != "uhal._lane":
            return None
        return importlib.util.spec_from_file_location(name, self._path)


def build_unchecked_lane(folder: Path) -> Path:
    """Build the unchecked `_lane` in `folder` unless it is built; return its file."""
    job = lane_job(ROOT, folder, unsafe=True)
    output = sys.stdout
    sys.stdout = sys.stderr
    try:
        build([job], ROOT)
    finally:
        sys.stdout = output
    return job.output


def main(library: str, backend: str) -> None:
    lane = build_unchecked_lane(ROOT / "build" / "unsafe")
    sys.meta_path.insert(0, UncheckedLane(lane))
    from benchmarks.workers import uhal_calls

    uhal_calls.main(library, backend, "uhal, unchecked")


if __name__ == "__main__":
    main(*sys.argv[1:])
