"""Other libraries' tensors and streams: accepted, ordered, kept, or refused with a message."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import uhal.compile
from tests.children import check_child
from tests.counting_bench import Bench, use
from tests.counting_driver import CountingDriver
from uhal import DeviceBuffer, Event, HostBuffer, Stream, launch
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
    NotSupportedError,
)
from uhal.interop import IpcHandle

KERNEL = "const f32* x, f32* y"
PRODUCER_STREAM = 0xBEEF0
OTHER_STREAM = 0xCAFE0


class CudaDriver(CountingDriver):
    """A counting driver whose memory looks like CUDA's to other libraries."""

    dlpack_device_type = 2
    pointer_owner: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.foreign_streams = {1, 2, PRODUCER_STREAM, OTHER_STREAM}

    def special_stream(self, kind: Any) -> int:
        return 1 if kind == "legacy" else 2

    def pointer_device(self, address: int) -> int | None:
        return self.pointer_owner


cuda = pytest.mark.bench(driver=CudaDriver)


# -- what other libraries are, here ----------------------------------------------------------------


class Tensor:
    """A library's tensor: it exports by DLPack and records the consumer."""

    def __init__(self, buffer: DeviceBuffer) -> None:
        self._buffer = buffer
        self.asked: list[Any] = []

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> object:
        self.asked.append(stream)
        return self._buffer.__dlpack__(stream=stream, max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._buffer.__dlpack_device__()


class Array:
    """A library's array, exporting by the CUDA array interface alone."""

    def __init__(self, buffer: DeviceBuffer, **facts: Any) -> None:
        self._buffer = buffer
        self.facts = {
            "shape": (buffer.size,),
            "typestr": buffer.dtype.dtype.str,
            "data": (buffer.as_device_ptr().address, False),
            "version": 3,
            **facts,
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.facts


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Exchange(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("take", ctypes.c_void_p),
        ("give", ctypes.c_void_p),
        ("look", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    )


class FastTensor:
    """A library's tensor whose type has DLPack's C exchange: uhal reads it without an export."""

    stream: ClassVar[int] = PRODUCER_STREAM
    __dlpack_c_exchange_api__: ClassVar[object]

    def __init__(self, buffer: DeviceBuffer, **changes: Any) -> None:
        self._shape = (ctypes.c_int64 * 1)(buffer.size)
        self.native = DLTensor(
            data=buffer.as_device_ptr().address,
            device_type=2,
            device_id=0,
            ndim=1,
            code=2,
            bits=32,
            lanes=1,
            shape=self._shape,
        )
        for name, value in changes.items():
            setattr(self.native, name, value)


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
def look(tensor: FastTensor, out: Any) -> int:
    out[0] = tensor.native
    return 0


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def current_stream(device_type: int, device_id: int, out: Any) -> int:
    assert (device_type, device_id) == (2, 0)
    out[0] = FastTensor.stream
    return 0


def exchange_table(major: int, previous: Exchange | None = None) -> Exchange:
    return Exchange(
        major=major,
        minor=3,
        previous=None if previous is None else ctypes.addressof(previous),
        look=ctypes.cast(look, ctypes.c_void_p).value,
        current_stream=ctypes.cast(current_stream, ctypes.c_void_p).value,
    )


OLDER = exchange_table(1)
NEWER = exchange_table(2, OLDER)
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
# A newer major version links to the older version, which uhal reads.
EXCHANGE_NAME = b"dlpack_exchange_api"  # a capsule only points to its name
FastTensor.__dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(NEWER), EXCHANGE_NAME, None)


class ProtocolStream:
    def __init__(self, handle: int) -> None:
        self.handle_given = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle_given)


class TorchStream:
    def __init__(self, handle: int) -> None:
        self.cuda_stream = handle


class CupyStream:
    def __init__(self, handle: int) -> None:
        self.ptr = handle


def passed(bench: Bench, arguments: tuple[Any, ...], signature: str | None = KERNEL) -> list[int]:
    """Launch; return the addresses that the driver received."""
    function = bench.function(signature)
    bench.driver.parameter_sizes = [8] * len(arguments)
    function[1, 1](*arguments)
    bench.driver.parameter_sizes = ()
    return [int.from_bytes(data, "little") for data in bench.driver.parameters]


def address_of(buffer: DeviceBuffer) -> int:
    return buffer.as_device_ptr().address


# -- tensors as arguments --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Tensor, Array, FastTensor])
@pytest.mark.parametrize("signature", [KERNEL, None])
@cuda
def test_a_tensor_is_an_argument(bench: Bench, kind: type, signature: str | None) -> None:
    buffer, other = bench.buffer(), bench.buffer()
    assert passed(bench, (kind(buffer), other), signature) == [
        address_of(buffer),
        address_of(other),
    ]


@pytest.mark.parametrize("kind", [Tensor, FastTensor])
@cuda
def test_it_goes_by_the_heap_and_through_launch_too(bench: Bench, kind: type) -> None:
    names = ", ".join(f"const f32* p{i}" for i in range(60))
    buffers = [bench.buffer() for _ in range(60)]
    tensors = tuple(kind(buffer) for buffer in buffers)
    assert passed(bench, tensors, names) == [address_of(buffer) for buffer in buffers]
    launch(bench.function("const f32* x"), 1, 1, (tensors[0],))


@cuda
def test_the_launch_comes_after_the_producers_stream(bench: Bench) -> None:
    function = bench.function(KERNEL)
    first, second = FastTensor(bench.buffer()), FastTensor(bench.buffer())
    bench.quiet()
    function[1, 1](first, second)
    record, wait, started = [
        (slot, arguments)
        for slot, arguments in bench.driver.calls
        if slot in ("event_record", "stream_wait_event", "launch")
    ]
    assert record[1][1] == PRODUCER_STREAM
    assert wait[1][:2] == (started[1][8], record[1][0])
    assert started[0] == "launch"


@cuda
def test_a_launch_in_the_producers_own_stream_waits_for_nothing(bench: Bench) -> None:
    function = bench.function(KERNEL)
    tensor = FastTensor(bench.buffer())
    bench.quiet()
    function[1, 1, 0, ProtocolStream(PRODUCER_STREAM)](tensor, tensor)
    assert bench.driver.slots() == ["launch"]


@cuda
def test_the_producers_default_stream_is_named_by_its_handle(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FastTensor, "stream", 0)
    tensor = FastTensor(bench.buffer())
    bench.quiet()
    passed(bench, (tensor, tensor))
    (record,) = [arguments for slot, arguments in bench.driver.calls if slot == "event_record"]
    assert record[1] == 1


@cuda
def test_a_dlpack_producer_is_told_the_stream_of_the_launch(bench: Bench) -> None:
    tensor = Tensor(bench.buffer())
    function = bench.function("const f32* x")
    with Stream() as stream:
        function[1, 1, 0, stream](tensor)
        assert tensor.asked == [stream.handle]


@pytest.mark.parametrize("kind", [Tensor, Array, FastTensor])
@cuda
def test_a_tensor_is_kept_until_the_launch_is_done(bench: Bench, kind: type) -> None:
    function = bench.function("const f32* x")
    stream = bench.busy_stream()
    tensor = kind(bench.buffer())
    # for a capsule, uhal only keeps the exporting buffer alive
    reference = weakref.ref(tensor._buffer if kind is Tensor else tensor)
    function[1, 1, 0, stream](tensor)
    del tensor
    gc.collect()
    assert reference() is not None
    stream.synchronize()
    gc.collect()
    assert reference() is None


@cuda
def test_what_is_done_is_let_go_without_anybody_waiting(bench: Bench) -> None:
    function = bench.function("const f32* x")
    stream = bench.busy_stream()
    buffer = bench.buffer()
    references = []
    for round_ in range(1000):
        tensor = FastTensor(buffer)
        references.append(weakref.ref(tensor))
        function[1, 1, 0, stream](tensor)
        if round_ == 500:
            bench.driver.busy.clear()
    del tensor
    assert sum(reference() is not None for reference in references) < 200


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device_type": 1}, "DLPack device (1, 0)"),
        ({"device_id": 1}, "DLPack device (2, 1)"),
        ({"device_type": 13}, "managed memory"),
        ({"device_type": 3}, "pinned host memory"),
        ({"bits": 64}, "its elements are f64"),
        ({"bits": 128}, "type code 2 with 128 bits"),
        ({"lanes": 4}, "expected one lane, got 4"),
        ({"strides": (ctypes.c_int64 * 1)(2)}, "C-contiguous"),
        ({"byte_offset": 2}, "at a multiple of 4 bytes"),
        ({"byte_offset": 1 << 63}, "offset within an address space"),
    ],
)
@cuda
def test_a_tensor_that_does_not_fit_is_refused(
    bench: Bench, changes: dict[str, Any], words: str
) -> None:
    tensor = FastTensor(bench.buffer(), **changes)
    bench.quiet()
    function = bench.function("const f32* x")
    bench.quiet()
    with pytest.raises(ArgumentTypeError) as caught:
        function[1, 1](tensor)
    assert bench.driver.slots() == []
    message = str(caught.value)
    assert message.startswith(
        "k, argument 0 'x' (const f32*): expected memory of f32 on counting:0, got "
    )
    assert words in message
    assert "The kernel was not launched. [test_lane_interop.py:" in message


