"""Random kernels agree with numpy: 30 of 200 kernels in a run, 10,000 in a soak."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.ptx.conftest import Launch
from tests.ptx.random_programs import (
    THREADS,
    TYPES,
    VARIABLES,
    Built,
    Computed,
    Generator,
    Type,
    numpy_type,
)
from tests.ptx.test_values import named
from tests.sampling import SOAK
from uhal import ptx

TOGETHER = 5
"""Programs in one kernel, one per block: five programs in a kernel take half the time."""
KERNELS = 2000 if SOAK else 40


def inputs(rng: np.random.Generator) -> dict[Type, Any]:
    """Return two values of each type for each thread of each program, including extremes."""
    made = {}
    for of in TYPES:
        kind, shape = numpy_type(of), (TOGETHER, VARIABLES, THREADS)
        if of.is_float:
            values = (rng.standard_normal(shape) * 20).astype(kind)
            values[:, :, :3] = np.array([0.0, -0.0, np.inf]).astype(kind)
        else:
            values = rng.integers(0, 256, (*shape, of.bytes), "u1").view(kind)[..., 0]
            values[:, :, :3] = [0, np.iinfo(kind).max, np.iinfo(kind).min]
        made[of] = values
    return made


@pytest.mark.drawn(3)
@pytest.mark.parametrize("part", range(KERNELS))
def test_random_programs_equal_numpy(
    part: int, launch: Launch, rng: np.random.Generator, seed: int
) -> None:
    generator = Generator(random.Random(seed))
    programs = [generator.program() for _ in range(TOGETHER)]

    def body(*pointers: Any) -> None:
        block, t = ptx.block_index(), ptx.thread_index()
        for number, program in enumerate(programs):
            with ptx.if_(block == number):
                first = number * VARIABLES * THREADS
                held = {
                    of: [pointer[t + (first + THREADS * i)] for i in range(VARIABLES)]
                    for of, pointer in zip(TYPES, pointers, strict=True)
                }
                built = Built(held)
                built.block(program)
                for of, pointer in zip(TYPES, pointers, strict=True):
                    for i, value in enumerate(built.variables[of]):
                        pointer[t + (first + THREADS * i)] = value

    given = inputs(rng)
    kernel = named(", ".join(f"{of}* p_{of}" for of in TYPES), body)
    got = launch(kernel, *(one.ravel() for one in given.values()), grid=TOGETHER, block=THREADS)
    with np.errstate(all="ignore"):
        for number, program in enumerate(programs):
            computed = Computed({of: list(given[of][number]) for of in TYPES})
            computed.block(program, np.ones(THREADS, bool))
            for of, found in zip(TYPES, got, strict=True):
                wanted = np.stack(computed.variables[of])
                shown = found.reshape(TOGETHER, VARIABLES, THREADS)[number]
                text = f"program {number} of seed {seed}, {of}: {program}"
                np.testing.assert_array_equal(shown, wanted, err_msg=text)
