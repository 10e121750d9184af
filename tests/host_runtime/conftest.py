"""The opened host runtime, and a module of kernels that is closed again."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

from tests.host_kernels import build
from tests.host_runtime.driver import Driver
from tests.host_runtime.kernels import KERNELS


@pytest.fixture(scope="module")
def driver() -> Driver:
    return Driver()


@pytest.fixture(scope="module")
def image() -> bytes:
    return build(KERNELS)


@pytest.fixture
def module(driver: Driver, image: bytes) -> Iterator[ctypes.c_void_p]:
    driver.use()
    before = driver.live()
    with driver.module(image) as loaded:
        yield loaded
    assert driver.live() == before