@cuda
def test_a_kernel_that_writes_takes_no_read_only_memory(bench: Bench) -> None:
    buffer = bench.buffer()
    array = Array(buffer, data=(address_of(buffer), True))
    assert passed(bench, (array, buffer)) == [address_of(buffer)] * 2
    with pytest.raises(ArgumentTypeError, match="read-only"):
        passed(bench, (buffer, array))


@cuda
def test_numpy_arrays_stay_host_memory(bench: Bench) -> None:
    with pytest.raises(ArgumentTypeError, match=r"DeviceBuffer\.from_numpy"):
        passed(bench, (np.zeros(4, "f4"), None))


@cuda
def test_a_failed_launch_keeps_nothing(bench: Bench) -> None:
    tensor = FastTensor(bench.buffer())
    function = bench.function(KERNEL)
    references = sys.getrefcount(tensor)
    bench.driver.failures["launch"] = [1]
    with pytest.raises(ArgumentValueError, match="countLaunchKernel"):
        function[1, 1](tensor, None)
    with pytest.raises(ArgumentTypeError):
        function[1, 1](tensor, 1.5)
    assert sys.getrefcount(tensor) == references


# -- taking memory over ----------------------------------------------------------------------------


@cuda
def test_an_array_by_the_cuda_array_interface(bench: Bench) -> None:
    owner = bench.buffer(12)
    array = Array(owner, shape=(3, 4), strides=(16, 4), stream=PRODUCER_STREAM)
    bench.quiet()
    with DeviceBuffer.from_cuda_array_interface(array) as taken:
        assert (taken.size, taken.dtype.name, taken.readonly) == (12, "f32", False)
        assert bench.driver.slots() == ["event_create", "event_record", "stream_wait_event"]
        (record,) = [a for slot, a in bench.driver.calls if slot == "event_record"]
        assert record[1] == PRODUCER_STREAM
        # the first use on another stream waits for the stream of the take-over
        bench.driver.busy.add(Stream.default().handle)
        with Stream() as stream:
            bench.quiet()
            use(bench, stream, taken)
            assert "stream_wait_event" in bench.driver.slots()


