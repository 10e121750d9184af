"""The lane takes no more instructions for a call than its budget allows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks import instructions
from tests.requirements import missing


def test_no_call_takes_a_tenth_over_its_budget() -> None:
    if shutil.which("valgrind") is None or not Path("/usr/include/valgrind").is_dir():
        pytest.skip("valgrind is not installed: apt install valgrind")
    if not instructions.NULL_DRIVER.is_file():
        missing("the do-nothing driver is not built: make simulators")
    budget = json.loads(instructions.BUDGET.read_text()).get(instructions.toolchain())
    if budget is None:
        pytest.skip(f"no budget for {instructions.toolchain()}")
    found = instructions.count()
    assert min(found.values()) > 50, "callgrind saw nothing of the lane"
    assert not instructions.over_budget(found, budget), f"{found} against {budget}"


def test_a_call_over_its_budget_is_named() -> None:
    assert instructions.over_budget({"launch": 111, "sync": 109}, {"launch": 100, "sync": 100}) == [
        "launch"
    ]
    assert instructions.over_budget({"new": 5}, {}) == []
