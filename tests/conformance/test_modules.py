"""Modules: kernels of an image, missing kernels, globals, and lifetimes."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uhal import Device, DeviceBuffer, Function, Module, Signature, Stream, diagnostics
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    InvalidImageError,
    NotFoundError,
)
from uhal_conformance.gate import Gate

Images = Callable[[str], Path]


def test_a_module_tells_its_kernels(device: Device, basic: Module) -> None:
    assert {"saxpy", "fill", "where", "nothing", "echo_f32"} <= set(basic.kernels)
    assert len(basic.kernels) == 24
    assert basic.device == device
    saxpy = basic.get_function("saxpy")
    assert isinstance(saxpy, Function)
    assert (saxpy.name, saxpy.device) == ("saxpy", device)
    assert saxpy.signature is not None
    assert saxpy.signature.declaration == "u64 n, f32 a, const f32* x, f32* y"
    assert basic.get_function("nothing").signature == Signature([], "nothing")
    assert basic.get_function("saxpy") is saxpy
    assert basic.chosen.description
    assert basic.chosen.reason


def test_images_come_from_files_and_bytes(device: Device, image: Images) -> None:
    data = image("globals").read_bytes()
    for module in (
        Module.from_bytes(data),
        Module.from_bytes(bytearray(data)),
        Module.from_bytes(memoryview(data)),
        Module.from_file(str(image("globals"))),
        Module.from_file(image("globals"), device=device),
    ):
        with module:
            assert set(module.kernels) == {"read_table", "count", "who"}
        assert module.closed


def test_what_is_missing_is_named_with_what_is_close(device: Device, basic: Module) -> None:
    with pytest.raises(NotFoundError, match=r"no kernel 'saxpi'.*saxpy"):
        basic.get_function("saxpi")
    with pytest.raises(KeyError):
        basic.get_function("")
    with pytest.raises(ArgumentTypeError, match="name: expected a str"):
        basic.get_function(None)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="table"):
        basic.get_global("table")
    with pytest.raises(FileNotFoundError):
        Module.from_file("/nowhere/at.all")


def test_a_declared_signature_must_agree_with_the_image(device: Device, basic: Module) -> None:
    named = basic.get_function("saxpy", "u64 n, f32 a, const f32* x, f32* y")
    assert named.signature is not None
    for wrong in (
        "u32 n, f32 a, const f32* x, f32* y",
        "u64 n, f32 a, const f32* x",
        "u64 n, f32 a, f32 x, f32* y",
        "u64 n, f32 a, const f64* x, f32* y",
        "not a signature",
    ):
        with pytest.raises(ArgumentValueError):
            basic.get_function("saxpy", wrong)
    with pytest.raises(ArgumentTypeError):
        basic.get_function("saxpy", 5)  # type: ignore[arg-type]


def test_a_sidecar_file_is_read(device: Device, image: Images, tmp_path: Path) -> None:
    copy = tmp_path / "kernels.so"
    copy.write_bytes(image("basic").read_bytes())
    sidecar = tmp_path / "kernels.so.sig"
    sidecar.write_text("# mine\nfill: u64 n, u32 value, u32* out\n")
    with Module.from_file(copy) as module:
        assert module.get_function("fill").signature is not None
    sidecar.write_text("fill: u64 n, f32 value, u32* out\n")
    before = diagnostics()["native"]
    with Module.from_file(copy) as module, pytest.raises(ArgumentValueError, match="fill"):
        module.get_function("fill")
    sidecar.write_text("fil: u64 n\n")
    with pytest.raises(NotFoundError, match="fill"):
        Module.from_file(copy)
    assert diagnostics()["native"] == before


IMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "one byte": lambda data: b"\x7f",
    "text": lambda data: b"not an image at all\n" * 10,
    "header only": lambda data: data[:64],
    "first half": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "wrong class": lambda data: data[:4] + b"\1" + data[5:],
    "wrong machine": lambda data: data[:18] + b"\xf3\0" + data[20:],
    "wrong type": lambda data: data[:16] + b"\1\0" + data[18:],
    "no sections": lambda data: data[:0x28] + b"\xff" * 8 + data[0x30:],
    "reversed": lambda data: data[::-1],
}


@pytest.mark.parametrize("damage", IMAGES)
def test_what_is_no_image_is_refused(device: Device, image: Images, damage: str) -> None:
    before = diagnostics()["native"]
    with pytest.raises(InvalidImageError):
        Module.from_bytes(IMAGES[damage](image("globals").read_bytes()))
    assert diagnostics()["native"] == before
    with pytest.raises(ArgumentTypeError, match="image: expected bytes"):
        Module.from_bytes("x")  # type: ignore[arg-type]


def test_globals_are_buffers(device: Device, image: Images, rng: np.random.Generator) -> None:
    with Module.from_file(image("globals")) as module:
        table = module.get_global("table", "f32")
        assert (table.size, str(table.dtype)) == (64, "f32")
        values = rng.standard_normal(64).astype("f4")
        table.copy_from(values)
        out = DeviceBuffer.zeros(64, "f32")
        module.get_function("read_table")[1, 64](out)
        assert np.array_equal(out.to_numpy(), values)
        counter = module.get_global("counter", "u64")
        assert counter.to_numpy().tolist() == [0]
        count = module.get_function("count")
        for by in (1, 2, 39):
            count[1, 1](by)
        assert counter.to_numpy().tolist() == [42]
        assert module.get_global("table").size == 256


def test_globals_are_written(device: Device, image: Images, rng: np.random.Generator) -> None:
    with Module.from_file(image("globals")) as module:
        values = rng.standard_normal(64).astype("f4")
        module.write_global("table", values.tobytes())
        module.write_global("table", b"")
        out = DeviceBuffer.zeros(64, "f32")
        module.get_function("read_table")[1, 64](out)
        assert np.array_equal(out.to_numpy(), values)
        module.write_global("counter", (7).to_bytes(2, "little"))
        module.get_function("count")[1, 1](3)
        assert module.get_global("counter", "u64").to_numpy().tolist() == [10]
        with pytest.raises(ArgumentValueError, match="global 'counter' has 8 bytes, got 9"):
            module.write_global("counter", bytes(9))
        with pytest.raises(NotFoundError, match="nowhere"):
            module.write_global("nowhere", b"1")


def test_modules_of_one_image_and_of_one_name_do_not_mix(device: Device, image: Images) -> None:
    modules = [Module.from_file(image(name)) for name in ("globals", "globals", "twin", "twin")]
    out = DeviceBuffer.zeros(4, "u32")
    for number, (module, value) in enumerate(zip(modules, (1, 1, 2, 2), strict=True)):
        module.get_function("who")[1, 4](out)
        assert out.to_numpy().tolist() == [value] * 4
        module.get_function("count")[1, 1](number + 1)
    found = [int(module.get_global("counter", "u64").to_numpy()[0]) for module in modules]
    assert found == [1, 2, 3000, 4000]
    for module in modules:
        module.close()


def test_a_closed_module_is_refused_in_all_it_gave(device: Device, image: Images) -> None:
    module = Module.from_file(image("globals"))
    count = module.get_function("count")
    bound = count[1, 1]
    module.close()
    module.close()
    acts: list[Callable[[], Any]] = [
        lambda: module.get_function("who"),
        lambda: module.get_global("counter"),
        lambda: count[1, 1],
        lambda: bound(1),
        lambda: count.max_active_blocks(32),
    ]
    for act in acts:
        with pytest.raises(InvalidHandleError, match="closed"):
            act()
    assert "closed" in repr(module)


def test_a_module_may_be_closed_while_its_kernels_are_pending(
    device: Device, image: Images, gate: Callable[[], Gate]
) -> None:
    """NVIDIA's driver waits for the kernels when it unloads a module; other threads go on."""
    module = Module.from_file(image("globals"))
    who = module.get_function("who")
    out = DeviceBuffer.zeros(4, "u32")
    with Stream() as stream:
        barrier = gate()
        barrier.hold(stream)
        for _ in range(10):
            who[1, 4, 0, stream](out)
        closing = threading.Thread(target=module.close)
        closing.start()
        while not module.closed:
            time.sleep(0)
        barrier.open()
        closing.join()
        del module, who
        gc.collect()
        stream.synchronize()
        assert out.to_numpy().tolist() == [1] * 4