@pytest.mark.parametrize("stream", [1, 2])
@cuda
def test_the_special_streams_of_the_array_interface(bench: Bench, stream: int) -> None:
    array = Array(bench.buffer(), stream=stream)
    bench.quiet()
    DeviceBuffer.from_cuda_array_interface(array)
    (record,) = [a for slot, a in bench.driver.calls if slot == "event_record"]
    assert record[1] == stream


@cuda
def test_an_array_without_a_stream_is_ready(bench: Bench) -> None:
    array = Array(bench.buffer())
    bench.quiet()
    DeviceBuffer.from_cuda_array_interface(array)
    assert bench.driver.slots() == []


@cuda
def test_an_empty_array(bench: Bench) -> None:
    array = Array(bench.buffer(), shape=(0, 3), data=(0, False), strides=(99, 7))
    taken = DeviceBuffer.from_cuda_array_interface(array)
    assert (taken.size, taken.nbytes) == (0, 0)


@pytest.mark.parametrize(
    ("facts", "error", "words"),
    [
        ({"mask": object()}, BufferError, "masked"),
        ({"strides": (8,)}, BufferError, "C-contiguous"),
        ({"stream": 0}, ArgumentValueError, "stream: expected None, 1 .* got 0"),
        ({"typestr": ">f4"}, BufferError, "byte order"),
        ({"typestr": "<c8"}, ArgumentTypeError, "dtype"),
        ({"data": (4098, False)}, BufferError, "at a multiple of 4 bytes, got 0x1002"),
    ],
)
@cuda
def test_an_array_that_does_not_fit_is_refused(
    bench: Bench, facts: dict[str, Any], error: type[Exception], words: str
) -> None:
    array = Array(bench.buffer(), **facts)
    bench.quiet()
    with pytest.raises(error, match=words):
        DeviceBuffer.from_cuda_array_interface(array)
    assert bench.driver.slots() == []


