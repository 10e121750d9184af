"""Fixtures of every test: the seed, the counts, the choice of real devices, the counting bench."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests import file_order, launched_entries, sampling
from uhal_conformance import seeds
from uhal_conformance.seeds import SEED, rng, seed

__all__ = ["SEED", "rng", "seed"]

if TYPE_CHECKING:
    from tests.counting_bench import Bench


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("uhal")
    seeds.add_option(group)
    group.addoption(
        "--device",
        action="append",
        default=[],
        metavar="BACKEND[:ORDINAL]",
        help="also run the tests on this real device; may be repeated",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(launched_entries)
    config.pluginmanager.register(file_order)
    seeds.choose(config)
    config.addinivalue_line("markers", sampling.MARKER)
    config.addinivalue_line("markers", "bench(driver, **environment): how `bench` is opened")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["uhal_seed"] = node.config.stash[SEED]


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.stash[SEED]
    counts = "full (soak)" if sampling.SOAK else "sampled (UHAL_TEST_SOAK=1 for all)"
    return f"uhal: seed {seed} (UHAL_TEST_SEED={seed} repeats it), counts {counts}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    sampling.leave_out(config, items, config.stash[SEED])


def pytest_collection_finish(session: pytest.Session) -> None:
    # tests often collect garbage; freeze pytest's own objects so that collections skip them
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


PASSED = pytest.StashKey[bool]()


@pytest.fixture(autouse=True, scope="module")
def settled_heap() -> None:
    """Freeze objects that outlive a module of tests, so that counts of objects skip them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def returned_memory() -> Iterator[None]:
    """Free the pools after each module of a soak, which would otherwise keep gigabytes."""
    yield
    if sampling.SOAK:
        from uhal import registry
        from uhal.errors import DeviceError

        for context in registry.opened_contexts():
            with contextlib.suppress(DeviceError):  # a device that was lost
                context.empty_cache()


@pytest.fixture
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Yield a counting device, current on this thread; check afterwards that nothing of it remains.

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
