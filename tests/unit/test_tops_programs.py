"""Whole programs on a fake libtopsrt, each in its own process."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulators.topsfb.writer import Gcu, topsfb
from tests.children import check_child
from tests.fake_libtopsrt import Fake, build, newer_functions
from uhal.errors import NotSupportedError

KERNELS = {
    "fill_f32": ["float*", "int", "float"],
    "uexp_f32": ["size_t", "float*", "float*"],
    "mine": ["Point*", "int"],
}


def test_a_program_on_a_gcu(tmp_path: Path) -> None:
    library = build(tmp_path)
    (tmp_path / "fill.topsfb").write_bytes(topsfb(Gcu(KERNELS, "gcu200"), Gcu(KERNELS)))
    run(program, library)


def test_the_same_on_the_older_library(tmp_path: Path) -> None:
    library = build(tmp_path, without=newer_functions())
    (tmp_path / "fill.topsfb").write_bytes(topsfb(Gcu(KERNELS)))
    run(program, library)
    run(no_extended_launch, library)


@pytest.mark.parametrize("nbytes", [72, 64])
def test_cooperative_launches_in_both_readings(nbytes: int, tmp_path: Path) -> None:
    library = build(tmp_path)
    (tmp_path / "fill.topsfb").write_bytes(topsfb(Gcu(KERNELS)))
    told = {} if nbytes == 72 else {"UHAL_TOPS_LAUNCH_CONFIG": str(nbytes)}
    run(cooperative, library, nbytes, **told)


def test_two_devices(tmp_path: Path) -> None:
    run(two_devices, build(tmp_path))


def test_a_library_that_lacks_what_is_needed(tmp_path: Path) -> None:
    run(no_events, build(tmp_path, without=["topsEventElapsedTime", "topsMallocAsync"]))


def run(function: object, library: Path, *arguments: object, **environment: str) -> None:
    """Run one of the programs below on a library; it must succeed and print nothing."""
    assert callable(function)
    said = check_child(
        function,
        str(library),
        *arguments,
        environment={"UHAL_TOPS_LIBRARY": str(library), **environment},
    )
    assert said == ""


def program(path: str) -> None:
    import numpy as np

    import uhal
    from tops_backend import TopsApi, TopsDeviceBuffer, TopsModule, TopsStream  # type: ignore

    fake = Fake(Path(path))
    device = TopsApi.quick_init()
    assert device.backend == "tops" and device.name == "Fake GCU"
    module = TopsModule.from_file(Path(path).with_name("fill.topsfb"))
    assert module.kernels == ("fill_f32", "uexp_f32", "mine")
    assert str(module.chosen).startswith("GCU image for gcu300")
    fill = module.get_function("fill_f32")
    stream = TopsStream(uhal.StreamFlags.NON_BLOCKING)
    assert isinstance(stream, uhal.Stream) and fake.flags == 1
    out = TopsDeviceBuffer.zeros(100, "f32")
    config = uhal.LaunchConfig.for_num_elems(100)
    assert (config.grid, config.block) == ((2,), (12,))
    fill[config.grid, config.block, 8192, stream](out, 100, 2.5)
    assert fake.launched == [2, 1, 1, 12, 1, 1, 8192, 0]
    assert fake.launched_stream == stream.handle
    stream.synchronize()
    assert np.array_equal(out.to_numpy(), np.full(100, 2.5, np.float32))
    refused = (
        ((2, 13), "expected"),
        ((1 << 31, 1), "expected"),
        ((2, 12, (60 << 20) + 1), "expected"),
    )
    for geometry, words in refused:
        try:
            fill[geometry](out, 100, 1.0)
        except uhal.ArgumentValueError as error:
            assert words in str(error) and "not launched" in str(error)
        else:
            raise AssertionError(geometry)
    try:
        fill[2, 12](out, 1 << 31, 1.0)
    except uhal.ArgumentRangeError as error:
        assert "argument 1 'total_size' (i32)" in str(error)
    else:
        raise AssertionError("a number that does not fit")
    native = TopsDeviceBuffer.uninitialized_async(64, "f32", stream, native=True)
    assert fake.flags == 0 and native.size == 64
    native.close()
    event = uhal.Event()
    event.record(stream)
    event.synchronize()
    called: list[int] = []
    stream.add_callback(lambda: called.append(1))
    stream.synchronize()
    module.close()
    device.close()


def cooperative(path: str, nbytes: int) -> None:
    import uhal

    fake = Fake(Path(path))
    fake.read_config_of(nbytes)
    uhal.Api.quick_init(0, "tops")
    module = uhal.Module.from_file(Path(path).with_name("fill.topsfb"))
    fill = module.get_function("fill_f32")
    stream = uhal.Stream()
    out = uhal.DeviceBuffer.zeros(4, "f32")
    config = uhal.LaunchConfig((2,), (12,), 4096, cooperative=True)
    uhal.launch(fill, config=config, args=(out, 4, 1.0), stream=stream)
    assert fake.launched == [2, 1, 1, 12, 1, 1, 4096, 1]
    assert fake.launched_stream == stream.handle
    assert out.to_numpy().tolist() == [1.0] * 4


def no_extended_launch(path: str) -> None:
    import uhal

    uhal.Api.quick_init(0, "tops")
    module = uhal.Module.from_file(Path(path).with_name("fill.topsfb"))
    fill = module.get_function("fill_f32")
    out = uhal.DeviceBuffer.zeros(4, "f32")
    config = uhal.LaunchConfig((2,), (12,), cooperative=True)
    try:
        uhal.launch(fill, config=config, args=(out, 4, 1.0))
    except NotSupportedError as error:
        assert "cooperative: this tops driver has no launch" in str(error)
    else:
        raise AssertionError("launched")


def two_devices(path: str) -> None:
    import numpy as np

    import uhal

    Fake(Path(path)).be(devices=2)
    first, second = uhal.Device(0, "tops"), uhal.Device(1, "tops")
    values = np.arange(10, dtype=np.float32)
    with second:
        there = uhal.DeviceBuffer.from_numpy(values)
    with first:
        here = uhal.DeviceBuffer.zeros(10, "f32")
        here.copy_from(there)
        assert np.array_equal(here.to_numpy(), values)


def no_events(path: str) -> None:
    import uhal

    uhal.Api.quick_init(0, "tops")
    assert uhal.DeviceBuffer.uninitialized_async(4, "f32", uhal.Stream()).size == 4
    before, after = uhal.Event(), uhal.Event()
    before.record()
    after.record()
    try:
        after.elapsed_since(before)
    except NotSupportedError as error:
        assert "topsEventElapsedTime: UHAL_TOPS_FUNCTION_MISSING" in str(error)
    else:
        raise AssertionError("a time")