@cuda
def test_an_array_of_another_device_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = Array(bench.buffer())
    monkeypatch.setattr(CudaDriver, "pointer_owner", 1)
    with pytest.raises(BufferError, match="on counting:1, expected counting:0"):
        DeviceBuffer.from_cuda_array_interface(array)
    monkeypatch.setattr(CudaDriver, "pointer_owner", 0)
    DeviceBuffer.from_cuda_array_interface(array)


class FunctionWithGradients(FastTensor):
    """Its attribute belongs to another type, so that it has no value here."""

    requires_grad = type(lambda: None).__dict__["__defaults__"]


class TensorWithGradients(FastTensor):
    """An operand of an optimizer."""

    requires_grad = True


@cuda
def test_a_launch_refuses_gradients(bench: Bench) -> None:
    function = bench.function("const f32* x")
    with pytest.raises(ArgumentTypeError, match=r"gradients, .*detach\(\)"):
        function[1, 1](TensorWithGradients(bench.buffer()))
    with pytest.raises(ArgumentTypeError, match="'__defaults__'"):
        function[1, 1](FunctionWithGradients(bench.buffer()))


class RenumberedTensor(Tensor):
    """A tensor of a library with another numbering of devices."""

    number = 0

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> object:
        capsule = super().__dlpack__(stream=stream, max_version=max_version)
        pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_in.restype, pointer_in.argtypes = (
            ctypes.c_void_p,
            (ctypes.py_object, ctypes.c_char_p),
        )
        tensor = pointer_in(capsule, b"dltensor_versioned") + 32
        DLTensor.from_address(tensor).device_id = self.number
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.number


@cuda
def test_the_driver_tells_whose_memory_a_tensor_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two libraries number devices differently when `HIP_VISIBLE_DEVICES` changed between them."""
    tensor = RenumberedTensor(bench.buffer(5))
    fast = FastTensor(bench.buffer(5))
    for number in (0, 1):
        tensor.number = fast.native.device_id = number
        monkeypatch.setattr(CudaDriver, "pointer_owner", 0)
        assert DeviceBuffer.from_dlpack(tensor).size == 5
        passed(bench, (tensor, fast))
        monkeypatch.setattr(CudaDriver, "pointer_owner", 1)
        with pytest.raises(BufferError, match=rf"on counting:1 \(its library says device {number}"):
            DeviceBuffer.from_dlpack(tensor)
    for one in (tensor, fast):
        with pytest.raises(ArgumentTypeError, match=r"memory is on counting:1 \(its library says"):
            passed(bench, (one, None))
    monkeypatch.setattr(CudaDriver, "pointer_owner", None)  # the driver does not know the owner
    with pytest.raises(BufferError, match=r"DLPack device \(2, 1\)"):
        DeviceBuffer.from_dlpack(tensor)


class AskedTensor(Tensor):
    """A type that no other test launches."""


class AskedFastTensor(FastTensor):
    """A type that no other test launches."""


@pytest.mark.parametrize("kind", [AskedTensor, AskedFastTensor])
@cuda
def test_a_launch_asks_whose_memory_a_types_first_tensor_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    """A library's number may equal ours and mean another device; it means the same one later."""
    tensor = kind(bench.buffer())
    function = bench.function("const f32* x")
    monkeypatch.setattr(CudaDriver, "pointer_owner", 1)
    for _ in range(2):
        with pytest.raises(ArgumentTypeError, match=r"memory is on counting:1 \(its library says"):
            function[1, 1](tensor)
    monkeypatch.setattr(CudaDriver, "pointer_owner", 0)
    function[1, 1](tensor)
    monkeypatch.setattr(CudaDriver, "pointer_owner", 1)
    function[1, 1](tensor)


