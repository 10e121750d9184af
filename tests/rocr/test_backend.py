"""uhal's ROCm backend on AMD's own runtime, over a model of a device that executes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ubridge
from rocm_backend._errors import ADVICE
from tests.conformance import rows
from tests.rocr import backend
from tests.rocr.machine import ROOT, Machine
from tests.rocr.topology import GPUS, NO_MODEL, Gpu
from tests.sampling import rounds

MODELS = [gpu for gpu in GPUS if gpu.processor not in NO_MODEL]
CLANG_19 = ROOT / "tests" / "data" / "rocm" / "clang19"
FORKED = "start workers with the spawn method"


@pytest.fixture
def machine(machine_with: Callable[[str], Machine]) -> Machine:
    return machine_with("gfx1100")


@pytest.mark.drawn(0.34)
@pytest.mark.parametrize("gpu", MODELS, ids=lambda gpu: gpu.processor)
def test_what_is_said_of_the_device(machine_with: Callable[[str], Machine], gpu: Gpu) -> None:
    told = machine_with(gpu.processor).call(backend.device)
    assert told["verdict"] == "ok" and told["reason"].startswith("1 device, HSA 1.")
    (description,) = told["devices"]
    assert description.startswith(f"{gpu.target}, ")
    assert description.endswith(f", {gpu.compute_units} compute units")
    limits = (told["warp"], told["processors"], told["shared"], told["threads"])
    assert limits == (gpu.wavefront, gpu.compute_units, 65536, 1024)
    assert told["total"] == gpu.memory_gib << 30
    attributes = told["attributes"]
    assert attributes["HSA_AMD_AGENT_INFO_CHIP_ID"] == gpu.device_id
    assert attributes["HSA_AGENT_INFO_ISA"].startswith(gpu.target)


def test_doctor(machine: Machine) -> None:
    told = machine.call(backend.doctor)
    (record,) = (one for one in told["records"] if one["name"] == "rocm")
    assert (record["verdict"], record["path"]) == ("ok", machine.environment["UHAL_ROCM_LIBRARY"])
    assert [one["name"] for one in record["devices"]] == ["gfx1100"]
    (check,) = (one for one in told["checks"] if one["backend"] == "rocm")
    # Copies work, but the kernel does not run, so its result is wrong.
    assert not check["right"] and check["result"].startswith("kernel WRONG: ")


def test_the_runtime_is_initialised_once(machine: Machine) -> None:
    """A second initialisation after a shutdown would abort the process on a model."""
    machine.call(backend.probe_and_open)


def test_conformance_takes_its_target_from_the_device(
    machine_with: Callable[[str], Machine],
) -> None:
    for processor in ("gfx942", "gfx1201"):
        assert machine_with(processor).call(rows.rocm_target, 0) == processor


def test_a_forked_child_is_told(machine: Machine) -> None:
    asked, opened = machine.call(backend.fork, PYTHONWARNINGS="ignore")
    assert FORKED in asked
    assert "initialised before fork" in opened


def test_streams_and_events(machine: Machine) -> None:
    left = machine.call(backend.streams)
    assert {kind: count for kind, count in left.items() if count} == {}


def test_memory(machine: Machine, seed: int) -> None:
    machine.call(backend.memory, seed)


@pytest.mark.drawn(0.34)
@pytest.mark.parametrize("gpu", MODELS, ids=lambda gpu: gpu.processor)
def test_copies_between_host_and_device(
    machine_with: Callable[[str], Machine], gpu: Gpu, rng: np.random.Generator, seed: int
) -> None:
    # Pageable memory is copied through pinned pieces of 64 KiB, and is itself pinned from 1 MiB on.
    sizes = [1, 65536, 65537, 1 << 20, *(int(one) for one in rng.integers(1, 1 << 22, 4))]
    assert machine_with(gpu.processor).call(backend.copies, sizes, seed) == 0


@pytest.mark.drawn(0.34)
@pytest.mark.parametrize("gpu", MODELS, ids=lambda gpu: gpu.processor)
def test_our_modules(machine_with: Callable[[str], Machine], gpu: Gpu) -> None:
    names = list(ubridge.modules())
    chosen = names[:: rounds(6, 1)]
    assert machine_with(gpu.processor).call(backend.modules, chosen) > len(chosen)


def test_a_name_that_is_none(machine: Machine) -> None:
    kernel, variable = machine.call(backend.missing, str(CLANG_19 / "gfx1100_v5.hsaco"), "saxpi")
    assert "has no kernel 'saxpi'" in kernel and "saxpy" in kernel
    assert "HSA_STATUS_ERROR_INVALID_SYMBOL_NAME (4115)" in variable
    assert ADVICE["HSA_STATUS_ERROR_INVALID_SYMBOL_NAME"] in variable
    for cause in ("spelled", "NAME.kd", ".symtab", "--strip-all", "hidden visibility"):
        assert cause in variable


@pytest.mark.drawn(0.34)
@pytest.mark.parametrize("gpu", MODELS, ids=lambda gpu: gpu.processor)
def test_launches_arrive_as_the_metadata_says(
    machine_with: Callable[[str], Machine], gpu: Gpu, seed: int
) -> None:
    images = [str(path) for path in sorted(CLANG_19.glob(f"{gpu.processor}_v*.hsaco"))]
    assert machine_with(gpu.processor).call(backend.launches, images, seed) == 80


def test_plans_write_the_packets_of_what_they_recorded(machine: Machine, seed: int) -> None:
    image: Path = CLANG_19 / "gfx1100_v5.hsaco"
    assert machine.call(backend.graph, str(image), seed) == 120


def test_kernels_of_ours_are_launched_without_complaint(machine: Machine) -> None:
    names = list(ubridge.modules())
    assert machine.call(backend.every_first_kernel, names) == len(names)
