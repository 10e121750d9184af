"""Tests that only hardware can answer: they run on devices named with `--device cuda`."""

from __future__ import annotations

import pytest

from uhal import Device


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cuda" in metafunc.fixturenames:
        named = [text for text in metafunc.config.getoption("--device") if text.startswith("cuda")]
        skipped = pytest.mark.skip(reason="needs an NVIDIA device: --device cuda")
        given = named or [pytest.param("cuda", marks=skipped)]
        metafunc.parametrize("cuda", given, indirect=True)


@pytest.fixture
def cuda(request: pytest.FixtureRequest) -> Device:
    """The NVIDIA device under test."""
    return Device(int(request.param.partition(":")[2] or 0), "cuda")
