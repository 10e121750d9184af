"""The Tops backend on fake libraries; its tables; its slots."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulators.topsfb.writer import Gcu, bundle, topsfb
from tests.abi_headers import parameter_lists, parameters
from tests.fake_libtopsrt import Fake, build
from tops_backend import TopsBackend, _errors
from tops_backend._library import (
    ADAPTER_OF_SLOT,
    CANDIDATES,
    FUNCTION_OF_SLOT,
    OPTIONAL_SLOTS,
    header,
)
from tops_backend._texts import words_of
from tops_backend.images import select
from uhal import _lane
from uhal.errors import (
    ArgumentValueError,
    DeviceError,
    InvalidImageError,
    LibraryNotFoundError,
    NotFoundError,
    NotSupportedError,
    OutOfMemoryError,
    from_code,
)

KERNELS = {
    "fill_f32": ["float*", "int", "float"],
    "uexp_f32": ["size_t", "float*", "float*"],
    "mine": ["Point*", "int"],
}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return use(build(tmp_path), monkeypatch)


@pytest.fixture
def opened(fake: Fake) -> Iterator[TopsBackend]:
    yield TopsBackend.open()
    assert fake.live == 0


def use(path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setenv("UHAL_TOPS_LIBRARY", str(path))
    return Fake(path)


# -- slots and tables ------------------------------------------------------------------------------


def as_registers(types: tuple[str, ...]) -> list[str]:
    """Types as the calling conventions of x86-64 and aarch64 pass them: a pointer is 64 bits."""
    wide = ["u64" if one.endswith("*") or one == "i64" else one for one in types]
    return ["u32" if one == "i32" else one for one in wide]


def test_every_slot_has_the_prototype_of_its_function() -> None:
    slots = _lane.slot_prototypes()
    assert set(FUNCTION_OF_SLOT) == set(slots) - {
        "prepare_function",
        "copy_peer",
        "stream_progress",
        "stream_synchronize_while",
        "stream_series",
        "event_synchronize_while",
        "graph_update_kernel",
    }
    assert set(ADAPTER_OF_SLOT) < set(FUNCTION_OF_SLOT)
    texts = {
        slot: slots[slot][1].replace("uhal_host_function", "topsHostFn_t")
        for slot in FUNCTION_OF_SLOT
        if slot not in ADAPTER_OF_SLOT
    }
    lists = parameter_lists(Path(__file__).resolve().parents[2] / "tops_backend" / "abi.h", texts)
    compared = 0
    for slot, name in FUNCTION_OF_SLOT.items():
        need, _ = slots[slot]
        assert (slot in OPTIONAL_SLOTS) == (need == "optional"), slot
        if slot in ADAPTER_OF_SLOT:
            continue
        assert as_registers(parameters(header(), name)) == as_registers(lists[slot]), slot
        compared += 1
    assert compared == 26


def test_the_error_table_names_codes_that_exist() -> None:
    codes = {name for name in header().constants if name.startswith("topsError")}
    ours = {_errors.MISSING_NAME}
    assert set(_errors.CLASS_OF) <= codes | ours
    assert set(_errors.ADVICE) <= codes | ours
    assert set(_errors.STICKY) <= codes
    assert len(_errors.STICKY) == len(set(_errors.STICKY)) <= 16
    for advice in _errors.ADVICE.values():
        assert advice and not advice.endswith(".") and "\n" not in advice


def test_every_code_becomes_an_exception(opened: TopsBackend) -> None:
    first: dict[int, str] = {}
    for name, code in header().constants.items():
        if name.startswith("topsError"):
            first.setdefault(code, name)
    for code, name in first.items():
        error = from_code(opened, "topsCall", code)
        assert (error.name, error.code) == (name, code)
        assert str(error).startswith(f"topsCall: {name} ({code}): ")
        assert type(error) is _errors.CLASS_OF.get(name, DeviceError)
    assert "unknown (31415)" in str(from_code(opened, "topsCall", 31415))
    missing = from_code(opened, "topsCall", _errors.MISSING_FUNCTION)
    assert isinstance(missing, NotSupportedError) and "Update TopsRider" in str(missing)


def test_a_function_that_the_library_lacks_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(build(tmp_path, without=["topsMemsetD16Async"]), monkeypatch)
    opened = TopsBackend.open()
    memset = ctypes.CFUNCTYPE(
        *(ctypes.c_int, ctypes.c_void_p, ctypes.c_ushort, ctypes.c_size_t, ctypes.c_void_p)
    )
    slots = opened.hot_table.slots
    assert memset(slots["memset_16"])(0x1000, 7, 1, None) == _errors.MISSING_FUNCTION
    # The runtime's own codes are not negative, and 0 is success.
    assert _errors.MISSING_FUNCTION < 0 <= min(header().constants.values())


def test_codes_have_words(opened: TopsBackend) -> None:
    assert words_of("topsErrorInvalidDevicePointer") == "invalid device pointer"
    assert words_of("topsErrorECCNotCorrectable") == "ECC not correctable"
    # The runtime's text may repeat the name, say something else, or be empty.
    assert opened.error_text(2).text == "out of memory"
    assert opened.error_text(710).text == "a kernel asserted"
    assert opened.error_text(700).text == "illegal address"


# -- finding the library ---------------------------------------------------------------------------


def test_no_library_names_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UHAL_TOPS_LIBRARY", "/nowhere/libtopsrt.so")
    record = TopsBackend.probe()
    assert record.verdict == "absent"
    assert "/nowhere/libtopsrt.so" in record.reason
    assert "install TopsRider" in record.next_step
    with pytest.raises(LibraryNotFoundError, match=r"/nowhere/libtopsrt\.so"):
        TopsBackend.open()
    assert CANDIDATES[:3] == ("libtopsrt.so", "libtopsrt.so.1", "libtopsrt.so.2")
    assert "/opt/tops/lib/libtopsrt.so" in CANDIDATES


def test_probing_creates_nothing(fake: Fake) -> None:
    fake.be(devices=2)
    record = TopsBackend.probe()
    assert (record.verdict, record.version, record.path) == ("ok", "2.5", str(fake.path))
    assert [device.ordinal for device in record.devices] == [0, 1]
    assert record.devices[0].name == "Fake GCU"
    assert record.devices[0].description == "gcu300 S60, 2 clusters of 12 SIPs, 48 GB"
    assert fake.live == 0


def test_no_device(fake: Fake) -> None:
    fake.be(devices=0)
    assert TopsBackend.probe().verdict == "absent"
    fake.answer("topsGetDeviceCount", header().constants["topsErrorNoDevice"])
    record = TopsBackend.probe()
    assert (record.verdict, record.devices) == ("absent", ())
    assert "efsmi" in record.next_step
    fake.answer("topsInit", header().constants["topsErrorInsufficientDriver"])
    record = TopsBackend.probe()
    assert record.verdict == "refused"
    assert record.reason.startswith("topsInit: topsErrorInsufficientDriver (35): insufficient")


# -- properties of a device ------------------------------------------------------------------------


def test_the_limits_of_an_s60(opened: TopsBackend) -> None:
    limits = opened.device_limits(0)
    assert (limits.processors, limits.max_threads_per_block, limits.warp_size) == (2, 12, 1)
    assert (limits.block_for_elements, limits.max_blocks_for_elements) == (12, 2)
    assert limits.max_shared_bytes_per_block == 60 << 20
    attributes = opened.device_attributes(0)
    assert attributes["gcuArchName"] == "gcu300"
    assert attributes["PCI_BUS_ADDRESS"] == "0000:01:00.0"
    assert attributes["topsDeviceAttributeClockRate"] == 1416000
    assert "topsDeviceAttributeMaxGridDimX" not in attributes  # the library refuses this attribute


def test_properties_of_a_newer_library_are_longer(fake: Fake, opened: TopsBackend) -> None:
    fake.widen_properties(2048)
    assert opened.device_attributes(0)["gcuArchName"] == "gcu300"
    assert opened.device_limits(0).block_for_elements == 12


def test_properties_of_another_layout_are_not_believed(fake: Fake, opened: TopsBackend) -> None:
    for said in ("", "something else", "\xff\xfe"):
        fake.be(arch=said)
        # The architecture also follows from the compute capability 3.0.
        assert opened.device_attributes(0)["gcuArchName"] == "gcu300"
    fake.answer("topsDeviceGetAttribute", header().constants["topsErrorNotSupported"])
    assert "gcuArchName" not in opened.device_attributes(0)
    limits = opened.device_limits(0)
    assert (limits.processors, limits.max_threads_per_block) == (1, 6)


def test_devices_are_told_apart(fake: Fake, opened: TopsBackend) -> None:
    fake.be(devices=2)
    assert opened.device_context(0) != 0
    assert opened.device_context(0) != opened.device_context(1)
    assert opened.device_uuid(0) != opened.device_uuid(1)
    assert opened.device_uuid(0) == opened.device_uuid(0)
    fake.answer("topsDeviceGetPCIBusId", header().constants["topsErrorNotSupported"])
    assert opened.device_uuid(0) != opened.device_uuid(1)
    assert opened.special_stream("per_thread") == 2
    assert opened.special_stream("legacy") is None


# -- images ----------------------------------------------------------------------------------------


def test_the_image_for_the_device_is_chosen() -> None:
    old, new = Gcu(KERNELS, "gcu200"), Gcu(KERNELS)
    selection = select(topsfb(old, new), "tops:0", "gcu300")
    assert selection.payload == topsfb(new)  # equals the compiler's output for this target alone
    assert str(selection.chosen).startswith("GCU image for gcu300: it is for exactly this device")
    assert [one.accepted for one in selection.chosen.candidates] == [False, True]
    assert select(topsfb(new), "tops:0", "gcu300").payload == topsfb(new)
    assert select(new.elf(), "tops:0", "gcu300").payload == new.elf()
    assert select(topsfb(old), "tops:0", None).payload == topsfb(old)
    with pytest.raises(InvalidImageError) as refused:
        select(topsfb(old), "tops:0", "gcu300")
    assert str(refused.value) == (
        "no image fits tops:0 (gcu300):\n"
        "  GCU image for gcu200: this device is a gcu300, and machine code runs on its own only"
    )


def test_images_that_are_not_what_they_say() -> None:
    lying = bundle(("tops-dtu-enflame-tops--gcu200", Gcu(KERNELS).elf()))
    with pytest.raises(InvalidImageError, match=r"GCU image for gcu300: the bundle says .* gcu200"):
        select(lying, "tops:0", "gcu300")
    mixed = bundle(
        ("hipv4-amdgcn-amd-amdhsa--gfx90a", b"\x7fELF" + bytes(60)),
        ("tops-dtu-enflame-tops--gcu300", Gcu(KERNELS).elf()),
    )
    chosen = select(mixed, "tops:0", "gcu300").chosen
    assert chosen.candidates[0].reason == "no ELF file for GCUs"
    for image in (b"", b".version 8.0\n"):
        with pytest.raises(InvalidImageError, match=r"expected a \.topsfb or a GCU ELF file"):
            select(image, "tops:0", "gcu300")


def test_ubridges_names_join_what_the_image_says() -> None:
    found = select(topsfb(Gcu(KERNELS)), "tops:0", "gcu300").signatures
    assert found["fill_f32"].declaration == "f32* output, i32 total_size, f32 value"
    assert found["mine"].declaration == "ptr, i32"
    # Another kernel with the name of an Ubridge entry keeps the signature of its image.
    other = select(topsfb(Gcu({"uexp_f32": ["float*", "int"]})), "tops:0", "gcu300").signatures
    assert other["uexp_f32"].declaration == "f32*, i32"


def test_a_refused_image_names_the_file(fake: Fake, opened: TopsBackend) -> None:
    fake.answer("topsModuleLoadData", header().constants["topsErrorNoBinaryForGcu"])
    with pytest.raises(InvalidImageError, match=r"k\.topsfb, GCU image for gcu300") as refused:
        opened.module_load(0, topsfb(Gcu(KERNELS)), path=Path("/somewhere/k.topsfb"))
    assert refused.value.name == "topsErrorNoBinaryForGcu"


def test_a_kernels_attributes(fake: Fake, opened: TopsBackend) -> None:
    found = opened.function_attributes(1, "k")
    assert (found.max_threads_per_block, found.registers) == (12, 64)
    assert found.max_dynamic_shared_bytes is None
    fake.answer("topsFuncGetAttribute", header().constants["topsErrorInvalidDeviceFunction"])
    found = opened.function_attributes(1, "k")
    assert (found.max_threads_per_block, found.registers) == (12, None)
    with pytest.raises(NotFoundError, match="the variable 'table'"):
        opened.module_global(1, "table")


def test_a_launch_configuration_of_no_known_size(
    fake: Fake, opened: TopsBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UHAL_TOPS_LAUNCH_CONFIG", "56")
    with pytest.raises(ArgumentValueError, match="expected 72 or 64, got '56'"):
        _ = opened.hot_table


def test_memory_that_runs_out(fake: Fake, opened: TopsBackend) -> None:
    assert opened.memory_info(0) == (1 << 20, 48 << 30)
    fake.answer("topsMemGetInfo", header().constants["topsErrorOutOfMemory"])
    with pytest.raises(OutOfMemoryError, match="efsmi shows other processes"):
        opened.memory_info(0)
