"""Queries of a device and its memory: AMD's runtime compared with the simulated runtime."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from build_support import rocm_kernels
from tests.children import check_child
from tests.requirements import missing
from tests.rocr import agents
from tests.rocr.machine import Machine
from tests.rocr.topology import GPUS, NO_MODEL
from tests.simulated.hsa import LIBRARY

MODELS = [gpu for gpu in GPUS if gpu.processor not in NO_MODEL]

# Attributes that may differ between the two runtimes: they depend on the machine or product.
OF_ITS_OWN = (
    *("CACHE_SIZE", "ISA", "MAX_CLOCK_FREQUENCY", "BDFID", "MEMORY_WIDTH", "MEMORY_MAX_FREQUENCY"),
    *("PRODUCT_NAME", "HDP_FLUSH", "UUID", "MEMORY_AVAIL", "TIMESTAMP_FREQUENCY"),
    *("DRIVER_UID", "NEAREST_CPU"),
    # The simulated runtime answers 2³² - 1, as before ROCm 7; ROCm 7 answers HIP's axis limit.
    "GRID_MAX_DIM",
)


def test_there_is_a_description_of_every_target() -> None:
    assert [gpu.processor for gpu in GPUS] == list(rocm_kernels.TARGETS)
    assert set(NO_MODEL.values()) <= {gpu.processor for gpu in MODELS}


@pytest.mark.parametrize("processor", NO_MODEL)
def test_devices_of_which_this_release_takes_no_model(
    machine_with: Callable[[str], Machine], processor: str
) -> None:
    """If this test fails, the runtime has models of these devices: remove their substitutes."""
    done = machine_with(processor).start(agents.describe)
    assert done.returncode < 0
    assert "model: Unimplemented KFD ioctl" in done.stderr


@pytest.mark.drawn(0.5)
@pytest.mark.parametrize("gpu", MODELS, ids=lambda gpu: gpu.processor)
def test_the_simulated_runtime_says_the_same(
    machine_with: Callable[[str], Machine], gpu: Any
) -> None:
    if not LIBRARY.exists():
        missing("the simulated HSA runtime is not built: make simulators")
    real = machine_with(gpu.processor).call(agents.describe)
    environment = {"UHAL_SIM_ROCM_PROFILE": gpu.processor}
    simulated = json.loads(check_child(print_agents, str(LIBRARY), environment=environment))
    assert common(simulated["gpu"]) == common(real["gpu"])
    # The order of pools may differ, and some devices lack the extended kind.
    for agent in ("cpu", "gpu"):
        assert pools(real[agent]) <= pools(simulated[agent]), agent
        assert pools(simulated[agent]) - pools(real[agent]) <= {("", "08", "01", "0010", "")}


def print_agents(library: str) -> None:
    print(json.dumps(agents.describe(library)))


def common(agent: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: told
        for name, told in agent["attributes"].items()
        if name.split("_INFO_")[-1] not in OF_ITS_OWN
    }


def pools(agent: Mapping[str, Any]) -> set[tuple[str, ...]]:
    asked = (
        "SEGMENT",
        "GLOBAL_FLAGS",
        "RUNTIME_ALLOC_ALLOWED",
        "RUNTIME_ALLOC_GRANULE",
        "ACCESSIBLE_BY_ALL",
    )
    return {
        tuple(pool[f"HSA_AMD_MEMORY_POOL_INFO_{name}"] for name in asked) for pool in agent["pools"]
    }