CONSUMER = """
struct Managed { char tensor[48]; void *manager; void (*deleter)(Managed *); };
static Managed *kept;
extern "C" __attribute__((visibility("default"))) void keep(Managed *managed) { kept = managed; }
__attribute__((destructor)) static void end() {
    if (kept != nullptr)
        kept->deleter(kept);
}
"""


def test_a_consumer_may_let_go_after_python_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "consumer.so"
    path.write_bytes(uhal.compile.host(CONSUMER))
    assert check_child(hand_over_for_good, str(path)) == "handed over\n"


def hand_over_for_good(path: str) -> None:
    buffer = DeviceBuffer.from_slice([1, 2, 3], "f32", device="host")
    capsule = buffer.__dlpack__()
    pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_in.restype, pointer_in.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    name = b"used_dltensor"
    ctypes.CDLL(path).keep(ctypes.c_void_p(pointer_in(capsule, b"dltensor")))
    ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), name)
    globals()["name_of_the_capsule"] = name  # the capsule only points to its name
    print("handed over")


def test_cuda_memory_on_another_vendor_is_refused(bench: Bench) -> None:
    array = Array(bench.buffer())
    with pytest.raises(BufferError, match="expected memory of counting:0, got CUDA"):
        DeviceBuffer.from_cuda_array_interface(array)
    with pytest.raises(ArgumentTypeError, match="got int"):
        DeviceBuffer.from_cuda_array_interface(3)


@cuda
def test_the_owner_lives_as_long_as_work_on_its_memory(bench: Bench) -> None:
    owner = Array(bench.buffer())
    reference = weakref.ref(owner)
    stream = bench.busy_stream()
    taken = DeviceBuffer.from_cuda_array_interface(owner)
    use(bench, stream, taken)
    taken.close()
    del owner
    gc.collect()
    assert reference() is not None
    stream.synchronize()
    gc.collect()
    assert reference() is None


@cuda
def test_memory_of_others_never_reaches_the_pool(bench: Bench) -> None:
    owner = bench.buffer(1000)
    before = bench.device.pool_statistics()
    taken = DeviceBuffer.from_cuda_array_interface(Array(owner))
    use(bench, None, taken)
    taken.close()
    assert bench.device.pool_statistics() == before


# -- handing memory out ----------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "waits"), [(None, 1), (1, 1), (2, 2), (OTHER_STREAM,) * 2])
@cuda
def test_a_consumers_stream_waits_for_our_work(bench: Bench, given: Any, waits: int) -> None:
    buffer = bench.buffer()
    stream = bench.busy_stream()
    use(bench, stream, buffer)
    bench.quiet()
    buffer.__dlpack__(stream=given, max_version=(1, 1))
    (wait,) = [a for slot, a in bench.driver.calls if slot == "stream_wait_event"]
    assert wait[0] == waits
    assert "stream_synchronize" not in bench.driver.slots()
    stream.synchronize()


@cuda
def test_a_consumer_may_ask_for_no_order(bench: Bench) -> None:
    buffer = bench.buffer()
    stream = bench.busy_stream()
    use(bench, stream, buffer)
    bench.quiet()
    buffer.__dlpack__(stream=-1, max_version=(1, 1))
    assert bench.driver.slots() == []
    stream.synchronize()


@pytest.mark.parametrize("stream", [0, -2, True, "x"])
@cuda
def test_a_stream_that_is_none_is_refused(bench: Bench, stream: Any) -> None:
    with pytest.raises(BufferError, match="stream:"):
        bench.buffer().__dlpack__(stream=stream)


@cuda
def test_the_array_interface_names_a_stream_behind_our_work(bench: Bench) -> None:
    buffer = bench.buffer(7)
    stream = bench.busy_stream()
    use(bench, stream, buffer)
    bench.quiet()
    facts = buffer.__cuda_array_interface__
    assert facts == {
        "shape": (7,),
        "typestr": "<f4",
        "data": (address_of(buffer), False),
        "version": 3,
        "strides": None,
        "stream": Stream.default().handle,
    }
    (wait,) = [a for slot, a in bench.driver.calls if slot == "stream_wait_event"]
    assert wait[0] == Stream.default().handle
    stream.synchronize()


