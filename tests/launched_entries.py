"""The entries of ubridge's kernels that a run launched. A whole run fails if an entry is missing.

This module is a plugin of every session, because processes of pytest-xdist share a run. Each worker
reports its launches, and the process that began the run checks the union of all launches.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.sampling import SOAK

ENTRIES: dict[str, tuple[str, ...]] = {}
"""Entries of the launched modules."""
LAUNCHED: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
"""Entries that were launched, by backend and module."""
MISSING: list[str] = []
"""Reasons why a whole run fails, as lines of its summary."""

_FILES = set((Path(__file__).resolve().parent / "ubridge").glob("test_*_kernels.py"))
_WHOLE = pytest.StashKey[bool]()
"""Whether the run collected every file with tests of kernels."""


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[_WHOLE] = {item.path for item in session.items} >= _FILES


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take the report of a worker that ended normally."""
    told = getattr(node, "workeroutput", {}).get("uhal_entries")
    if told is None:
        return
    ENTRIES.update(told["entries"])
    for backend, modules in told["launched"].items():
        for module, names in modules.items():
            LAUNCHED[backend][module].update(names)
    stash = node.config.stash
    stash[_WHOLE] = stash.get(_WHOLE, False) or told["whole"]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report to the main process; there, check the host's launches, and in a soak all devices'."""
    config = session.config
    whole = config.stash.get(_WHOLE, False)
    if hasattr(config, "workeroutput"):
        launched = {
            backend: {module: sorted(names) for module, names in modules.items()}
            for backend, modules in LAUNCHED.items()
        }
        config.workeroutput["uhal_entries"] = {
            **{"entries": {module: tuple(names) for module, names in ENTRIES.items()}},
            **{"launched": launched, "whole": whole},
        }
        return
    options = config.option
    chosen = options.keyword or options.markexpr or any("::" in one for one in options.file_or_dir)
    if not whole or chosen or options.collectonly:
        return
    for backend, modules in LAUNCHED.items():
        if backend != "host" and not SOAK:
            continue
        for module, seen in modules.items():
            missing = sorted(set(ENTRIES[module]) - seen)
            if missing:
                MISSING.append(f"no test launched on {backend}: {module} {', '.join(missing)}")
                session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many entries of each module were launched."""
    for backend, launched in LAUNCHED.items():
        counts = [(name, len(launched[name]), len(ENTRIES[name])) for name in sorted(launched)]
        told = ", ".join(f"{name} {count} of {all_of_it}" for name, count, all_of_it in counts)
        terminalreporter.line(f"entries launched on {backend}: {told}")
    for line in MISSING:
        terminalreporter.line(f"FAILED {line}", red=True)
