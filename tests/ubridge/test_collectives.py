"""The shapes that questions of collectives may have, without a job."""

from __future__ import annotations

import pytest

from ubridge.core.layout import Layout
from ubridge.core.question import Question
from ubridge.definitions.collectives import ALL_GATHER, ALL_REDUCE
from uhal import ArgumentValueError
from uhal.dtypes import as_dtype

F32 = as_dtype("f32")
WRONG = [(3,), (3, 2), (2, 3), (3, 4), (4, 3), (3, 3, 1), ()]


def gathered(each: tuple[int, ...]) -> Question:
    whole = Layout.contiguous((2, *each))
    return Question(ALL_GATHER, ((F32, Layout.contiguous((3, 3))),), (F32, whole))


def test_a_gathered_result_has_a_part_of_its_shape_for_each_rank() -> None:
    assert ALL_GATHER.family.rule(gathered((3, 3))) == (2, 3, 3)
    for each in WRONG:
        with pytest.raises(ArgumentValueError, match=r"all_gather: expected 2 of \(3, 3\), got"):
            ALL_GATHER.family.rule(gathered(each))


def test_a_reduced_result_has_the_operands_shape() -> None:
    line = (F32, Layout.contiguous((3, 3)))
    assert ALL_REDUCE.family.rule(Question(ALL_REDUCE, (line,), line)) == (3, 3)
