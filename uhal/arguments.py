"""All messages about wrong launches, and conversions too rare for the compiled lane.

The lane packs ordinary arguments itself and calls in here only when a value is not ordinary: each
function either returns the parameter's bytes or raises in the shape of `uhal._refusal`. Nothing
here makes a native call.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any, NoReturn

import numpy as np

from uhal._geometry import read_extended, refuse_call, refuse_extended, refuse_geometry
from uhal._lane import DeviceBuffer, DevicePointer, Function, HostBuffer, PlanSlot, Stream
from uhal._refusal import argument_name, call_site, counted, describe, describe_size, refuse
from uhal._small_floats import pack_small_float
from uhal.dtypes import DType, as_dtype
from uhal.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    InvalidHandleError,
)
from uhal.signature import POINTER_BYTES, Parameter

__all__ = [
    "call_site",
    "pack",
    "pack_untyped",
    "read_extended",
    "refuse_call",
    "refuse_closed",
    "refuse_count",
    "refuse_extended",
    "refuse_foreign",
    "refuse_function",
    "refuse_peer",
    "refuse_geometry",
    "refuse_keywords",
    "refuse_stream",
]


def pack(function: Function, index: int, value: object) -> bytes:
    """Return the bytes of parameter `index` for `value`, in the parameter's size.

    Raises `ArgumentTypeError`, `ArgumentValueError`, `ArgumentRangeError` or `InvalidHandleError`.
    """
    if function.signature is None:
        return pack_untyped(function, index, value)
    parameter = function.signature[index]
    packer = _Packer(function, index)
    value = _our_pointer(value)
    if parameter.kind == "pointer":
        return packer.pointer(value, parameter.dtype, written=not parameter.is_const)
    if parameter.kind == "aggregate":
        return packer.aggregate(value, parameter)
    if parameter.kind == "scalar" and parameter.dtype is not None:
        return packer.scalar(value, parameter.dtype)
    if parameter.is_integer and parameter.size is not None:
        return packer.integer(value, parameter.size)
    return packer.typed(value, parameter)


def pack_untyped(function: Function, index: int, value: object) -> bytes:
    """Return the bytes of `value` for a kernel with an unknown signature: typed values only."""
    return _Packer(function, index).typed(_our_pointer(value), None)


def refuse_count(function: Function, given: int) -> NoReturn:
    """Raise the error of `given` arguments where the signature has another number."""
    signature = function.signature
    expected = "other" if signature is None else counted(len(signature), "argument")
    listed = f" ({signature.declaration})" if signature else ""
    _refuse_at(
        f"{function.name}, arguments",
        f"expected {expected}{listed}, got {given}",
        ArgumentTypeError,
        function,
    )


def refuse_keywords(function: Function, names: tuple[str, ...]) -> NoReturn:
    """Raise the error of kernel arguments given by name."""
    listed = ", ".join(f"{name}=…" for name in names)
    problem = f"expected positional arguments in the kernel's order, got {listed}"
    if "stream" in names:
        problem = f"{problem}; a stream is given by {function.name}[grid, block, 0, stream]"
    _refuse_at(f"{function.name}, arguments", problem, ArgumentTypeError, function)


def refuse_closed(function: Function, noun: str) -> NoReturn:
    """Raise the error of a closed module or stream."""
    problem = f"expected an open {noun}, got a closed one"
    _refuse_at(f"{function.name}, {noun.lower()}", problem, InvalidHandleError, function)


def refuse_stream(function: Function, stream: object) -> NoReturn:
    """Raise the error of a `stream` that is no open stream of the function's device."""
    where = f"{function.name}, stream"
    if not isinstance(stream, Stream):
        advice = ""
        if function.context.backend.stream_refusal:
            advice = f"; {function.context.backend.stream_refusal}"
        elif isinstance(stream, int) or hasattr(stream, "__cuda_stream__"):
            advice = "; another library's stream comes in by Stream.from_handle(stream)"
        problem = f"expected a Stream or None, got {describe(stream)}{advice}"
        _refuse_at(where, problem, ArgumentTypeError, function)
    if stream.closed:
        refuse_closed(function, "Stream")
    _refuse_at(where, _foreign("Stream", stream, function), InvalidHandleError, function)


