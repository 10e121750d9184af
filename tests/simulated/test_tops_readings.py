"""uhal on undocumented behaviour of TopsRuntime, in each possible interpretation.

A reading is a setting of the simulated runtime; some readings also need a backend variable.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from simulators.topsfb.writer import Gcu, topsfb
from tests.children import check_child
from tests.requirements import missing
from tests.simulated.tops_runtime import NEWER, OLDER, SETTINGS
from uhal import (
    Api,
    Device,
    DeviceBuffer,
    LaunchConfig,
    Module,
    Stream,
    registry,
)
from uhal.errors import ArgumentValueError, DeviceError, InvalidHandleError, NotSupportedError

TARGETS = ("gcu200", "gcu210", "gcu300", "gcu400")
FILL = ["float*", "int", "float"]


def run(check: Callable[..., None], *arguments: object, library: str = "", **settings: str) -> None:
    if not NEWER.is_file():
        missing("the simulated runtime is not built: make simulators")
    environment = {**SETTINGS, "UHAL_TOPS_LIBRARY": library or str(NEWER)}
    check_child(check, *arguments, environment=environment | settings)


def fill(parameters: list[str] = FILL) -> Any:
    images = (Gcu({"fill_f32": parameters}, target) for target in TARGETS)
    return Module.from_bytes(topsfb(*images)).get_function("fill_f32")


def check_fill(config: Any, kernel: Any = None) -> None:
    out = DeviceBuffer.zeros(1000, "f32")
    value = float(np.float32(np.random.default_rng().standard_normal()))
    (kernel or fill())[config](out, 1000, value)
    assert (out.to_numpy() == np.float32(value)).all()


# -- the form of launches --------------------------------------------------------------------------


def launches_work() -> None:
    Api.quick_init(0, "tops")
    check_fill(LaunchConfig(2, 12))
    check_fill(LaunchConfig(2, 12, cooperative=True))
    with Stream() as stream:
        out = DeviceBuffer.zeros(10, "f32", stream=stream)
        fill()[LaunchConfig(2, 12, cooperative=True), stream](out, 10, 3.0)
        assert out.to_numpy(stream=stream).tolist() == [3.0] * 10


def launches_are_refused() -> None:
    Api.quick_init(0, "tops")
    with pytest.raises((ArgumentValueError, InvalidHandleError)):
        check_fill(LaunchConfig(2, 12, cooperative=True))


@pytest.mark.parametrize("size", ["72", "64"])
def test_the_launch_configuration_has_72_or_64_bytes(size: str) -> None:
    other = "64" if size == "72" else "72"
    run(launches_work, UHAL_SIM_TOPS_LAUNCH_CONFIG=size, UHAL_TOPS_LAUNCH_CONFIG=size)
    run(launches_are_refused, UHAL_SIM_TOPS_LAUNCH_CONFIG=size, UHAL_TOPS_LAUNCH_CONFIG=other)


def plain_launches_are_refused() -> None:
    Api.quick_init(0, "tops")
    with pytest.raises(ArgumentValueError, match="kernelParams is not implemented"):
        check_fill(LaunchConfig(2, 12))


@pytest.mark.parametrize("taken", ["both", "extra"])
def test_parameters_go_as_pointers_or_in_a_block(taken: str) -> None:
    run(launches_work, UHAL_SIM_TOPS_PARAMETERS=taken, UHAL_TOPS_PARAMETERS="block")
    check = launches_work if taken == "both" else plain_launches_are_refused
    run(check, UHAL_SIM_TOPS_PARAMETERS=taken, UHAL_TOPS_PARAMETERS="pointers")


def many_functions_keep_their_layouts() -> None:
    Api.quick_init(0, "tops")
    for _ in range(300):
        check_fill(LaunchConfig(2, 12))


def test_blocks_of_parameters_follow_functions_that_come_and_go() -> None:
    run(many_functions_keep_their_layouts, UHAL_TOPS_PARAMETERS="block")


# -- pointers --------------------------------------------------------------------------------------


def an_address_in_an_integer(handles_work: bool) -> None:
    device = Api.quick_init(0, "tops")
    kernel = fill(["size_t", "int", "float"])
    assert kernel.signature.declaration == "u64, i32, f32"
    check_fill(LaunchConfig(2, 12))
    out = DeviceBuffer.zeros(100, "f32")
    handle = int(out.as_device_ptr())
    address = registry.backend("tops").device_address(handle)  # type: ignore[attr-defined]
    kernel[2, 12](address, 100, 4.0)
    assert (out.to_numpy() == 4).all()
    kernel[2, 12](handle, 100, 5.0)
    if handles_work:
        assert (out.to_numpy() == 5).all()
    else:
        with pytest.raises(DeviceError, match="fill_f32"):
            device.synchronize()


@pytest.mark.drawn(3)
@pytest.mark.parametrize("width", ["exact", "wide"])
@pytest.mark.parametrize("converted", ["buffers", "all"])
@pytest.mark.parametrize("pointers", ["handles", "addresses"])
def test_addresses_inside_integers(pointers: str, converted: str, width: str) -> None:
    run(
        an_address_in_an_integer,
        pointers == "addresses" or converted == "all",
        UHAL_SIM_TOPS_POINTERS=pointers,
        UHAL_SIM_TOPS_CONVERTED=converted,
        UHAL_SIM_TOPS_ATTRIBUTES=width,
    )


# -- devices ---------------------------------------------------------------------------------------


def a_device_is(target: str, clusters: int, sips: int, name: str) -> None:
    device = Api.quick_init(0, "tops")
    limits = device.limits
    assert device.attributes["gcuArchName"] == target
    assert (limits.processors, limits.block_for_elements) == (clusters, sips)
    assert device.name == f"uhal simulated {name}"
    assert re.fullmatch(r"0000:01:00\.0", str(device.attributes["PCI_BUS_ADDRESS"]))
    check_fill(LaunchConfig.for_num_elems(1000))
    assert LaunchConfig.for_num_elems(10**6) == LaunchConfig((clusters,), (sips,))
    with pytest.raises(ArgumentValueError, match=r"expected an int in 1…\d+, got 1025"):
        fill()[1, 1025]


@pytest.mark.drawn(3)
@pytest.mark.parametrize("told", ["told", "zero"])
@pytest.mark.parametrize("grew", ["end", "middle"])
@pytest.mark.parametrize("library", [NEWER, OLDER])
def test_the_properties_of_a_device(library: Any, grew: str, told: str) -> None:
    settings = {"UHAL_SIM_TOPS_PROPERTIES": grew, "UHAL_SIM_TOPS_SIP_COUNT": told}
    run(a_device_is, "gcu300", 2, 12, "S60", library=str(library), **settings)


@pytest.mark.parametrize("sips", [6, 12])
def test_a_gcu210_has_6_or_12_sips(sips: int) -> None:
    settings = {"UHAL_SIM_TOPS_PROFILE": "i20", "UHAL_SIM_TOPS_SIPS": str(sips)}
    run(a_device_is, "gcu210", 2, sips, "i20", **settings)


def test_a_gcu200() -> None:
    run(a_device_is, "gcu200", 4, 6, "T20", UHAL_SIM_TOPS_PROFILE="T20")


def sips_have_threads() -> None:
    device = Api.quick_init(0, "tops")
    assert device.limits.max_block == (6, 1, 8)
    assert device.limits.max_threads_per_block == 48
    for block in (6, (6, 1, 8), (1, 1, 1), (3, 1, 2)):
        check_fill(LaunchConfig(4, block))
        check_fill(LaunchConfig(4, block, cooperative=True))
    with pytest.raises(ArgumentValueError, match="block y"):
        fill()[1, (1, 2)]
    with pytest.raises(ArgumentValueError, match="holds 4 blocks"):
        check_fill(LaunchConfig(5, 6, cooperative=True))


@pytest.mark.drawn(2)
@pytest.mark.parametrize("form", ["pointers", "block"])
@pytest.mark.parametrize("size", ["72", "64"])
def test_a_gcu400_is_launched_with_threads_of_its_sips(size: str, form: str) -> None:
    settings = {"UHAL_SIM_TOPS_LAUNCH_CONFIG": size, "UHAL_TOPS_LAUNCH_CONFIG": size}
    settings["UHAL_TOPS_PARAMETERS"] = form
    run(sips_have_threads, UHAL_SIM_TOPS_PROFILE="Libra", **settings)


def blocks_are_long() -> None:
    device = Api.quick_init(0, "tops")
    assert device.limits.max_threads_per_block == 1024
    assert device.limits.block_for_elements == 12
    check_fill(LaunchConfig(3, 1000))


def test_blocks_may_be_longer_than_a_cluster() -> None:
    run(blocks_are_long, UHAL_SIM_TOPS_BLOCK_THREADS="1024")


# -- images, memory, faults ------------------------------------------------------------------------


@pytest.mark.parametrize("taken", ["choose", "first"])
def test_bundles_of_several_images(taken: str) -> None:
    run(launches_work, UHAL_SIM_TOPS_BUNDLES=taken)


def memory_in_stream_order(offered: bool) -> None:
    Api.quick_init(0, "tops")
    with Stream() as stream:
        for native in (False, True):
            try:
                buffer = DeviceBuffer.uninitialized_async(1000, "f32", stream, native=native)
            except NotSupportedError:
                assert native and not offered
                continue
            assert offered or not native
            fill()[2, 12, 0, stream](buffer, 1000, 2.0)
            assert (buffer.to_numpy(stream=stream) == 2).all()


@pytest.mark.parametrize("offered", ["yes", "no"])
def test_streams_allocate_or_not(offered: str) -> None:
    run(memory_in_stream_order, offered == "yes", UHAL_SIM_TOPS_MALLOC_ASYNC=offered)


def a_fault_loses_the_device() -> None:
    device = Api.quick_init(0, "tops")
    kernel = fill(["size_t", "int", "float"])
    kernel[2, 12](4096, 100, 4.0)
    with pytest.raises(DeviceError, match="fill_f32"):
        device.synchronize()
    for act in (device.synchronize, lambda: DeviceBuffer.zeros(1, "u8")):
        with pytest.raises(DeviceError, match="was lost earlier"):
            act()


@pytest.mark.parametrize("told", ["stay", "once"])
def test_a_fault_stays_or_is_told_once(told: str) -> None:
    run(a_fault_loses_the_device, UHAL_SIM_TOPS_FAULTS=told)


def an_image_is_refused(code: int) -> None:
    Api.quick_init(0, "tops")
    with pytest.raises(DeviceError) as caught:
        fill()
    assert caught.value.code == code
    assert type(caught.value).__name__ == "InvalidImageError"


@pytest.mark.drawn(1)
@pytest.mark.parametrize("code", [200, 209, 218])
def test_whatever_code_a_wrong_architecture_has(code: int) -> None:
    run(an_image_is_refused, code, UHAL_SIM_FAIL=f"topsModuleLoadData:1:{code}")


def the_older_library_works() -> None:
    assert Api.quick_init(0, "tops") == Device(0, "tops")
    check_fill(LaunchConfig(2, 12))
    with Stream() as stream:
        called: list[int] = []
        stream.add_callback(lambda: called.append(1))
        stream.synchronize()
    with pytest.raises(NotSupportedError, match="no launch that takes more than geometry"):
        check_fill(LaunchConfig(2, 12, cooperative=True))
    verbs = registry.backend("tops")
    with Stream() as stream:
        with pytest.raises(NotSupportedError, match="it lacks topsStreamBeginCapture, "):
            verbs.begin_capture(stream.handle)
        assert verbs.capture_status(stream.handle) == "none"


def test_the_older_generation() -> None:
    run(the_older_library_works, library=str(OLDER))
