"""Eight streams share a pool under a random schedule: nothing stale is read, nothing leaks.

A lane without stamps must fail: this proves that the program detects errors.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.workers.uhal_unchecked import build_unchecked_lane
from tests.host_kernels import has_compiler
from tests.requirements import missing
from tests.sampling import rounds
from tests.simulated.process import needs_simulator, run_program

pytestmark = needs_simulator

TURNS = 400
A_MINUTE_OF_TURNS = 12_000


@pytest.fixture(scope="module")
def lane_without_stamps(request: pytest.FixtureRequest) -> Path:
    """Compiled without optimisation, and kept between runs."""
    if not has_compiler():
        missing("there is no compiler")
    assert request.config.cache is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CFLAGS", "-O0")
        return build_unchecked_lane(request.config.cache.mkdir("pool_stress") / "lane")


def stress(seed: int, turns: int, pool: str, *lane: str) -> str:
    return run_program(
        "pool_stress.py",
        *(str(seed), str(turns), *lane),
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
def test_a_lane_without_stamps_is_found_out(
    lane_without_stamps: Path, seed: int, pool: str
) -> None:
    out = stress(seed, TURNS, pool, str(lane_without_stamps))
    assert out.startswith("stale "), out
