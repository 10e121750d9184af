# Habits of arrays that a buffer refuses. `ubridge` has tensors with shapes and arithmetic.

cdef object refuse_operator(str symbol, object left, object right):
    """Refuse an operator, unless the other operand's type may define the operator itself."""
    other = right if isinstance(left, DeviceBuffer) else left
    if not isinstance(other, (DeviceBuffer, HostBuffer, int, float, complex, list, tuple)):
        return NotImplemented
    refuse_arithmetic(
        f"operator {symbol}", f"{type(left).__name__} and {type(right).__name__}"
    )


cdef object refuse_arithmetic(str called, str given):
    raise _errors.ArgumentTypeError(
        f"{called}: expected tensors, got {given}. Make a tensor over its memory, "
        "ubridge.DeviceTensor(buffer), or launch a kernel."
    )


cdef object refuse_array(str called):
    raise _errors.ArgumentTypeError(
        f"{called}: expected an array, got a HostBuffer. Write buffer.array, its memory as an "
        "array of numpy."
    )


cdef object refuse_number(str called, object buffer):
    raise _errors.ArgumentTypeError(
        f"{called}: expected a number, got {type(buffer).__name__}. Copy it to the host: "
        "buffer.to_numpy()[0]."
    )


cdef object refuse_ufunc(object ufunc):
    name = getattr(ufunc, "__name__", ufunc)
    raise _errors.ArgumentTypeError(
        f"np.{name}: expected numpy arrays, got a DeviceBuffer. Copy it to the host with "
        "buffer.to_numpy(), or compute on the device with ubridge.DeviceTensor(buffer)."
    )


cdef object refuse_assignment(object elements):
    part = "2:8" if isinstance(elements, slice) else "i : i + 1"
    raise _errors.ArgumentTypeError(
        f"expected a copy, got an assignment to elements of a DeviceBuffer. Call "
        f"buffer[{part}].copy_from(array), or assign to ubridge.DeviceTensor(buffer)."
    )