@cuda
def test_the_array_interface_leaves_out_what_it_cannot_name(bench: Bench) -> None:
    assert not hasattr(bench.buffer(dtype="bf16"), "__cuda_array_interface__")


def test_other_vendors_have_no_cuda_protocols(bench: Bench) -> None:
    assert not hasattr(bench.buffer(), "__cuda_array_interface__")
    assert not hasattr(Stream(), "__cuda_stream__")


@cuda
def test_a_stream_speaks_cudas_protocol(bench: Bench) -> None:
    with Stream() as stream:
        assert stream.__cuda_stream__() == (0, stream.handle)
        wrapped = Stream.from_handle(stream)
        assert wrapped.handle == stream.handle
        wrapped.close()


# -- streams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ProtocolStream, TorchStream, CupyStream])
@cuda
def test_another_librarys_stream_is_a_stream(bench: Bench, kind: type) -> None:
    foreign = kind(OTHER_STREAM)
    function = bench.function(KERNEL)
    buffer = bench.buffer()
    host = HostBuffer(4, "f32")
    event = Event()
    actions = [
        lambda: launch(function, 1, 1, (buffer, buffer), stream=foreign),
        lambda: function[1, 1, 0, foreign](buffer, buffer),
        lambda: buffer.copy_from(np.zeros(4, "f4"), stream=foreign),
        lambda: buffer.copy_to_async(host, foreign),
        lambda: buffer.set_32(0, stream=foreign),
        lambda: event.record(foreign),
        lambda: DeviceBuffer.zeros(4, "f32", stream=foreign),
        lambda: DeviceBuffer.uninitialized_async(4, "f32", foreign),
    ]
    expected = "launch launch copy_h2d copy_d2h memset_32 event_record memset_8".split()
    bench.quiet()
    for action in actions:
        action()
    seen = [
        slot
        for slot, arguments in bench.driver.calls
        if slot in expected and OTHER_STREAM in arguments
    ]
    assert seen == expected
    bench.device.synchronize()


@cuda
def test_a_stream_keeps_its_books_from_use_to_use(bench: Bench) -> None:
    buffer = bench.buffer()
    bench.driver.busy.add(OTHER_STREAM)
    use(bench, TorchStream(OTHER_STREAM), buffer)
    (address,) = use(bench, TorchStream(OTHER_STREAM), buffer)
    buffer.close()
    # the foreign stream used the memory last, so its next use waits for that stream
    again = bench.buffer()
    bench.quiet()
    assert use(bench, None, again) == [address]
    waits = [a for slot, a in bench.driver.calls if slot == "stream_wait_event"]
    assert len(waits) == 1
    bench.driver.busy.clear()


@cuda
def test_our_own_stream_comes_back_as_itself(bench: Bench) -> None:
    buffer = bench.buffer()
    with Stream() as stream:
        bench.driver.busy.add(stream.handle)
        use(bench, stream, buffer)
        bench.quiet()
        use(bench, TorchStream(stream.handle), buffer)
        assert "stream_wait_event" not in bench.driver.slots()
        bench.driver.busy.clear()


@cuda
def test_the_default_stream_of_another_library(bench: Bench) -> None:
    bench.quiet()
    use(bench, TorchStream(0), bench.buffer())
    (started,) = [a for slot, a in bench.driver.calls if slot == "launch"]
    assert started[8] == 1


@cuda
def test_a_stream_whose_work_is_done_is_asked_no_more(bench: Bench) -> None:
    """The owner may have destroyed the stream; then even a query is a fault."""
    foreign = TorchStream(OTHER_STREAM)
    use(bench, foreign, bench.buffer())
    bench.device.synchronize()
    bench.driver.foreign_streams.discard(OTHER_STREAM)
    bench.device.synchronize()


@cuda
def test_a_lasting_type_is_looked_at_once(bench: Bench) -> None:
    class Passing(TorchStream):
        pass

    use(bench, Passing(OTHER_STREAM), bench.buffer())
    reference = weakref.ref(Passing)
    bench.device.synchronize()
    # the lane keeps the last object that named the foreign stream
    use(bench, TorchStream(OTHER_STREAM), bench.buffer())
    del Passing
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("stream", [7, "x", object(), TorchStream("x"), CupyStream(True)])
@cuda
def test_what_is_no_stream_is_refused(bench: Bench, stream: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="stream"):
        use(bench, stream, bench.buffer())
    with pytest.raises(ArgumentTypeError, match="stream"):
        bench.buffer().set_8(0, stream=stream)


