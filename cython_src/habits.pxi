# Names and keywords of other libraries: `uhal.habits` has the advice.

cdef int refuse_names() except -1:
    for owner, table in (
        (DeviceBuffer, _habits.OF_BUFFER),
        (HostBuffer, _habits.OF_HOST_BUFFER),
        (Stream, _habits.OF_STREAM),
        (Event, _habits.OF_EVENT),
        (Device, _habits.OF_DEVICE),
        (Function, _habits.OF_FUNCTION),
    ):
        uhal_add_attributes(owner, _habits.absent(table))
    return 0


cdef int refuse_keywords(str name, str expected, dict unknown) except -1:
    for keyword in unknown:
        advice = _habits.KEYWORDS.get(keyword, "Use these names.")
        raise _errors.ArgumentTypeError(
            f"{name}: expected {expected}, got {keyword}=. {advice}"
        )
    return 0


cdef object refuse_kind(str role, str expected, object value, str advice):
    """Raise the error for an argument of another type."""
    raise _errors.ArgumentTypeError(
        f"{role}: expected {expected}, got {type(value).__name__}. {advice}"
    )
