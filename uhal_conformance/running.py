"""One run of the suite on one device, and the outcome of every test."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from uhal_conformance import fixtures, sampling, seeds
from uhal_conformance.gaps import UNSUPPORTED, UNSUPPORTED_FIXTURES, Gaps
from uhal_conformance.images import SUITE, NoImageError, image_for
from uhal_conformance.row import DeviceRow

Outcome = Literal["passed", "failed", "gap", "skipped"]


@dataclass(frozen=True)
class TestResult:
    """Result of one test."""

    __test__ = False

    file: str
    """The module, without `test_` and suffix."""
    name: str
    outcome: Outcome
    """`gap`: left out, because the backend lacks a feature; `skipped`: the test skipped itself."""
    seconds: float
    reason: str
    """The reason of a gap or a skip, or a failure's report."""


@dataclass(frozen=True)
class Run:
    """Results of all tests of a run."""

    row: DeviceRow
    results: tuple[TestResult, ...]
    seed: int
    seconds: float
    complete: bool
    """Whether the run selected every test of the suite and reached its end."""

    @property
    def conforms(self) -> bool:
        """Whether a complete run met no failure."""
        return self.complete and all(one.outcome != "failed" for one in self.results)


def run(
    backend: str,
    ordinal: int = 0,
    *,
    images: Path | None = None,
    gaps: Gaps | None = None,
    seed: int | None = None,
    only: str = "",
    cache: Path,
    options: Sequence[str] = (),
) -> Run:
    """Run the suite in this process. Its tests start others.

    `images` is a folder with an image of each of the suite's kernels, if uhal ships none. `gaps`
    lists the backend's gaps, besides the known gaps of our backends. `only` is an expression for
    `pytest -k`. `cache` keeps compiled kernels, `options` are pytest's.
    """
    gaps = gaps or Gaps()
    row = DeviceRow(
        f"{backend}:{ordinal}",
        backend,
        partial(_image, backend, ordinal, images),
        ordinal,
        unsupported={**UNSUPPORTED.get(backend, {}), **gaps.tests},
        unsupported_fixtures={**UNSUPPORTED_FIXTURES.get(backend, {}), **gaps.fixtures},
    )
    reported = _Told(row, seed)
    begun = time.monotonic()
    status = pytest.main(
        [
            *(str(path) for path in sorted(SUITE.glob("test_*.py"))),
            f"--rootdir={SUITE}",
            f"--override-ini=cache_dir={cache}",
            "--config-file=/dev/null",
            "--noconftest",
            "--import-mode=importlib",
            "--strict-markers",
            "-q",
            "-Werror::uhal.errors.DeviceWarning",
            *(["-k", only] if only else []),
            *options,
        ],
        plugins=[fixtures, seeds, reported],
    )
    ended = status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    return Run(
        row,
        tuple(reported.results.values()),
        reported.seed,
        time.monotonic() - begun,
        ended and not only,
    )


def _image(backend: str, ordinal: int, images: Path | None, source: Path, folder: Path) -> Path:
    try:
        return image_for(backend, ordinal, source, folder, images)
    except NoImageError as missing:
        pytest.fail(str(missing), pytrace=False)


class _Told:
    """The plugin: puts the row into the tests and collects their outcomes."""

    def __init__(self, row: DeviceRow, seed: int | None) -> None:
        self.row = row
        self.seed = 0
        self.results: dict[str, TestResult] = {}
        self._given = seed

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        seeds.add_option(parser.getgroup("uhal"))

    def pytest_configure(self, config: pytest.Config) -> None:
        self.seed = seeds.choose(config, self._given)
        config.addinivalue_line("markers", sampling.MARKER)  # every case runs

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "row" in metafunc.fixturenames:
            metafunc.parametrize(
                "row", [self.row], ids=[self.row.name], scope="module", indirect=True
            )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = self.results.get(report.nodeid)
        outcome, reason = self._outcome(report)
        # A failure stays a failure; a teardown without errors changes no outcome.
        if before is not None and (before.outcome == "failed" or outcome == "passed"):
            outcome, reason = before.outcome, before.reason
        path, _, name = report.nodeid.partition("::")
        spent = report.duration + (before.seconds if before is not None else 0.0)
        module = os.path.basename(path).removeprefix("test_").removesuffix(".py")
        self.results[report.nodeid] = TestResult(module, name, outcome, round(spent, 4), reason)

    def _outcome(self, report: pytest.TestReport) -> tuple[Outcome, str]:
        if report.failed:
            return "failed", report.longreprtext
        if not report.skipped:
            return "passed", ""
        said = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        said = said.removeprefix("Skipped: ")
        own = f"{self.row.name}: "
        return ("gap", said.removeprefix(own)) if said.startswith(own) else ("skipped", said)