def refuse_foreign(function: Function, index: int, value: object, reason: str) -> NoReturn:
    """Raise the error of another library's memory in this parameter; `reason` says why."""
    context = function.context
    element = None if function.signature is None else function.signature[index].dtype
    memory = "memory" if element is None else f"memory of {element}"
    problem = (
        f"expected {memory} on {context.backend_name}:{context.ordinal}, got {describe(value)}: "
        f"{reason.rstrip('.')}"
    )
    _refuse_at(argument_name(function, index), problem, ArgumentTypeError, function)


def refuse_function(value: object) -> NoReturn:
    """Raise the error of launching an object that is no kernel."""
    advice = "; take one from a module: module.get_function(name)"
    problem = f"expected a Function, got {describe(value)}{advice}"
    refuse("launch, function", problem, ArgumentTypeError, None)


def refuse_peer(value: object) -> NoReturn:
    """Raise the error of an object given as another device that is no device."""
    raise ArgumentTypeError(f"peer: expected a uhal.Device, got {describe(value)}")


def _refuse_at(where: str, problem: str, error: type[DeviceError], function: Function) -> NoReturn:
    refuse(where, problem, error, function.context.backend_name)


def _foreign(noun: str, thing: Any, function: Function) -> str:
    """Say that `thing` is on another device, or from an earlier opening of the same device."""
    context = function.context
    expected = f"{context.backend_name}:{context.ordinal}"
    device = thing.device
    found = f"{device.backend}:{device.ordinal}"
    if found == expected:
        found += " as it was before Device.close()"
    return f"expected a {noun} of {expected}, the kernel's device, got one of {found}"


