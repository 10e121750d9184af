"""Every test here executes PTX, which takes llvmlite; libraries are made in a folder of the run.

The summary names the rows of the table of instructions that no test executed.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
USED: set[str] = set()

if importlib.util.find_spec("llvmlite") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if importlib.util.find_spec("llvmlite") is None:
        terminalreporter.line("PTX: not tested, llvmlite is not installed (the extra 'sim')")
        return
    if not USED:
        return
    from simulators.ptx.table import ROWS

    rows = {row.pattern for row in ROWS}
    missing = sorted(rows - USED)
    terminalreporter.line(f"PTX: {len(rows) - len(missing)} of {len(rows)} rows of the table ran")
    for pattern in missing if len(missing) < len(rows) // 4 else ():
        terminalreporter.line(f"    not executed: {pattern}")


@pytest.fixture(autouse=True, scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["UHAL_SIM_CACHE"] = str(tmp_path_factory.mktemp("ptx"))
    from simulators.ptx import emitter

    find = emitter.find

    def recording(one: Any) -> Any:
        row = find(one)
        USED.add(row.pattern)
        return row

    emitter.find = recording
