"""Comparison and selection with every condition and every combination with predicates."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest

from simulators.ptx import translate  # noqa: F401 - fills the table
from tests.sampling import rounds
from tests.simulators.ptx.batch import Case, execute, operands, width
from tests.simulators.ptx.exact import FORMATS, decode
from tests.simulators.ptx.test_floats import flushed
from tests.simulators.ptx.test_integers import of_type
from uhal.ptx.instructions import FORMS

COUNT = rounds(24, 1024)
CONDITIONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
}
JOINS = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
TRUE = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}


def truth(parts: list[str], kind: str, a: int, b: int) -> bool:
    condition = parts[1]
    if kind not in FORMATS:
        return bool(CONDITIONS[condition](of_type(a, kind), of_type(b, kind)))
    x, y = (decode(flushed(one, parts, kind), kind) for one in (a, b))
    unordered = x.is_nan or y.is_nan
    if condition in ("num", "nan"):
        return unordered == (condition == "nan")
    if unordered:
        return condition.endswith("u")
    size = {True: 1 << 2000}
    first, second = (
        (-size[True] if one.negative else size[True]) if one.is_infinite else one.value
        for one in (x, y)
    )
    return bool(CONDITIONS[condition.removesuffix("u")](first, second))


def sampled(name: str, rng: np.random.Generator, most: int) -> list[str]:
    """Return random spellings of an opcode, from each of its rows in turn."""
    found = []
    for row in (one for one in FORMS if one.name == name):
        spelt = sorted(one for one in row.spellings() if not one.endswith("x2"))
        found.append([spelt[int(index)] for index in rng.permutation(len(spelt))])
    turns = [one for turn in itertools.zip_longest(*found) for one in turn if one is not None]
    return list(dict.fromkeys(turns))[: rounds(most, len(turns))]


@pytest.mark.parametrize("name", ["setp", "set"])
def test_comparison(name: str, rng: np.random.Generator) -> None:
    chosen = sampled(name, rng, 80)
    for start in range(0, len(chosen), 80):
        cases = []
        for one in chosen[start : start + 80]:
            parts = one.split(".")
            kind = parts[-1]
            joined = ("pred",) if not JOINS.keys().isdisjoint(parts) else ()
            result = "pred" if name == "setp" else parts[-2]
            cases.append(Case(one, result, (kind, kind, *joined)))
        inputs = [operands(rng, case.operands, COUNT) for case in cases]
        for case, given, got in zip(cases, inputs, execute(cases, inputs), strict=True):
            parts = case.spelling.split(".")
            for index, result in enumerate(got):
                v = [one[index] for one in given]
                expected = truth(parts, parts[-1], v[0], v[1])
                for join in JOINS.keys() & set(parts):
                    expected = JOINS[join](expected, bool(v[2]))
                ones = TRUE.get(case.result, (1 << width(case.result)) - 1)
                assert result == (ones if expected else 0), (case, [hex(one) for one in v])


def test_selection(rng: np.random.Generator) -> None:
    cases = []
    for one in sampled("selp", rng, 100):
        kind = one.rsplit(".", 1)[-1]
        cases.append(Case(one, f"b{width(kind)}", (kind, kind, "pred")))
    for one in sampled("slct", rng, 60):
        *_, kind, by = one.split(".")
        cases.append(Case(one, f"b{width(kind)}", (kind, kind, by)))
    inputs = [operands(rng, case.operands, COUNT) for case in cases]
    for case, given, got in zip(cases, inputs, execute(cases, inputs), strict=True):
        for index, result in enumerate(got):
            a, b, by = (one[index] for one in given)
            if case.operands[2] == "pred":
                first = bool(by)
            elif case.operands[2] == "s32":
                first = of_type(by, "s32") >= 0
            else:
                real = decode(flushed(by, case.spelling.split("."), "f32"), "f32")
                first = not real.is_nan and (not real.negative or real.is_zero)
            assert result == (a if first else b), (case, hex(by))
