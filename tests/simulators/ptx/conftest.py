"""Every test here executes PTX, which requires llvmlite; libraries are built in the run's folder.

The summary names the rows of the table of instructions that no test executed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from uhal.ptx import instructions
from uhal.ptx.instructions import FORMS

HERE = Path(__file__).resolve().parent
USED: set[str] = set()

if importlib.util.find_spec("llvmlite") is None:
    collect_ignore_glob = ["test_*.py"]


NOT_EXECUTED: dict[str, str] = {}
"""Rows of the table that no test executes, with the reason."""
LEAST_PART = 0.95
"""Least share of the rows that a whole run executes; tests draw some spellings at random."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if importlib.util.find_spec("llvmlite") is None:
        terminalreporter.line("PTX: not tested, llvmlite is not installed (the extra 'sim')")
        return
    if not USED:
        return
    rows = {form.pattern for form in FORMS}
    terminalreporter.line(f"PTX: {len(rows & USED)} of {len(rows)} rows of the table ran")
    missing = sorted(rows - USED)
    for pattern in missing if len(missing) < len(rows) // 4 else ():
        terminalreporter.line(f"    not executed: {pattern} {NOT_EXECUTED.get(pattern, '')}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of all these tests that executes too few rows of the table."""
    collected = {one.path.name for one in session.items if one.path.parent == HERE}
    whole = collected >= {one.name for one in HERE.glob("test_*.py")}
    if not whole or session.config.getoption("keyword") or session.testsfailed or not USED:
        return
    rows = {form.pattern for form in FORMS}
    if len(rows & USED) < LEAST_PART * len(rows):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ptx")


@pytest.fixture(autouse=True, scope="module")
def recorded(libraries: Path) -> Iterator[None]:
    from simulators.ptx import emitter

    find = emitter.find

    def recording(one: Any) -> Any:
        form = instructions.find(one.spelling)
        if form is not None:
            USED.add(form.pattern)
        return find(one)

    # Other tests of this process reuse cached translations, which would execute no rows.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UHAL_SIM_CACHE", str(libraries))
        patch.setattr(emitter, "find", recording)
        yield
