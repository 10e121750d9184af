"""`UHAL_TRACEBACK=short`: an uncaught error shows the program's lines alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.children import untold

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import ubridge
from uhal import Device

def inner(x):
    return {statement}

with Device(0, "host"):
    inner(ubridge.ones((2, 3)))
"""


def traceback_of(statement: str, folder: Path, setting: str) -> list[str]:
    """Return the lines of the program's uncaught error that name files."""
    program = folder / "program.py"
    program.write_text(PROGRAM.format(statement=statement))
    environment = {**untold(), "PYTHONPATH": str(ROOT), "UHAL_TRACEBACK": setting}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 1
    return [line for line in done.stderr.splitlines() if line.startswith("  File ")]


@pytest.mark.parametrize("statement", ["x @ x", "x[9]", "ubridge.softmax(x, axis=7)"])
def test_only_frames_of_the_program_are_shown(statement: str, tmp_path: Path) -> None:
    short = traceback_of(statement, tmp_path, "short")
    assert len(short) == 2 and all("program.py" in line for line in short)
    full = traceback_of(statement, tmp_path, "full")
    assert full == traceback_of(statement, tmp_path, "")
    assert len(full) > 2 and full[:2] == short


def test_other_errors_keep_every_frame(tmp_path: Path) -> None:
    statement = "ubridge.creation.operator.index(ubridge.creation.np.asarray(object()).item().x)"
    assert len(traceback_of(statement, tmp_path, "short")) == 2
    inside = "ubridge.core.operand_checks.as_dtype(3.5j)"
    assert len(traceback_of(inside, tmp_path, "short")) > 2


def test_a_wrong_setting_is_refused(tmp_path: Path) -> None:
    environment = {**untold(), "PYTHONPATH": str(ROOT), "UHAL_TRACEBACK": "tiny"}
    done = subprocess.run(
        [sys.executable, "-c", "import uhal"],
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 1
    assert "UHAL_TRACEBACK: expected full or short, got 'tiny'" in done.stderr