def test_cudas_streams_on_another_vendor_are_refused(bench: Bench) -> None:
    with pytest.raises(ArgumentTypeError, match="stream"):
        use(bench, TorchStream(OTHER_STREAM), bench.buffer())


# -- peers -----------------------------------------------------------------------------------------


class PeerDriver(CudaDriver):
    reach = True

    def can_access_peer(self, ordinal: int, peer: int) -> bool:
        return self.reach

    def enable_peer_access(self, ordinal: int, peer: int) -> None:
        self.calls.append(("enable_peer_access", (ordinal, peer)))


def test_a_peers_buffer_is_an_argument_once_enabled() -> None:

    with Bench.accounted(PeerDriver()) as bench:
        other = bench.driver.open_context(1).device
        far = DeviceBuffer.uninitialized(4, "f32", device=other)
        with pytest.raises(InvalidHandleError, match="kernel's device"):
            passed(bench, (far, None))
        assert bench.device.can_access_peer(other)
        bench.device.enable_peer_access(other)
        bench.device.enable_peer_access(bench.device)
        assert ("enable_peer_access", (0, 1)) in bench.driver.calls
        assert passed(bench, (far, None)) == [address_of(far), 0]
        # the pool reuses the memory only after the kernels of both devices
        busy = Stream.default().handle
        address = address_of(far)
        bench.driver.busy.add(busy)
        far.close()
        del far
        near = DeviceBuffer.uninitialized(4, "f32", device=other)
        assert address_of(near) != address
        assert bench.driver.busy == {busy}
        bench.driver.busy.clear()
        Stream.default().synchronize()
        assert address_of(DeviceBuffer.uninitialized(4, "f32", device=other)) == address
        del other, near
    gc.collect()


