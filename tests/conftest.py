"""What every test shares: the seed, the counts, the choice of real devices, the counting bench."""

from __future__ import annotations

import gc
import os
import random
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests import launched_entries
from tests.sampling import SOAK

if TYPE_CHECKING:
    from tests.counting_bench import Bench


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("uhal")
    group.addoption(
        "--seed",
        type=int,
        default=None,
        help="seed of every random input; also UHAL_TEST_SEED; by default a fresh one",
    )
    group.addoption(
        "--device",
        action="append",
        default=[],
        metavar="BACKEND[:ORDINAL]",
        help="also run the tests on this real device; may be repeated",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(launched_entries)
    given = config.getoption("--seed")
    if given is None and os.environ.get("UHAL_TEST_SEED"):
        given = int(os.environ["UHAL_TEST_SEED"])
    # a worker process of pytest-xdist takes the seed of the run it belongs to
    given = getattr(config, "workerinput", {}).get("uhal_seed", given)
    seed = random.SystemRandom().randrange(1 << 32) if given is None else given
    config.stash[SEED] = seed
    config.addinivalue_line("markers", "bench(driver, **environment): how `bench` is opened")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["uhal_seed"] = node.config.stash[SEED]


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.stash[SEED]
    counts = "full (soak)" if SOAK else "sampled (UHAL_TEST_SOAK=1 for all)"
    return f"uhal: seed {seed} (UHAL_TEST_SEED={seed} repeats it), counts {counts}"


def pytest_collection_finish(session: pytest.Session) -> None:
    # the tests collect garbage often; what pytest itself holds by now need not be looked at again
    gc.collect()
    gc.freeze()


SEED = pytest.StashKey[int]()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """This test's own seed: the run's seed and the test's name, so order does not matter."""
    run_seed = request.config.stash[SEED]
    return zlib.crc32(request.node.nodeid.encode(), run_seed)


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """Random inputs that the printed seed repeats."""
    return np.random.default_rng(seed)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


PASSED = pytest.StashKey[bool]()


@pytest.fixture(autouse=True, scope="module")
def settled_heap() -> None:
    """Keep what outlives a module of tests from being gone through at every count of objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A counting device, current on this thread; afterwards nothing of it may be left.

    The marker `bench(driver=…, UHAL_POOL=…)` makes the driver and sets variables for the opening.
    """
    from tests.counting_bench import Bench
    from tests.counting_driver import CountingDriver

    marker = request.node.get_closest_marker("bench")
    settings = dict(marker.kwargs) if marker is not None else {}
    driver = settings.pop("driver", CountingDriver)()
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with Bench.accounted(driver) as bench:
        yield bench
        # the traceback of a failed test holds its objects
        bench.account_is_settled = request.node.stash.get(PASSED, False)
