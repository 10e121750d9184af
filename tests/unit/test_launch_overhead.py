"""The benchmark of launches: rounds are merged, and a library's gaps are reported."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import launch_overhead, tables
from benchmarks.measuring import launch_form, measure
from benchmarks.suites import HOST_RUNTIME, SUITES, Gate, Library, Suite
from benchmarks.workers.opened import as_seen, open_driver, pointers_to, values

HERE = Path(__file__)


def row(library: str, form: str, times: list[float], launches: int = 0) -> dict[str, object]:
    return {
        **{"library": library, "form": form, "what": "launch", "args": 3, "times_ns": times},
        **{"launches": launches, "checksum": 2**64 - 1},
    }


def test_turns_are_put_together(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    turns = rng.random((5, 7)) * 100
    rounds = iter(turns)

    def answer(*_: object) -> dict[str, object]:
        rows = [row("uhal", "bound", list(next(rounds)), 10)]
        gaps = [{"what": "sync", "form": "", "reason": "no"}]
        return {"rows": rows, "gaps": gaps, "versions": {"uhal": "1"}}

    monkeypatch.setattr(launch_overhead, "_worker", answer)
    suite = Suite((Library("uhal", "uhal_calls", HERE),), ())
    result = launch_overhead.run(suite, "cuda", sys.executable, len(turns))
    (found,) = result.rows
    assert found["median_ns"] == round(float(np.median(turns)), 1)
    assert (found["launches"], found["checksum"]) == (50, 5 * (2**64 - 1) % 2**64)
    assert result.gaps == [{"library": "uhal", "what": "sync", "form": "", "reason": "no"}]


def test_a_library_that_is_not_there_is_no_failure_and_one_that_breaks_is() -> None:
    suite = Suite(
        (
            Library("cuda.core", "cuda_core_calls", HERE),
            Library("broken", "no_such_worker", HERE),
        ),
        (),
    )
    result = launch_overhead.run(suite, "cuda", sys.executable, 2)
    assert "No module named" in result.absent["cuda.core"]
    assert "no_such_worker" in result.failed["broken"]
    assert not result.rows
    text = tables.tables(result, [], None)
    assert "cuda.core took no part" in text
    assert "broken failed" in text.replace("*", "")


def test_a_gate_takes_the_fastest_of_the_others() -> None:
    result = launch_overhead.Result(
        rows=[
            {**row(library, form, []), "median_ns": ns}
            for library, form, ns in (("uhal", "bound", 30.0), ("a", "x", 90.0), ("b", "y", 60.0))
        ]
    )
    assert result.ratio(Gate("launch", 3, "bound", ("a", "b"), 1.0)) == 0.5
    assert result.ratio(Gate("launch", 3, "bound", ("a", "b"), 1.0, "x")) == pytest.approx(1 / 3)
    assert result.ratio(Gate("launch", 8, "bound", ("a",), 1.0)) is None


def test_every_worker_of_every_suite_is_there() -> None:
    folder = Path(launch_overhead.__file__).with_name("workers")
    for suite in SUITES.values():
        assert [one for one in suite.libraries if not (folder / f"{one.worker}.py").is_file()] == []


def test_kernels_of_the_host_see_what_they_are_given(seed: int) -> None:
    rng = np.random.default_rng(seed)
    opened = open_driver("host", str(HOST_RUNTIME))
    given = values("three", int(rng.integers(2**40)), int(rng.integers(2**40)))
    pointers = pointers_to(given)
    launch, function = opened.launch, ctypes.c_void_p(opened.functions["three"])
    stream = ctypes.c_void_p(opened.stream)

    def run(count: int) -> None:
        for _ in range(count):
            launch(function, 1, 1, 1, 1, 1, 1, 0, stream, pointers, None)

    as_sent = launch_form("C", run, as_seen(given))
    (measured,) = measure("floor", [as_sent], opened.counts)
    total = as_sent.expected["checksum"]
    assert measured.launches > 0
    assert measured.checksum == measured.launches * total % 2**64
    with pytest.raises(SystemExit, match="calls should bring checksum to"):
        measure("floor", [launch_form("C", run, [(8, total + 1)])], opened.counts)