def test_devices_that_do_not_reach_each_other_say_so(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(PeerDriver, "reach", False)
    with Bench.accounted(PeerDriver()) as bench:
        other = bench.driver.open_context(1).device
        assert not bench.device.can_access_peer(other)
        with pytest.raises(NotSupportedError, match="cannot reach"):
            bench.device.enable_peer_access(other)
        with pytest.raises(ArgumentTypeError, match=r"peer: expected a uhal\.Device"):
            bench.device.can_access_peer(1)  # type: ignore[arg-type]
        del other
    gc.collect()


# -- processes -------------------------------------------------------------------------------------


class IpcDriver(CudaDriver):
    def ipc_export(self, address: int) -> bytes:
        return address.to_bytes(8, "little")

    def ipc_open(self, handle: bytes) -> int:
        self.calls.append(("ipc_open", ()))
        return int.from_bytes(handle, "little")

    def ipc_close(self, address: int) -> None:
        self.calls.append(("ipc_close", (address,)))


@pytest.mark.bench(driver=IpcDriver)
def test_a_buffer_travels_as_its_segment_and_its_place_in_it(bench: Bench) -> None:
    import pickle

    bench.buffer(100)
    buffer = bench.buffer(1000)
    view = buffer[10:20]
    handle = pickle.loads(pickle.dumps(view.ipc_handle()))
    assert isinstance(handle, IpcHandle)
    taken = DeviceBuffer.from_ipc_handle(handle)
    assert (taken.size, taken.dtype.name) == (10, "f32")
    assert address_of(taken) == address_of(view)
    opened = int.from_bytes(handle.native, "little")
    taken.close()
    assert ("ipc_close", (opened,)) in bench.driver.calls


@pytest.mark.bench(driver=IpcDriver)
def test_only_memory_of_the_pool_travels(bench: Bench) -> None:
    with Stream() as stream:
        native = DeviceBuffer.uninitialized_async(4, "f32", stream, native=True)
        foreign = DeviceBuffer.from_cuda_array_interface(Array(bench.buffer()))
        for buffer in (native, foreign, bench.buffer(0)):
            with pytest.raises(NotSupportedError, match="expected memory of the pool"):
                buffer.ipc_handle()
        native.close()


@pytest.mark.bench(driver=IpcDriver)
def test_a_handle_of_another_backend_is_refused(bench: Bench) -> None:
    handle = IpcHandle("other", b"", 0, 1, "f32")
    with pytest.raises(InvalidHandleError, match="got one of other"):
        DeviceBuffer.from_ipc_handle(handle)
    with pytest.raises(ArgumentTypeError, match="IpcHandle"):
        DeviceBuffer.from_ipc_handle(b"")  # type: ignore[arg-type]


def test_a_vendor_without_it_says_so(bench: Bench) -> None:
    buffer = bench.buffer()
    with pytest.raises(NotSupportedError, match="counting: memory cannot be shared"):
        buffer.ipc_handle()
    with pytest.raises(NotSupportedError, match="counting: memory of another process"):
        DeviceBuffer.from_ipc_handle(IpcHandle("counting", b"", 0, 1, "f32"))
    with pytest.raises(NotSupportedError, match="do not reach host memory"):
        _ = HostBuffer(4, "f32", mapped=True).device_ptr
    with pytest.raises(ArgumentValueError, match="mapped=True"):
        _ = HostBuffer(4, "f32").device_ptr
    with pytest.raises(DeviceError, match="limit of dynamic shared memory is fixed"):
        bench.function("").set_max_dynamic_shared_bytes(1)


# -- torch, where it is installed ------------------------------------------------------------------


def test_torch_tensors_on_the_host(bench: Bench) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    assert passed(bench, (tensor, None)) == [tensor.data_ptr(), 0]
    assert passed(bench, (tensor[1:], None)) == [tensor[1:].data_ptr(), 0]
    with pytest.raises(ArgumentTypeError, match="C-contiguous"):
        passed(bench, (tensor.T, None))
    with pytest.raises(ArgumentTypeError, match="its elements are f64"):
        passed(bench, (tensor.double(), None))
    half = torch.zeros(4, dtype=torch.bfloat16)
    assert passed(bench, (half,), "bf16* x") == [half.data_ptr()]
    taken = DeviceBuffer.from_dlpack(tensor)
    assert np.array_equal(taken.to_numpy(), np.arange(12, dtype="f4"))
    with pytest.raises(ArgumentTypeError, match=r"gradients, .*detach\(\)"):
        passed(bench, (torch.nn.Parameter(tensor), None))
    assert passed(bench, (torch.nn.Parameter(tensor).detach(), None)) == [tensor.data_ptr(), 0]
    with pytest.raises(BufferError, match=r"storage$"):
        DeviceBuffer.from_dlpack(tensor.to_sparse())


class Capsule(ctypes.Structure):
    """The beginning of DLPack's versioned structure."""

    _fields_: ClassVar = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    ]


READ_ONLY, COPIED = 1, 2


@cuda
def test_a_capsule_says_whether_it_is_a_copy_or_read_only(bench: Bench) -> None:
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    buffer = bench.buffer()
    frozen = DeviceBuffer.from_cuda_array_interface(Array(buffer, data=(address_of(buffer), True)))
    assert frozen.readonly
    for given, copy, expected in (
        (buffer, None, 0),
        (buffer, False, 0),
        (buffer, True, COPIED),
        (frozen, None, READ_ONLY),
        (frozen, False, READ_ONLY),
        (frozen, True, COPIED),
    ):
        capsule = given.__dlpack__(max_version=(1, 0), copy=copy)
        found = Capsule.from_address(pointer_of(capsule, b"dltensor_versioned"))
        assert (found.major, found.flags) == (1, expected)
    for given, copy in ((buffer, None), (buffer, True), (frozen, True)):
        given.__dlpack__(copy=copy)
    for copy in (None, False):
        with pytest.raises(BufferError, match=r"needs DLPack 1\.0"):
            frozen.__dlpack__(copy=copy)


@pytest.mark.bench(driver=IpcDriver)
def test_memory_of_another_process_is_reused_only_after_the_whole_device(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    monkeypatch.setattr(bench.driver, "synchronize_device", waited.append)
    buffer = bench.buffer(1000)
    (address,) = use(bench, None, buffer)
    buffer[10:20].ipc_handle()
    buffer.close()
    assert waited == []
    again = bench.buffer(1000)
    assert waited == [0] and use(bench, None, again) == [address]
