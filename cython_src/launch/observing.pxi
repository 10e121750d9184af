# Reports work outside of recorded sequences to an observer before it is enqueued. A trace needs
# these reports: an unreported launch or copy would be missing from every later run.

cdef extern from "launch/observed.h":
    int uhal_in_sequence


cdef int tell_observer(Context context, StreamCore core, tuple work) except -1:
    """Call `observer(kind, *details)`; its exception refuses the work."""
    observer = context.observer
    if observer is None or uhal_in_sequence:
        return 0
    if core is not None and core.state.word & UHAL_STATE_CAPTURING:
        return 0    # the plan keeps it
    observer(*work)
    return 0


cdef int tell_of_launch(
    Function function, StreamCore core, const unsigned int *geometry, unsigned int shared_bytes,
    PyObject **arguments, Py_ssize_t given, const uhal_launch_config *extended
) except -1:
    values = tuple([<object>arguments[index] for index in range(given)])
    grid = geometry[0], geometry[1], geometry[2]
    block = geometry[3], geometry[4], geometry[5]
    return tell_observer(
        function.context, core,
        ("launch", function, grid, block, shared_bytes, values, extended != NULL),
    )


# Called through a pointer: the compiler would inline a function with one caller into every launch.
cdef int (*launch_teller)(
    Function, StreamCore, const unsigned int *, unsigned int, PyObject **, Py_ssize_t,
    const uhal_launch_config *
) except -1
launch_teller = tell_of_launch
