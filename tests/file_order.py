"""Slow files of tests first, so that no process of a run ends with a long file alone.

A file's seconds come from the last whole run in this checkout. Files without seconds come first, by
their number of tests.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest

from tests.sampling import SOAK

KEY = f"uhal/{'soak' if SOAK else 'test'}_seconds"
SECONDS: defaultdict[str, float] = defaultdict(float)
"""Wall time of each file in this run, measured by the main process."""


def known_seconds(config: pytest.Config) -> dict[str, float]:
    """Return seconds by file; an xdist worker gets them from the process that started it."""
    given: dict[str, float] | None = getattr(config, "workerinput", {}).get("uhal_seconds")
    if given is not None:
        return given
    cache = _cache(config)
    return dict(cache.get(KEY, {})) if cache is not None else {}


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    # workers that read the cache themselves could use different orders
    node.workerinput["uhal_seconds"] = known_seconds(node.config)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seconds = known_seconds(config)
    tests = Counter(_file(item.nodeid) for item in items)
    items.sort(
        key=lambda item: (
            -seconds.get(_file(item.nodeid), float("inf")),
            -tests[_file(item.nodeid)],
            _file(item.nodeid),
        )
    )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    SECONDS[_file(report.nodeid)] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    options = config.option
    if hasattr(config, "workerinput") or options.keyword or options.markexpr:
        return
    if any("::" in one for one in options.file_or_dir):
        return
    rounded = {file: round(seconds, 2) for file, seconds in SECONDS.items()}
    if (cache := _cache(config)) is not None:
        cache.set(KEY, {**known_seconds(config), **rounded})


def _cache(config: pytest.Config) -> pytest.Cache | None:
    # pytest -p no:cacheprovider leaves the attribute out
    return getattr(config, "cache", None)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
