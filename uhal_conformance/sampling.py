"""Repetitions of a test, and the choice of its cases."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from uhal import dtypes, environment

if TYPE_CHECKING:  # child processes of tests run without pytest
    import pytest

SOAK = environment.read("UHAL_TEST_SOAK") == "1"
Amount = TypeVar("Amount")

MARKER = (
    "drawn(cases, each=(), among_backends=False): the seed draws so many cases, below 1 that part "
    "of them; each value of the parameters in `each` draws its own, and each backend unless it is "
    "`among_backends`"
)
BACKENDS = ("row", "device", "backend")
"""Parameters that name a backend."""
_DTYPES = frozenset(dtype.name for dtype in dtypes.ALL)


def rounds(sampled: Amount, full: Amount) -> Amount:
    """Return `sampled` in `make test`, `full` in `make soak`."""
    return full if SOAK else sampled


def leave_out(config: pytest.Config, items: list[pytest.Item], seed: int) -> None:
    """Deselect the cases of tests marked `drawn` that the seed does not draw.

    A soak runs all cases. Every dtype of a file still occurs in it. The choice depends only on
    the seed and the test, so a run of one file and a run of all files draw the same cases.
    """
    if SOAK:
        return
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("drawn") is not None:
            groups[_group(item)].append(item)
    left_out: dict[str, pytest.Item] = {}
    for group, cases in groups.items():
        drawn = random.Random(f"{seed} {group}").sample(cases, _count(cases))
        left_out |= {item.nodeid: item for item in cases if item not in drawn}
    kept = [item for item in items if item.nodeid not in left_out]
    for item in _with_missing_dtypes(kept, left_out.values()):
        del left_out[item.nodeid]
    if left_out:
        config.hook.pytest_deselected(items=[*left_out.values()])
        items[:] = [item for item in items if item.nodeid not in left_out]


def _group(item: pytest.Item) -> str:
    """Return the test's name, with the backend and other parameters that draw separate cases."""
    given = _parameters(item)
    mark = item.get_closest_marker("drawn")
    assert mark is not None
    backends = () if mark.kwargs.get("among_backends") else BACKENDS
    names = (*backends, *mark.kwargs.get("each", ()))
    shared = [getattr(given[name], "name", given[name]) for name in names if name in given]
    return " ".join([item.nodeid.partition("[")[0], *map(str, shared)])


def _count(cases: Sequence[pytest.Item]) -> int:
    mark = cases[0].get_closest_marker("drawn")
    assert mark is not None
    (asked,) = mark.args
    return min(len(cases), math.ceil(asked * len(cases)) if asked < 1 else int(asked))


def _with_missing_dtypes(
    kept: Iterable[pytest.Item], left_out: Iterable[pytest.Item]
) -> list[pytest.Item]:
    """Return left-out cases of dtypes that their file would otherwise lack."""
    seen = {(item.path, dtype) for item in kept for dtype in _dtypes(item)}
    found = []
    for item in left_out:
        missing = {(item.path, dtype) for dtype in _dtypes(item)} - seen
        if missing:
            seen |= missing
            found.append(item)
    return found


def _dtypes(item: pytest.Item) -> set[str]:
    return {str(value) for value in _parameters(item).values()} & _DTYPES


def _parameters(item: pytest.Item) -> dict[str, object]:
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else dict(callspec.params)
