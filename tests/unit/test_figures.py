"""The page of measured figures and the records behind it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import figures
from benchmarks.figures import Record
from benchmarks.tables import today


def test_the_page_says_what_its_records_say() -> None:
    text = figures.PAGE.read_text(encoding="utf-8")
    assert text == figures.page(text), "run `python -m benchmarks.figures`"


@pytest.mark.parametrize("area", figures.AREAS)
def test_an_area_has_one_record_for_each_figure_and_machine(area: str) -> None:
    records = figures.read(area)
    assert records, "an area without records has no table"
    assert len({one.key for one in records}) == len(records)
    for one in records:
        assert one.value is not None or one.ratio is not None, one
        assert one.figure and one.machine and one.date and one.command, one


def test_files_are_areas() -> None:
    assert {path.stem for path in figures.FOLDER.glob("*.json")} == set(figures.AREAS)


def test_a_newer_record_replaces_the_older_one_of_its_machine(tmp_path: Path, seed: int) -> None:
    older, newer, low, high = np.random.default_rng(seed).random(4).round(3).tolist()
    first = Record("replay", "a", "2026-01-01", "run", older, "µs")
    other = Record("replay", "b", "2026-01-01", "run", (low, high), "µs", "ctypes", 0.5)
    figures.record("launches", [first, other], tmp_path)
    last = Record("replay", "a", "2026-01-02", "run", newer, "µs", commit="abc")
    figures.record("launches", [last], tmp_path)
    assert figures.read("launches", tmp_path) == [last, other]
    table = figures.rendered(tmp_path)
    assert f"| {figures._shown(newer)} µs |" in table
    assert f"| {figures._shown(older)} µs |" not in table or older == newer
    assert f"| {figures._shown(low)} to {figures._shown(high)} µs | 0.5 | ctypes | b |" in table


def test_an_unknown_area_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected an area of gates, launches, .* got 'other'"):
        figures.record("other", [], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_gates_with_a_value_become_records() -> None:
    gates = [
        {"what": "launch, 3 arguments: bound, over cuda.core", "at_most": 0.15, "is": 0.061},
        {"what": "not measured, over cuda.core", "at_most": 0.15, "is": None},
    ]
    (one,) = figures.of_gates("launch_overhead cuda", gates, "a machine", "run")
    assert (one.figure, one.peer, one.ratio) == (
        "launch_overhead cuda: launch, 3 arguments: bound",
        "cuda.core",
        0.06,
    )
    assert json.dumps(one.commit) and one.date == today()