def test_a_function_keeps_its_module_loaded(device: Device, image: Images) -> None:
    def get() -> Function:
        return Module.from_file(image("globals")).get_function("who")

    who = get()
    bound = get()[1, 4]
    gc.collect()
    out = DeviceBuffer.zeros(4, "u32")
    who[1, 4](out)
    assert out.to_numpy().tolist() == [1] * 4
    bound(out)
    counter = Module.from_file(image("globals")).get_global("counter", "u64")
    gc.collect()
    assert counter.to_numpy().tolist() == [0]


def test_attributes_and_occupancy(device: Device, basic: Module) -> None:
    for name in basic.kernels:
        function = basic.get_function(name)
        attributes = function.attributes
        assert 1 <= attributes.max_threads_per_block <= device.limits.max_threads_per_block
        assert function.max_active_blocks(attributes.max_threads_per_block) >= 1
    fill = basic.get_function("fill")
    assert fill.max_active_blocks((8, 8), 1024) >= 1
    with pytest.raises(ArgumentValueError, match="block x: expected an int in 1…"):
        fill.max_active_blocks(0)
    with pytest.raises(ArgumentValueError, match="shared"):
        fill.max_active_blocks(32, 10**9)


def test_names_that_are_no_c_names_are_not_found(device: Device, basic: Module) -> None:
    for name in ("sax py", "säxpy", "saxpy\0", "a" * 10_000, "uhal_host_module"):
        with pytest.raises((NotFoundError, DeviceError)):
            basic.get_function(name)


def test_names_of_globals_end_nowhere_else(device: Device, image: Images) -> None:
    with Module.from_file(image("globals"), device=device) as module:
        for name in ("table\0", "table\0x", "tab\0le", "täble", "table\ud800", "a" * 10_000, ""):
            with pytest.raises((NotFoundError, DeviceError)):
                module.get_global(name)
            with pytest.raises((NotFoundError, DeviceError)):
                module.write_global(name, b"1234")
