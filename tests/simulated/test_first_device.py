"""`make device`: its steps, their outcomes, and a trial on the simulated driver."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.beside_ncu import read_csv
from build_support.first_device import ROOT, STEPS, Step, page, run
from tests.requirements import needed
from tests.simulated_driver import LIBRARY


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_step_runs_what_there_is(step: Step) -> None:
    first, *rest = step.arguments
    if first == "-m":
        assert importlib.util.find_spec(rest[0]) is not None
    else:
        assert (ROOT / first).is_file()
    files = [one for one in rest if one.startswith("tests/")]
    assert all((ROOT / one).exists() for one in files)


@pytest.mark.parametrize(
    ("step", "left", "state", "words"),
    [
        (Step("a", ("-c", "print(6 * 7)"), 60), 60, "passed", "42"),
        (Step("a", ("-c", "raise SystemExit('wrong')"), 60), 60, "failed", "wrong"),
        (Step("a", ("-uc", "import time; print(1); time.sleep(600)"), 2), 60, "late", ""),
        (Step("a", ("-c", ""), 60, "a_module_nobody_has"), 60, "left out", "is not installed"),
        (Step("a", ("-c", ""), 60), 0, "left out", "the time was over"),
    ],
)
def test_outcomes(step: Step, left: float, state: str, words: str) -> None:
    one = run(step, left, dict(os.environ), smoke=False)
    assert one.state == state, one
    assert words in one.output


def test_output_is_text_on_the_page() -> None:
    one = run(Step("a", ("-c", "print('<b>&')"), 60), 60, dict(os.environ), smoke=False)
    assert "&lt;b&gt;&amp;" in page([one])


def test_the_table_of_nsight_compute_is_read() -> None:
    text = """\
==PROF== Connected to process 7
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","ucopy_f32(unsigned long)","smsp__thread_inst_executed.sum","inst","4,325,376"
"0","ucopy_f32(unsigned long)","l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum","sector","8192"
"1","badd_f32","smsp__thread_inst_executed.sum","inst","7.5"
"""
    assert read_csv(text.splitlines()) == {
        "ucopy_f32": {
            "smsp__thread_inst_executed.sum": 4325376,
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 8192,
        },
        "badd_f32": {"smsp__thread_inst_executed.sum": 7.5},
    }


@needed(LIBRARY.exists(), "make simulators")
def test_a_trial_on_the_simulated_driver(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if "UHAL" not in name}
    steps = "doctor,layer,beside torch"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "build_support.first_device", "--smoke", "--steps", steps),
            *("--driver", str(LIBRARY), "--out", str(tmp_path), "--seconds", "300"),
        ],
        cwd=ROOT,
        env=kept,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done
    found = json.loads((tmp_path / "device.json").read_text())["steps"]
    assert [(one["name"], one["state"]) for one in found] == [
        (name, "passed") for name in steps.split(",")
    ]
    assert "uhal simulated" in found[0]["output"]
    assert "beside torch" in (tmp_path / "device.html").read_text()
