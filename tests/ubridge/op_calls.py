"""The function call that an operation's run makes, for tests that change the call.

A new operation only needs a run in `op_runs.py`: other tests repeat the run's call with other
memory, other numbers and wrong operands.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tests.ubridge.op_runs_decoding
import tests.ubridge.op_runs_windows
import ubridge as ub
from tests.ubridge.op_rows import row_of
from tests.ubridge.op_runs import RUNS, Trial
from ubridge import OPS, DeviceTensor, Op
from uhal import Device

# They add their runs.
assert tests.ubridge.op_runs_decoding and tests.ubridge.op_runs_windows
SMALL = 1024
"""Limit of an operand's size in bytes."""


@dataclass(frozen=True)
class OpCall:
    """A function and its arguments in a run, by name."""

    name: str
    arguments: dict[str, Any]

    @property
    def operands(self) -> dict[str, DeviceTensor]:
        """The tensors among the arguments."""
        return {key: one for key, one in self.arguments.items() if isinstance(one, DeviceTensor)}

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers among the arguments."""
        return {key: one for key, one in self.arguments.items() if type(one) in (int, float)}

    def __call__(self, **changed: Any) -> Any:
        """Call the function, with some arguments changed."""
        return getattr(ub, self.name)(**{**self.arguments, **changed})


def call_of(op: Op, device: Device, rng: np.random.Generator) -> OpCall:
    """Return the call of an operation's run, with small operands."""
    function = getattr(ub, op.called)
    calls: list[OpCall] = []

    def noted(*given: Any, **settings: Any) -> Any:
        bound = inspect.signature(function).bind(*given, **settings)
        calls.append(OpCall(op.called, dict(bound.arguments)))
        return function(*given, **settings)

    dtype = "f32" if "f32" in op.dtypes else op.dtypes[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ub, op.called, noted)
        for _ in range(100):
            calls.clear()
            trial = Trial(row_of(device.backend), device, rng, op, dtype, "contiguous")
            list(RUNS[op.family.name](trial))
            sizes = [one.nbytes for call in calls for one in call.operands.values()]
            if sizes and min(sizes) > 0 and max(sizes) <= SMALL:
                return calls[0]
    raise AssertionError(f"{op.name}: no run calls ubridge.{op.called} with small operands")


def of_family(name: str) -> Op:
    """Return a family's first operation that promises dtypes."""
    return next(op for op in OPS.values() if op.family.name == name and op.dtypes)
