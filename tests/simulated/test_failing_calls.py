"""Each call of the driver fails once: the error has the right class, without leak, hang or
crash."""

from __future__ import annotations

import random
import re

import pytest

from cuda_backend._backend import FUNCTION_OF_SLOT
from tests.sampling import SOAK, rounds
from tests.simulated.process import PROGRAMS, needs_simulator, run_freely, run_program

pytestmark = needs_simulator

CALLS = set(FUNCTION_OF_SLOT.values())
# Calls that free objects, mostly in destructors, which warn instead of raising.
LETTING_GO = {
    *("cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeHost", "cuStreamDestroy_v2"),
    *("cuEventDestroy_v2", "cuModuleUnload"),
}
# The pool no longer allocates when this call fails.
NOT_CALLED_AGAIN = {"cuMemAlloc_v2"}
# In a lazy schedule work runs only during waits, so every wait reaches the driver.
SETTINGS = {"UHAL_SIM_SCHEDULE": "lazy", "UHAL_SIM_CUDA_DEVICES": "2"}


def drawn_calls(seed: int) -> set[str]:
    """Return a third of the calls; in a soak all."""
    return set(random.Random(seed).sample(sorted(CALLS), rounds(len(CALLS) // 3, len(CALLS))))


@pytest.mark.drawn(1)
@pytest.mark.parametrize("code", [1, 2], ids=["INVALID_VALUE", "OUT_OF_MEMORY"])
def test_every_call_may_fail_once(code: int, seed: int) -> None:
    calls = drawn_calls(seed)
    told = ("once", str(code), str(rounds(2, 8)), *calls)
    out = run_program("failing_calls.py", *told, **SETTINGS)
    # When the device is full, the pool releases unused memory and tries again.
    survived = {"cuMemAlloc_v2", "cuMemAllocAsync"} if code == 2 else set()
    assert calls - LETTING_GO - survived <= set(out.split())


def test_every_allocation_may_find_the_device_full() -> None:
    calls = ("cuMemAlloc_v2", "cuMemAllocAsync", "cuMemHostAlloc")
    out = run_program("failing_calls.py", "memory", *calls, **SETTINGS)
    assert set(out.split()) == set(calls)


def test_a_loss_that_only_the_exit_hears_of_is_said_and_the_exit_goes_on() -> None:
    done = run_freely(str(PROGRAMS / "failing_calls.py"), "at_exit", **SETTINGS)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    (lost,) = re.findall(r"CUDA_ERROR_ILLEGAL_ADDRESS.* The device cuda:(\d) is lost", done.stderr)
    assert f"done on {1 - int(lost)}" in done.stdout


@pytest.mark.parametrize("code", [700, *([716, 719] if SOAK else [])])
def test_every_call_may_bring_the_news_that_the_device_is_lost(code: int, seed: int) -> None:
    calls = drawn_calls(seed)
    out = run_program("failing_calls.py", "sticky", str(code), *calls, **SETTINGS)
    raised = set(out.splitlines())
    assert raised >= calls - LETTING_GO - NOT_CALLED_AGAIN
