"""Eight streams share a pool under a random schedule: nothing stale is read, nothing leaks.

Launches unknown to the pool must fail: this proves that the program detects errors.
"""

from __future__ import annotations

import pytest

from tests.sampling import rounds
from tests.simulated.process import needs_simulator, run_program

pytestmark = needs_simulator

TURNS = 400
A_MINUTE_OF_TURNS = 12_000


def stress(seed: int, turns: int, pool: str, *how: str) -> str:
    return run_program(
        "pool_stress.py",
        *(str(seed), str(turns), *how),
        UHAL_POOL=pool,
        UHAL_SIM_SCHEDULE=f"random:{seed}",
    )


@pytest.mark.parametrize("pool", ["guard", "direct", "caching"])
def test_no_memory_is_read_stale_and_none_leaks(seed: int, pool: str) -> None:
    out = stress(seed, rounds(TURNS, A_MINUTE_OF_TURNS), pool)
    print(out)
    assert out.startswith("clean "), out
    assert int(out.split()[1]) > TURNS // 10, out


@pytest.mark.parametrize("pool", ["guard", "caching"])
def test_launches_that_the_pool_does_not_know_are_found_out(seed: int, pool: str) -> None:
    # The first stale read ends the program, mostly within twenty checks.
    out = stress(seed, 10 * TURNS, pool, "untracked")
    assert out.startswith("stale "), out
