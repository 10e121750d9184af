# Reads callers' integers of any size, so that an error can name a value that is too large.


cdef object read_index(str role, object value):
    """A Python or numpy int of any size; bool does not count."""
    if not isinstance(value, (bool, _numpy.bool_)):
        try:
            return _operator.index(value)
        except TypeError:
            pass    # an array has `__index__`, too
    raise _errors.ArgumentTypeError(f"{role}: expected an int, got {type(value).__name__}")


cdef object read_extent(str role, object value):
    """An int of 0 or more. Its size has no limit, so that sums do not wrap around."""
    extent = read_index(role, value)
    if extent < 0:
        raise _errors.ArgumentValueError(f"{role}: expected 0 or more, got {extent}")
    return extent


cdef Py_ssize_t read_number(
    str role, object value, Py_ssize_t least=0, Py_ssize_t most=PY_SSIZE_T_MAX
) except? -1:
    number = read_index(role, value)
    if not least <= number <= most:
        raise _errors.ArgumentRangeError(
            f"{role}: expected an int in {least}…{most}, got {number}"
        )
    return number
