# Habits of arrays that a buffer refuses. `ubridge` has tensors with shapes and arithmetic.

cdef bint has_values(object operand) except -1:
    """Whether an operand beside a buffer has values that an operator of arrays would compute with.

    Another type may define the operator itself, or be unequal.
    """
    return isinstance(operand, (DeviceBuffer, HostBuffer, int, float, complex, list, tuple))


cdef object refuse_operator(str symbol, object left, object right):
    """Refuse an operator."""
    if not has_values(right if isinstance(left, DeviceBuffer) else left):
        return NotImplemented
    refuse_arithmetic(
        f"operator {symbol}", f"{type(left).__name__} and {type(right).__name__}"
    )


cdef object refuse_equality(str symbol, object left, object right):
    """Refuse a comparison that arrays make by element, and that Python would make by identity.

    A buffer equals itself: weak dictionaries ask.
    """
    if left is right:
        return symbol == "=="
    if not has_values(right):
        return NotImplemented
    is_device = isinstance(left, DeviceBuffer)
    values = "buffer.to_numpy() or ubridge.DeviceTensor(buffer)" if is_device else "buffer.array"
    raise _errors.ArgumentTypeError(
        f"operator {symbol}: expected tensors, got {type(left).__name__} and "
        f"{type(right).__name__}. Compare values with {values}; for the same buffer write a is b."
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
    part = "i : i + 1"
    if isinstance(elements, slice):
        part = ":".join("" if end is None else str(end) for end in (elements.start, elements.stop))
    raise _errors.ArgumentTypeError(
        f"expected a copy, got an assignment to elements of a DeviceBuffer. Call "
        f"buffer[{part}].copy_from(array), or assign to ubridge.DeviceTensor(buffer)."
    )
