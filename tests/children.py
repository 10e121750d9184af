"""Runs a function of a test module, or a program, in a process of its own.

The functions come from the conformance suite, which is installed without these tests.
"""

from __future__ import annotations

import os
import subprocess
import sys

from uhal_conformance.children import ROOT, check_child, run_child, run_module

__all__ = ["ROOT", "check_child", "run_child", "run_module", "run_program", "untold"]


def untold() -> dict[str, str]:
    """Return the environment without uhal's variables, which fixtures set for the whole process."""
    return {name: value for name, value in os.environ.items() if not name.startswith("UHAL_")}


def run_program(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the text of a Python program."""
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
