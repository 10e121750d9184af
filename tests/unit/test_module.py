"""Finding kernels and globals in a module, and signatures from beside its file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.counting_driver import CountingDriver
from uhal import Module, Signature
from uhal.contract import Chosen, LoadedModule
from uhal.device import Device
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    InvalidImageError,
    NotFoundError,
)
from uhal.signature import Parameter

MISSING = 1


class ImageDriver(CountingDriver):
    """A driver whose every image holds two kernels and a global of 12 bytes."""

    loads = 0
    kernels: tuple[str, ...] = ()

    def module_load(self, ordinal: int, image: bytes, *, path: Path | None = None) -> LoadedModule:
        self.loads += 1
        described = [
            Parameter(0, size=8, offset=0, source="image"),
            Parameter(1, "x", "pointer", 8, 8, source="image"),
        ]
        signatures = {"saxpy": Signature(described, "saxpy"), "fill": Signature([], "fill")}
        signatures |= {name: Signature([], name) for name in self.kernels}
        return LoadedModule(0xBEEF, Chosen("k.so", "the only one"), signatures)

    def module_global(self, module: int, name: str) -> tuple[int, int]:
        return (0x4000, 12)


@pytest.fixture
def driver() -> ImageDriver:
    return ImageDriver()


@pytest.fixture
def device(driver: ImageDriver) -> Iterator[Device]:
    context = driver.open_context()
    yield context.device
    context.close()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "k.so"
    path.write_bytes(b"image")
    return path


def test_kernels_in_the_images_order(device: Device) -> None:
    with Module.from_bytes(b"image", device=device) as module:
        assert module.kernels == ("saxpy", "fill")
        assert str(module.chosen) == "k.so: the only one"
        assert module.device == device
        function = module.get_function("fill")
        assert module.get_function("fill") is function
        assert function.name == "fill"


def test_a_caller_may_say_why_the_file_was_chosen(device: Device, image: Path) -> None:
    chosen = Chosen("k.so for avx2", "the best this CPU runs")
    assert Module.from_file(image, device=device, chosen=chosen).chosen is chosen


def test_signatures_come_from_the_image_the_sidecar_and_the_caller(
    device: Device, image: Path
) -> None:
    bare = Module.from_file(image, device=device)
    assert bare.get_function("saxpy").signature.declaration == "unknown[8], ptr x"
    told = bare.get_function("saxpy", "u64 n, f32* x")
    assert told.signature.declaration == "u64 n, f32* x"
    assert bare.get_function("saxpy") is not told

    image.with_name("k.so.sig").write_text("saxpy: u64 n, const f32* x\n")
    beside = Module.from_file(image, device=device).get_function("saxpy")
    assert beside.signature.declaration == "u64 n, const f32* x"
    assert "from k.so.sig" in str(beside.signature)


@pytest.mark.parametrize(
    ("sidecar", "error", "words"),
    [
        ("saxpy: u65 n", ArgumentValueError, "k.so.sig, line 1: signature of saxpy, parameter 0"),
        ("sazpy: ptr x", NotFoundError, "describes 'sazpy', which .*; did you mean saxpy?"),
    ],
)
def test_a_wrong_sidecar_unloads_the_module(
    device: Device,
    driver: ImageDriver,
    image: Path,
    sidecar: str,
    error: type[Exception],
    words: str,
) -> None:
    image.with_name("k.so.sig").write_text(sidecar)
    with pytest.raises(error, match=words):
        Module.from_file(image, device=device)
    assert driver.count("module_unload") == driver.loads


def test_a_sidecar_that_contradicts_the_image_is_named_with_the_kernel(
    device: Device, driver: ImageDriver, image: Path
) -> None:
    image.with_name("k.so.sig").write_text("saxpy: u32 n, ptr x\n")
    module = Module.from_file(image, device=device)
    for _ in range(2):
        with pytest.raises(ArgumentValueError, match=r"saxpy: .* they differ in size"):
            module.get_function("saxpy")
    assert module.get_function("fill").name == "fill"


def test_a_missing_kernel_names_close_ones(device: Device, driver: ImageDriver) -> None:
    module = Module.from_bytes(b"image", device=device)
    driver.failures["get_function"] = [MISSING, MISSING]
    with pytest.raises(NotFoundError, match=r"k\.so has no kernel 'saxpi'; did you mean saxpy\?"):
        module.get_function("saxpi")
    with pytest.raises(KeyError, match="has no kernel 'zzz'; it has saxpy, fill"):
        module.get_function("zzz")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ns::k", "_ZN2ns1kEPfi"),
        ("ns::k(float *, int)", "_ZN2ns1kEPfi"),
        ("::plus", "_Z4plusPf"),
        ("ns::twice<float>", "_ZN2ns5twiceIfEEvPT_"),
    ],
)
def test_a_name_in_cpp_points_at_the_symbol(
    device: Device, driver: ImageDriver, name: str, found: str
) -> None:
    driver.kernels = ("_ZN2ns1kEPfi", "_ZN2ns2kkEPfi", "_Z4plusPf", "_ZN2ns5twiceIfEEvPT_")
    module = Module.from_bytes(b"image", device=device)
    driver.failures["get_function"] = [MISSING]
    with pytest.raises(NotFoundError, match=rf"no kernel .*; did you mean {found}\?"):
        module.get_function(name)


@pytest.mark.parametrize("name", ["g\0x", "\0", "g\ud800"])
def test_a_name_that_no_driver_can_be_asked_for_is_not_found(
    device: Device, driver: ImageDriver, name: str
) -> None:
    module = Module.from_bytes(b"image", device=device)
    for look in (
        module.get_function,
        module.get_global,
        lambda name: module.write_global(name, b"1"),
    ):
        with pytest.raises(NotFoundError, match=r"has no (kernel|global)"):
            look(name)
    assert driver.count("get_function") == 0


def test_only_files_are_read(device: Device, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, kind in (
        (tmp_path, "a folder"),
        (tmp_path / "fifo", "a FIFO"),
        (Path("/dev/zero"), "a device"),
    ):
        with pytest.raises(InvalidImageError, match=f"^{path}: expected a file, got {kind}"):
            Module.from_file(path)
    with pytest.raises(FileNotFoundError, match="nothing"):
        Module.from_file(tmp_path / "nothing")


def test_a_path_with_a_nul_is_refused(device: Device) -> None:
    with pytest.raises(ArgumentValueError, match="from_file, path: expected no NUL"):
        Module.from_file("k.so\0", device=device)


SIDECAR = "# größer\nfill:\nsaxpy: u64 n, f32* x\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_sidecar_is_read_in_every_encoding_that_editors_write(
    device: Device, image: Path, encoding: str
) -> None:
    image.with_name("k.so.sig").write_text(SIDECAR, encoding=encoding)
    module = Module.from_file(image, device=device)
    signature = module.get_function("saxpy").signature
    assert signature is not None
    assert signature.declaration == "u64 n, f32* x"


@pytest.mark.parametrize("content", [SIDECAR.encode("latin-1"), b"\xff\xfeodd", b"fill: \x80\n"])
def test_a_sidecar_of_other_bytes_is_refused_by_its_name(
    device: Device, driver: ImageDriver, image: Path, content: bytes
) -> None:
    image.with_name("k.so.sig").write_bytes(content)
    with pytest.raises(ArgumentValueError, match=r"k\.so\.sig: expected text in UTF-8, got the"):
        Module.from_file(image, device=device)
    assert driver.count("module_unload") == driver.loads


def test_another_failure_is_not_called_a_missing_kernel(
    device: Device, driver: ImageDriver
) -> None:
    module = Module.from_bytes(b"image", device=device)
    driver.failures["get_function"] = [400]
    with pytest.raises(InvalidHandleError, match="INVALID_HANDLE"):
        module.get_function("saxpy")


def test_a_global_is_a_buffer(device: Device) -> None:
    module = Module.from_bytes(b"image", device=device)
    assert (module.get_global("g").size, module.get_global("g", "f32").size) == (12, 3)
    with pytest.raises(ArgumentValueError, match="global 'g' has 12 bytes, no multiple of the 8"):
        module.get_global("g", "f64")


def test_a_closed_module_is_refused(device: Device) -> None:
    module = Module.from_bytes(b"image", device=device)
    module.get_function("saxpy")
    module.close()
    module.close()
    assert module.closed
    for act in (lambda: module.get_function("saxpy"), lambda: module.get_global("g")):
        with pytest.raises(InvalidHandleError, match="the module is closed"):
            act()


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda device: Module.from_bytes("text", device=device), "image: expected bytes, got str"),
        (
            lambda device: Module.from_bytes(b"", device=3),
            "device: expected a uhal.Device, got int",
        ),
        (
            lambda device: Module.from_bytes(b"", device=device).get_function(3),
            "get_function, name: expected a str, got int 3",
        ),
        (
            lambda device: Module.from_bytes(b"", device=device).get_function("fill", 3),
            "get_function, signature: expected a str or Signature, got int 3",
        ),
        (
            lambda device: Module.from_bytes(b"", device=device).get_global(5),
            "get_global, name: expected a str, got int 5",
        ),
        (
            lambda device: Module.from_bytes(b"", device=device).write_global(b"g", b""),
            "write_global, name: expected a str, got bytes",
        ),
        (
            lambda device: Module.from_bytes(b"", device=device).write_global("g", 5),
            "write_global, value: expected bytes, got int 5",
        ),
        (
            lambda device: Module.from_file(5, device=device),
            "from_file, path: expected a str or a path, got int$",
        ),
    ],
)
def test_wrong_kinds_are_refused(device: Device, act: object, words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=words):
        act(device)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        ("unknown n", "fill: the size of parameter 0 is unknown"),
        ("bytes[4097] s", "fill takes 4097 bytes of parameters; the device takes at most 4096"),
    ],
)
def test_parameters_that_cannot_be_passed_are_refused(signature: str, words: str) -> None:
    # This driver's images do not list their kernels.
    context = CountingDriver().open_context()
    module = Module.from_bytes(b"", device=context.device)
    assert module.kernels == ()
    assert module.get_function("fill").signature is None
    with pytest.raises(DeviceError, match=words):
        module.get_function("fill", signature)
    context.close()