class _Packer:
    """Packs one argument of one launch, or refuses it by name."""

    def __init__(self, function: Function, index: int) -> None:
        self._function = function
        self._index = index

    def pointer(self, value: object, element: DType | None, *, written: bool = True) -> bytes:
        """Take a DeviceBuffer of the element type, a DevicePointer or None."""
        if value is None:
            return bytes(POINTER_BYTES)
        if isinstance(value, DevicePointer):
            return value.address.to_bytes(POINTER_BYTES, "little")
        if isinstance(value, DeviceBuffer):
            return self._buffer(value, element, written)
        wanted = "DeviceBuffer" if element is None else f"DeviceBuffer of {element}"
        self._fail(
            f"expected a {wanted}, DevicePointer or None, got {describe(value)}"
            f"{_pointer_advice(value, element)}"
        )

    def _buffer(self, buffer: DeviceBuffer, element: DType | None, written: bool) -> bytes:
        if buffer.closed:
            self._fail("expected an open DeviceBuffer, got a closed one", InvalidHandleError)
        if not self._reaches(buffer):
            self._fail(_foreign("DeviceBuffer", buffer, self._function), InvalidHandleError)
        if element is not None and buffer.dtype is not element:
            self._fail(
                f"expected a DeviceBuffer of {element}, got {describe(buffer)}; "
                f"{_conversion_advice(buffer.dtype, element)}"
            )
        if written and buffer.readonly:
            self._fail(
                "the kernel may write through this parameter: expected a writable DeviceBuffer, "
                "got one that describes read-only memory; copy it into a buffer of your own"
            )
        return buffer.as_device_ptr().address.to_bytes(POINTER_BYTES, "little")

    def _reaches(self, buffer: DeviceBuffer) -> bool:
        """Say whether the kernel's device may use the buffer: its own, or an enabled peer's."""
        own, other = self._function.context, buffer.device.context
        if other is own:
            return True
        return other.backend is own.backend and other.ordinal in own.peers

    def aggregate(self, value: object, parameter: Parameter) -> bytes:
        """Take the bytes of a structure passed by value."""
        data = _structure_bytes(value)
        if data is None:
            expected = counted(parameter.size or 0, "byte")
            self._fail(
                f"expected {expected} (bytes, numpy.void or a ctypes structure), got "
                f"{describe(value)}"
            )
        return self._sized(data, parameter.size, value)

    def typed(self, value: object, parameter: Parameter | None) -> bytes:
        """Take a value with its own width, for a parameter of unknown type."""
        size = None if parameter is None else parameter.size
        may_point = size in (None, POINTER_BYTES) and (
            parameter is None or parameter.kind == "unknown"
        )
        if may_point and (value is None or isinstance(value, (DeviceBuffer, DevicePointer))):
            return self.pointer(value, None)
        sized = _sized_scalar(value)
        data = _structure_bytes(value) if sized is None else sized[2]
        if data is not None:
            return self._sized(data, size, value)
        width = "" if size is None else f" of {counted(size, 'byte')}"
        pointers = "DeviceBuffer, DevicePointer, None, " if may_point else ""
        self._fail(
            f"expected a sized value{width} ({pointers}numpy or ctypes scalar, bytes) because the "
            f"parameter's type is unknown, got {describe(value)}; get_function(name, signature) "
            f"can tell it"
        )

    def _sized(self, data: bytes, size: int | None, value: object) -> bytes:
        if size is not None and len(data) != size:
            expected = counted(size, "byte")
            self._fail(
                f"expected {expected}, got {describe(value)} of {counted(len(data), 'byte')}"
            )
        return data

    def scalar(self, value: object, dtype: DType) -> bytes:
        """Take a Python number, or a sized scalar of the same width."""
        sized = _sized_scalar(value)
        if sized is not None:
            found, plain, data = sized
            if found is dtype:
                return data
            integers = {"int", "uint"}
            if found.itemsize != dtype.itemsize or not {found.kind, dtype.kind} <= integers:
                advice = ""
                if "bool" not in (found.kind, dtype.kind):
                    advice = f": a sized scalar must be {dtype}, a plain Python number is converted"
                self._fail(f"expected {_wanted(dtype)}, got {describe(value)}{advice}")
            return self._integer(plain, dtype, value)
        if dtype.kind == "bool" and isinstance(value, bool):
            return bytes((value,))
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if is_integer and dtype.kind in ("int", "uint"):
            return self._integer(value, dtype, value)
        if dtype.kind == "float" and (is_integer or isinstance(value, float)):
            return self._float(value, dtype)
        advice = _scalar_advice(value)
        self._fail(f"expected {_wanted(dtype)}, got {describe(value)}{advice}")

    def integer(self, value: object, size: int) -> bytes:
        """Take an integer of unknown signedness: any value that its bytes can hold.

        Compilers also pass a bool in one byte.
        """
        low, high = -(1 << 8 * size - 1), (1 << 8 * size) - 1
        wanted = f"an int in {low}…{high}"
        sized = _sized_scalar(value)
        if sized is not None:
            dtype, _, data = sized
            kinds = ("int", "uint", "bool") if size == 1 else ("int", "uint")
            if dtype.kind in kinds and dtype.itemsize == size:
                return data
            advice = ""
            if dtype.kind in ("int", "uint"):
                advice = f": a sized scalar must have {counted(size, 'byte')}, an int is fitted"
            self._fail(f"expected {wanted}, got {describe(value)}{advice}")
        data_of_structure = _structure_bytes(value)
        if data_of_structure is not None:
            return self._sized(data_of_structure, size, value)
        if not isinstance(value, int) or (isinstance(value, bool) and size != 1):
            self._fail(f"expected {wanted}, got {describe(value)}{_scalar_advice(value)}")
        if not low <= value <= high:
            self._fail(f"expected {wanted}, got {describe_size(value)}", ArgumentRangeError)
        return (value & high).to_bytes(size, "little")

    def _integer(self, plain: Any, dtype: DType, value: object) -> bytes:
        if not dtype.min <= plain <= dtype.max:
            self._fail(f"expected {_wanted(dtype)}, got {describe_size(value)}", ArgumentRangeError)
        return int(plain).to_bytes(dtype.itemsize, "little", signed=dtype.kind == "int")

    def _float(self, value: Any, dtype: DType) -> bytes:
        try:
            number = float(value)
            if dtype.name in ("f32", "f64"):
                return struct.pack("=f" if dtype.name == "f32" else "=d", number)
            return pack_small_float(dtype.name, number)
        except OverflowError:
            error = ArgumentRangeError if isinstance(value, int) else ArgumentValueError
            self._fail(f"expected {_wanted(dtype)}, got {describe(value)}, which overflows", error)

    def _fail(self, problem: str, error: type[DeviceError] = ArgumentTypeError) -> NoReturn:
        _refuse_at(argument_name(self._function, self._index), problem, error, self._function)


