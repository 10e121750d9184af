"""The CUDA backend on fake libraries; its tables; its slots."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuda_backend import CudaBackend, _errors
from cuda_backend._backend import FUNCTION_OF_SLOT, OPTIONAL_SLOTS
from cuda_backend._library import header
from tests.abi_headers import parameter_lists, parameters
from tests.fake_libcuda import Fake, build
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
from uhal.module import _check_layout
from uhal.signature import Signature

DATA = Path(__file__).parents[1] / "data" / "cuda"
VENDOR_HEADERS = Path("/usr/local/cuda/include"), Path("/usr/local/cuda-13.0/include")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return use(build(tmp_path), monkeypatch)


@pytest.fixture
def opened(fake: Fake) -> Iterator[CudaBackend]:
    yield CudaBackend.open()
    assert fake.pushed == 0


def use(path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setenv("UHAL_CUDA_LIBRARY", str(path))
    return Fake(path)


# -- slots and tables ------------------------------------------------------------------------------


def test_every_slot_has_the_prototype_of_its_function() -> None:
    slots = _lane.slot_prototypes()
    assert set(FUNCTION_OF_SLOT) == set(slots) - {
        "prepare_function",
        "stream_progress",
        "stream_synchronize_while",
        "stream_series",
        "event_synchronize_while",
    }
    texts = {
        slot: slots[slot][1]
        .replace("uhal_host_function", "CUhostFn")
        .replace("struct uhal_launch_config", "void")
        for slot in FUNCTION_OF_SLOT
    }
    lists = parameter_lists(Path(__file__).resolve().parents[2] / "cuda_backend" / "abi.h", texts)
    for slot, name in FUNCTION_OF_SLOT.items():
        need, _ = slots[slot]
        expected = lists[slot]
        declared = parameters(header(), name)
        if slot == "launch_ex":
            # The adapter turns the lane's configuration into CUDA's.
            declared = declared[1:]
            expected = expected[1:]
        elif slot == "graph_update_kernel":
            # The adapter puts the launch into one structure.
            declared = declared[:2]
            expected = expected[:2]
        assert declared == expected, slot
        assert (slot in OPTIONAL_SLOTS) == (need == "optional"), slot


def test_the_error_table_names_codes_that_exist() -> None:
    codes = {name for name in header().constants if name.startswith("CUDA_ERROR_")}
    ours = {_errors.MISSING_NAME}
    assert set(_errors.CLASS_OF) <= codes | ours
    assert set(_errors.ADVICE) <= codes | ours
    assert set(_errors.STICKY) <= codes
    assert len(_errors.STICKY) == len(set(_errors.STICKY)) <= 16
    assert set(_errors.SEARCH) <= codes
    for advice in (*_errors.ADVICE.values(), *_errors.SEARCH.values()):
        assert advice and not advice.endswith(".") and "\n" not in advice


@pytest.mark.parametrize(
    ("name", "text", "advice"),
    [
        (
            "CUDA_ERROR_ILLEGAL_ADDRESS",
            "an illegal memory access was encountered",
            "compute-sanitizer finds the access. Start a new process: the device's memory is lost",
        ),
        (
            "CUDA_ERROR_ILLEGAL_ADDRESS",
            "illegal address (kernel k stopped at k.cu:8: thread (0, 0, 0), line 9 (seed 5))",
            "Start a new process: the device's memory is lost",
        ),
        (
            "CUDA_ERROR_INVALID_PTX",
            "a PTX JIT compilation failed",
            "Compile it with ptxas, which explains the error",
        ),
        ("CUDA_ERROR_INVALID_PTX", "invalid ptx (tex.1d is not executed here)", ""),
        ("CUDA_ERROR_INVALID_DEVICE", "no (none)", "CUDA_VISIBLE_DEVICES renumbers the devices"),
    ],
)
def test_where_to_look_is_told_unless_the_driver_tells_what_happened(
    name: str, text: str, advice: str
) -> None:
    assert _errors.advice_for(name, text) == advice


def test_every_code_becomes_an_exception(opened: CudaBackend) -> None:
    for name, code in header().constants.items():
        if name.startswith("CUDA_ERROR_"):
            error = from_code(opened, "cuCall", code)
            assert error.name == name
            assert error.code == code
            assert str(error).startswith(f"cuCall: {name} ({code}): ")
            assert type(error) is _errors.CLASS_OF.get(name, DeviceError)
    assert "unknown (31415)" in str(from_code(opened, "cuCall", 31415))


def vendor_header(name: str) -> str:
    for folder in VENDOR_HEADERS:
        if (folder / name).is_file():
            return (folder / name).read_text("utf-8", "replace")
    pytest.skip(f"no {name} of a CUDA toolkit here")


def test_the_manual_says_so_of_sticky_codes() -> None:
    text = vendor_header("cuda.h")
    codes = text[text.index("typedef enum cudaError_enum") : text.index("} CUresult")]
    for said, name in re.findall(r"/\*\*(.*?)\*/\s*(CUDA_ERROR_\w+)", codes, re.DOTALL):
        words = " ".join(said.replace("*", " ").split())
        if "any further CUDA work will return the same error" in words:
            assert name in _errors.STICKY


def test_our_constants_are_the_vendors() -> None:
    text = vendor_header("cuda.h")
    known = dict(re.findall(r"\b(CU(?:DA)?_[A-Z0-9_]+)\s*=\s*(0x[0-9a-fA-F]+|\d+)\s*[,/}]", text))
    compared = 0
    for name, value in header().constants.items():
        if name in known:
            assert int(known[name], 0) == value, name
            compared += 1
    assert compared > 200


def test_versions_of_functions_are_the_vendors() -> None:
    text = vendor_header("cudaTypedefs.h")
    versions: dict[str, set[int]] = {}
    for name, version in re.findall(r"PFN_(cu\w+?)_v(\d{4,5})(?:_pts[dz]|_ptds)?\)", text):
        versions.setdefault(name, set()).add(int(version))
    for name, since in header().constants.items():
        if name.startswith("UHAL_SINCE_"):
            function = re.sub(r"_v\d$", "", name.removeprefix("UHAL_SINCE_"))
            assert since in versions[function], name


# -- finding the library ---------------------------------------------------------------------------


def test_no_library_names_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UHAL_CUDA_LIBRARY", "/nowhere/libcuda.so.1")
    record = CudaBackend.probe()
    assert record.verdict == "absent"
    assert "/nowhere/libcuda.so.1" in record.reason
    assert "install the NVIDIA driver" in record.next_step
    with pytest.raises(LibraryNotFoundError, match=r"/nowhere/libcuda\.so\.1"):
        CudaBackend.open()


def test_probing_creates_nothing(fake: Fake) -> None:
    fake.be(devices=3)
    record = CudaBackend.probe()
    assert (record.verdict, record.version, record.path) == ("ok", "12.4", str(fake.path))
    assert [device.ordinal for device in record.devices] == [0, 1, 2]
    assert record.devices[0].name == "Fake GPU"
    assert record.devices[0].description.startswith("compute capability 8.6, ")
    assert fake.retained == 0


def test_no_device(fake: Fake) -> None:
    fake.be(devices=0)
    assert CudaBackend.probe().verdict == "absent"
    fake.answer("cuInit", header().constants["CUDA_ERROR_NO_DEVICE"])
    record = CudaBackend.probe()
    assert record.verdict == "refused"
    assert record.reason.startswith("cuInit: CUDA_ERROR_NO_DEVICE (100)")
    assert "CUDA_VISIBLE_DEVICES" in record.reason


def test_the_toolkits_stub_is_told_apart(fake: Fake) -> None:
    fake.answer("cuInit", header().constants["CUDA_ERROR_STUB_LIBRARY"])
    assert "stub for linking" in CudaBackend.probe().reason
    with pytest.raises(LibraryNotFoundError, match="STUB_LIBRARY"):
        CudaBackend.open()


def test_a_driver_too_old_is_refused_with_both_versions(fake: Fake) -> None:
    fake.be(version=11020)
    record = CudaBackend.probe()
    assert record.verdict == "refused"
    assert "for CUDA 11.2, and a driver for CUDA 11.4 or later" in record.reason


# -- functions the driver lacks --------------------------------------------------------------------


def test_a_missing_optional_function_leaves_its_slot_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(build(tmp_path, without=["cuMemAllocAsync", "cuLaunchKernelEx"]), monkeypatch)
    slots = CudaBackend.open().hot_table.slots
    assert slots["alloc_async"] == slots["launch_ex"] == 0
    assert slots["free_async"] != 0


def test_a_missing_function_is_refused_by_name_when_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = ["cuMemsetD16Async", "cuOccupancyMaxActiveBlocksPerMultiprocessor"]
    use(build(tmp_path, without=missing), monkeypatch)
    backend = CudaBackend.open()
    call = ctypes.CFUNCTYPE(
        *(ctypes.c_int, ctypes.c_uint64, ctypes.c_ushort, ctypes.c_size_t, ctypes.c_void_p)
    )(backend.hot_table.slots["memset_16"])
    code = call(0x1000, 7, 1, None)
    error = from_code(backend, backend.hot_table.names["memset_16"], code)
    assert isinstance(error, NotSupportedError)
    assert str(error).startswith("cuMemsetD16Async: ")
    assert "has no such function" in str(error)
    assert "Update the NVIDIA driver" in str(error)
    backend.device_context(0)
    with pytest.raises(LibraryNotFoundError, match="no function cuOccupancyMaxActiveBlocks"):
        backend.max_active_blocks(0x10, 0, 64, 0)
    assert backend.device_name(0) == "Fake GPU"


def test_functions_come_in_the_version_that_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = use(build(tmp_path, without=["cuMemAlloc_v2"], finder=True), monkeypatch)
    backend = CudaBackend.open()
    address = ctypes.c_ulonglong()
    allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(
        backend.hot_table.slots["alloc"]
    )
    assert allocate(ctypes.addressof(address), 4) == 0
    assert address.value == 0xABC4
    assert fake.asked_version == 3020
    assert backend.device_name(0) == "Fake GPU"


def test_what_the_driver_denies_is_not_taken_by_its_exported_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(tmp_path, finder=True)
    assert ctypes.CDLL(str(path)).cuMemsetD16Async
    use(path, monkeypatch)
    backend = CudaBackend.open()
    slots = backend.hot_table.slots
    memset = ctypes.CFUNCTYPE(
        *(ctypes.c_int, ctypes.c_uint64, ctypes.c_ushort, ctypes.c_size_t, ctypes.c_void_p)
    )
    assert memset(slots["memset_16"])(0x1000, 7, 1, None) == _errors.MISSING_FUNCTION
    assert memset(slots["memset_32"])(0x1000, 7, 1, None) == 0
    # The driver's own codes are not negative, and 0 is success.
    assert _errors.MISSING_FUNCTION < 0


# -- verbs -----------------------------------------------------------------------------------------


def test_a_code_has_the_drivers_text_or_its_name_in_the_header(opened: CudaBackend) -> None:
    known, unknown = opened.error_text(2), opened.error_text(700)
    assert (known.name, known.text) == ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory")
    assert (unknown.name, unknown.text) == (
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "this driver says no more",
    )


def test_contexts_are_retained_and_given_back(opened: CudaBackend, fake: Fake) -> None:
    first = opened.device_context(0)
    assert opened.device_context(0) == first
    assert fake.retained == 2
    opened.release_device_context(0, 0)
    opened.release_device_context(0, 0)
    assert fake.retained == 0


def test_what_a_device_says(opened: CudaBackend) -> None:
    assert opened.device_uuid(0) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    limits = opened.device_limits(0)
    assert limits.max_shared_bytes_per_block == 49152
    assert limits.max_threads_per_block == 1001
    assert limits.max_grid == (1005, 1006, 1007)
    attributes = opened.device_attributes(0)
    assert attributes["CU_DEVICE_ATTRIBUTE_WARP_SIZE"] == 1010
    # An attribute that the driver does not know is left out.
    assert "CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED" not in attributes


@pytest.mark.parametrize(
    ("version", "capability", "expected"),
    [
        (12000, 86, 4096),
        (12010, 86, 32764),
        (12010, 70, 32764),
        (12010, 62, 4096),
        (13000, 120, 32764),
    ],
)
def test_parameter_bytes(fake: Fake, version: int, capability: int, expected: int) -> None:
    fake.be(version=version, capability=capability)
    assert CudaBackend.open().device_limits(0).max_parameter_bytes == expected


def test_streams(opened: CudaBackend) -> None:
    opened.device_context(0)
    assert opened.priority_range(0) == (0, -5)
    assert opened.special_stream("legacy") == 1
    assert opened.special_stream("per_thread") == 2


def test_a_failed_call_leaves_nothing_bound(opened: CudaBackend, fake: Fake) -> None:
    opened.device_context(0)
    fake.answer("cuCtxGetStreamPriorityRange", header().constants["CUDA_ERROR_INVALID_VALUE"])
    with pytest.raises(ArgumentValueError):
        opened.priority_range(0)
    assert fake.pushed == 0


def test_dynamic_shared_memory_is_raised_when_asked(opened: CudaBackend, fake: Fake) -> None:
    attributes = opened.function_attributes(0x10, "k")
    assert attributes.static_shared_bytes == 1376
    assert attributes.max_dynamic_shared_bytes == 49152
    assert attributes.max_threads_per_block == 100
    raised = opened.set_max_dynamic_shared_bytes(0x10, "k", 100000)
    assert raised.max_dynamic_shared_bytes == 100000
    fake.answer("cuFuncSetAttribute", header().constants["CUDA_ERROR_INVALID_VALUE"])
    with pytest.raises(ArgumentValueError, match=r"asked for 4294967295 .* 101376, .* take 1376"):
        opened.set_max_dynamic_shared_bytes(0x10, "k", (1 << 32) - 1)


def test_the_layout_of_parameters(opened: CudaBackend, fake: Fake) -> None:
    assert opened.function_layout(0x10) == [(0, 8), (8, 4), (16, 8)]
    fake.answer("cuFuncGetParamInfo", header().constants["CUDA_ERROR_NOT_SUPPORTED"])
    assert opened.function_layout(0x10) is None


def test_no_layout_before_the_driver_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(build(tmp_path, without=["cuFuncGetParamInfo"]), monkeypatch)
    assert CudaBackend.open().function_layout(0x10) is None


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("ptr x, u32 n, ptr y", None),
        ("ptr x, u32 n", "has 2 parameters"),
        ("ptr x, u64 n, ptr y", "parameter 1 'u64 n' has 8 bytes at offset 8 by the declaration, "),
        ("u32 a, u32 b, ptr y", "parameter 0 'u32 a' has 4 bytes at offset 0"),
    ],
)
def test_a_signature_is_compared_with_it(declared: str, words: str | None) -> None:
    signature = Signature.parse(declared)
    layout = [(0, 8), (8, 4), (16, 8)]
    if words is None:
        _check_layout("k", signature, layout)
        return
    with pytest.raises(ArgumentValueError, match=words):
        _check_layout("k", signature, layout)


def test_loading_what_fits(opened: CudaBackend, fake: Fake) -> None:
    fake.be(version=13000, capability=86)
    backend = CudaBackend.open()
    loaded = backend.module_load(0, (DATA / "mode_none.fatbin").read_bytes())
    assert loaded.handle == 0x2000
    assert loaded.chosen.description == "PTX 9.0 for sm_75"
    assert b".version 9.0" in fake.image
    assert list(loaded.signatures) == ["saxpy", "mixed", "nothing", "indexed", "unused"]


def test_ptx_newer_than_the_driver_never_reaches_it(opened: CudaBackend, fake: Fake) -> None:
    with pytest.raises(InvalidImageError, match=r"PTX 9\.0 needs .* 13\.0 .* for CUDA 12\.4"):
        opened.module_load(0, (DATA / "sm_75.ptx").read_bytes())
    assert fake.image == b""


def test_the_compilers_words_are_in_the_message(fake: Fake) -> None:
    fake.be(version=13000)
    fake.answer("cuModuleLoadDataEx", header().constants["CUDA_ERROR_INVALID_PTX"])
    image = (DATA / "sm_75.ptx").read_bytes()
    with pytest.raises(InvalidImageError) as raised:
        CudaBackend.open().module_load(0, image, path=Path("folder/sm_75.ptx"))
    message = str(raised.value)
    assert message.startswith("cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX (218)")
    assert "sm_75.ptx, PTX 9.0 for sm_75. ptxas line 3; error : Unknown symbol 'x'" in message
    assert "info" not in message


def test_the_compilers_remarks_are_told_where_it_has_no_errors(fake: Fake) -> None:
    fake.be(version=13000)
    fake.answer("cuModuleLoadDataEx", header().constants["CUDA_ERROR_NO_BINARY_FOR_GPU"])
    with pytest.raises(InvalidImageError, match=r"\. ptxas info : 0 bytes gmem"):
        CudaBackend.open().module_load(0, (DATA / "sm_75.ptx").read_bytes(), path=Path("sm_75.ptx"))


@pytest.mark.parametrize(
    ("verb", "function", "code", "expected"),
    [
        ("memory_info", "cuMemGetInfo_v2", "CUDA_ERROR_NOT_SUPPORTED", NotSupportedError),
        ("synchronize_device", "cuCtxSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS", DeviceError),
        (
            "device_context",
            "cuDevicePrimaryCtxRetain",
            "CUDA_ERROR_OUT_OF_MEMORY",
            OutOfMemoryError,
        ),
    ],
)
def test_every_failure_is_raised(
    opened: CudaBackend, fake: Fake, verb: str, function: str, code: str, expected: type
) -> None:
    fake.answer(function, header().constants[code])
    with pytest.raises(expected, match=f"{function}: {code}"):
        getattr(opened, verb)(0)


def test_a_missing_global(opened: CudaBackend, fake: Fake) -> None:
    fake.answer("cuModuleGetGlobal_v2", header().constants["CUDA_ERROR_NOT_FOUND"])
    with pytest.raises(NotFoundError, match="'table'; nvcc exports none without -rdc=true"):
        opened.module_global(0x2000, "table")


def test_fixed_classes_belong_to_the_backend() -> None:
    import cuda_backend
    import uhal

    for name in ("Api", "Device", "Stream", "Event", "Module", "DeviceBuffer", "HostBuffer"):
        fixed = getattr(cuda_backend, f"Cu{name}")
        assert issubclass(fixed, getattr(uhal, name))
        assert fixed._fixed_backend == "cuda"
        assert fixed.__module__ == "cuda_backend"
    with pytest.raises(AttributeError):
        cuda_backend.CuNothing  # noqa: B018
