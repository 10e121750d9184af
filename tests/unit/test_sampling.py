"""The cases of marked tests that a run draws, and the order of test files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import file_order, sampling
from uhal_conformance import sampling as shared

DTYPES = ("f16", "f32", "f64", "i32")
DEVICES = ("host:0", "cuda-sim:0")


class Case:
    """Attributes of a collected test that the choice of cases reads."""

    def __init__(self, test: str, mark: pytest.Mark | None, **parameters: object) -> None:
        self.path = Path(test.partition("::")[0])
        self.nodeid = f"{test}[{'-'.join(map(str, parameters.values()))}]"
        self.callspec = SimpleNamespace(params=parameters)
        self.mark = mark

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.mark if name == "drawn" else None


def cases(test: str, *arguments: float, **keywords: object) -> list[Any]:
    mark = pytest.mark.drawn(*arguments, **keywords).mark if arguments else None
    return [
        Case(test, mark, device=device, dtype=dtype, layout=layout)
        for device, dtype, layout in product(DEVICES, DTYPES, range(6))
    ]


def drawn(items: list[Any], seed: int) -> list[Any]:
    gone: list[Any] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: gone.extend(items))
    kept = [*items]
    sampling.leave_out(SimpleNamespace(hook=hook), kept, seed)  # type: ignore[arg-type]
    assert sorted(one.nodeid for one in (*kept, *gone)) == sorted(one.nodeid for one in items)
    return kept


@pytest.fixture(autouse=True)
def not_in_a_soak(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(shared, "SOAK", False)
    yield


def test_each_backend_draws_its_part(seed: int) -> None:
    kept = drawn(cases("a.py::test_one", 1 / 3), seed)
    per_device = Counter(one.callspec.params["device"] for one in kept)
    # a third of 24, and at most one more case for each dtype without a drawn case
    assert set(per_device) == set(DEVICES) and all(8 <= n < 12 for n in per_device.values())


def test_a_count_for_each_value_of_a_parameter(seed: int) -> None:
    kept = drawn(cases("a.py::test_one", 2, each=("dtype",)), seed)
    counts = Counter((one.callspec.params["device"], one.callspec.params["dtype"]) for one in kept)
    assert set(counts.values()) == {2} and len(counts) == len(DEVICES) * len(DTYPES)


def test_backends_may_be_cases_themselves(seed: int) -> None:
    kept = drawn(cases("a.py::test_one", 2, among_backends=True), seed)
    assert 2 <= len(kept) < 2 + len(DTYPES)
    dtypes = [drawn(cases("a.py::test_one", 1, among_backends=True, each=("dtype",)), seed)]
    assert [len(one) for one in dtypes] == [len(DTYPES)]


def test_every_dtype_of_a_file_occurs(seed: int) -> None:
    kept = drawn(cases("a.py::test_one", 1) + cases("b.py::test_two", 1), seed)
    for path in ("a.py", "b.py"):
        found = [one for one in kept if str(one.path) == path]
        assert {one.callspec.params["dtype"] for one in found} == set(DTYPES)
        assert len(found) <= 1 + len(DTYPES)


def test_the_choice_is_that_of_seed_and_test_alone(seed: int) -> None:
    own, others = cases("a.py::test_one", 1 / 3), cases("b.py::test_two", 1 / 3)
    alone = [one.nodeid for one in drawn(own, seed)]
    together = [one.nodeid for one in drawn(others + own, seed) if str(one.path) == "a.py"]
    assert alone == together
    assert any([one.nodeid for one in drawn(own, seed + n)] != alone for n in range(1, 9))


def test_tests_without_the_mark_and_single_cases_run(seed: int) -> None:
    plain = cases("a.py::test_one")
    assert drawn(plain, seed) == plain
    assert drawn(cases("a.py::test_one", 1 / 3)[:1], seed)


def test_a_soak_runs_all(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "SOAK", True)
    every = cases("a.py::test_one", 1 / 3)
    assert drawn(every, seed) == every


def test_every_case_is_drawn_by_some_seed(seed: int) -> None:
    every = cases("a.py::test_one", 1 / 3)
    seen = {one.nodeid for n in range(60) for one in drawn(every, seed + n)}
    assert len(seen) == len(every)


def test_unknown_files_come_first_then_slow_ones() -> None:
    seconds = {"tests/quick.py": 0.5, "tests/slow.py": 60.0}
    config: Any = SimpleNamespace(workerinput={"uhal_seconds": seconds})
    files = ["quick", "few", "slow", "many", "quick", "many"]
    items: list[Any] = [
        SimpleNamespace(nodeid=f"tests/{file}.py::test_{n}") for n, file in enumerate(files)
    ]
    file_order.pytest_collection_modifyitems(config, items)
    assert [item.nodeid for item in items] == [
        "tests/many.py::test_3",
        "tests/many.py::test_5",
        "tests/few.py::test_1",
        "tests/slow.py::test_2",
        "tests/quick.py::test_0",
        "tests/quick.py::test_4",
    ]