def _our_pointer(value: object) -> object:
    """Return a DevicePointer for a CUdeviceptr of cuda.bindings."""
    kind = type(value)
    if kind.__name__ == "CUdeviceptr" and kind.__module__.startswith("cuda."):
        return DevicePointer(int(value))  # type: ignore[call-overload]
    return value


def _wanted(dtype: DType) -> str:
    if dtype.kind == "bool":
        return "a bool"
    if dtype.kind == "float":
        return f"a float that fits {dtype}"
    return f"an int in {dtype.min}…{dtype.max}"


def _sized_scalar(value: object) -> tuple[DType, Any, bytes] | None:
    """Return element type, Python value and bytes of a numpy or ctypes scalar, else `None`."""
    if isinstance(value, np.generic):
        described: object = value.dtype
    # A ctypes pointer is an address, not a number.
    elif isinstance(value, ctypes._SimpleCData) and not isinstance(value, _CTYPES_POINTERS):
        described = type(value)
    else:
        return None
    try:
        dtype = as_dtype(described)
    except TypeError:
        return None
    if isinstance(value, np.generic):
        return dtype, value.item(), value.tobytes()
    return dtype, value.value, bytes(value)


_CTYPES_POINTERS = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_wchar_p)


def _structure_bytes(value: object) -> bytes | None:
    """Return the bytes of a structure passed by value, `None` when `value` is none."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, np.void):
        return value.tobytes()
    if isinstance(value, (ctypes.Structure, ctypes.Union, ctypes.Array)):
        return bytes(value)
    return None


def _pointer_advice(value: object, element: DType | None) -> str:
    """Say how to make a device pointer of the given value."""
    if isinstance(value, PlanSlot):
        return _slot_advice(value)
    if isinstance(value, np.ndarray):
        return "; copy it to the device: DeviceBuffer.from_numpy(array)"
    if isinstance(value, HostBuffer):
        return "; it is host memory: copy it with DeviceBuffer.from_numpy(host_buffer.array)"
    if hasattr(value, "__dlpack__"):
        return "; take it over with DeviceBuffer.from_dlpack(array)"
    if hasattr(value, "__cuda_array_interface__"):
        return (
            "; a launch needs __cuda_array_interface__ as a property of the class; take it over "
            "with DeviceBuffer.from_cuda_array_interface(array)"
        )
    if isinstance(value, bool):
        return ""
    if isinstance(value, (int, ctypes._Pointer, *_CTYPES_POINTERS)):
        return "; an address is passed as DevicePointer(address)"
    if isinstance(value, (list, tuple)):
        dtype = "dtype" if element is None else f"'{element}'"
        return f"; copy it to the device: DeviceBuffer.from_slice(values, {dtype})"
    return ""


def _conversion_advice(given: DType, element: DType) -> str:
    """Say how to convert values; elements of equal width may also be reinterpreted."""
    advice = f"convert the values before the copy: array.astype({element.numpy_spelling})"
    if given.itemsize == element.itemsize:
        advice += f", or read the same bytes as {element}: buffer.view('{element}')"
    return advice


def _scalar_advice(value: object) -> str:
    """Say how to get a number from the given value."""
    if isinstance(value, np.ndarray) and value.size == 1:
        return "; take the number out: array.item()"
    return _slot_advice(value)


def _slot_advice(value: object) -> str:
    if isinstance(value, PlanSlot):
        return "; a slot is an argument only while its plan is captured"
    return ""
