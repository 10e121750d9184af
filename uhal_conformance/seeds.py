"""Random inputs that the printed seed of a run repeats."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from uhal import environment

SEED = pytest.StashKey[int]()


def add_option(group: pytest.OptionGroup) -> None:
    """Add `--seed`."""
    group.addoption(
        "--seed",
        type=int,
        default=None,
        help="seed of every random input; also UHAL_TEST_SEED; by default a fresh one",
    )


def choose(config: pytest.Config, given: int | None = None) -> int:
    """Return the run's seed, chosen now unless it was given."""
    if given is None:
        given = config.getoption("--seed")
    if given is None and (told := environment.read("UHAL_TEST_SEED")):
        given = int(told)
    # a worker process of pytest-xdist takes the seed of the run it belongs to
    given = getattr(config, "workerinput", {}).get("uhal_seed", given)
    seed = random.SystemRandom().randrange(1 << 32) if given is None else given
    config.stash[SEED] = seed
    return seed


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """This test's seed, from the run's seed and the test's name; the order of tests does not
    matter."""
    run_seed = request.config.stash[SEED]
    return zlib.crc32(request.node.nodeid.encode(), run_seed)


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """Random inputs that the printed seed repeats."""
    return np.random.default_rng(seed)
