# A launch whose result is a buffer: allocating it and launching are one call, and the arguments that
# are always the same are kept. For kernels on few elements, which take less time than the way there.


@cython.nonecheck(True)
@cython.final
@cython.no_gc_clear
cdef class ResultLaunch:
    """ResultLaunch(bound, head, place, size, dtype, tail=())\n--\n
    A bound launch that returns the buffer its kernel writes.

    `launch(stream, out, *operands)` passes the arguments of `head`, the first `place` operands, the
    result, the other operands and the arguments of `tail`. The result is `out`, or where that is
    None a new buffer of `size` elements of `dtype` in the order of the stream. `stream` None is the
    one that was bound.
    The arguments of every call are checked; whether `out` is large enough is for the caller to
    know. Raises as `launch` does. Any thread may call it.
    """

    cdef uhal_vectorcall vectorcall
    cdef BoundLaunch bound
    cdef tuple head
    cdef tuple tail
    cdef Py_ssize_t place
    cdef object size
    cdef Element element

    def __init__(
        self, BoundLaunch bound not None, tuple head not None, Py_ssize_t place, size, dtype,
        tuple tail not None=(),
    ):
        if self.bound is not None:
            raise RuntimeError("a ResultLaunch is initialised once")
        if bound.is_empty or bound.extended is not None:
            raise ValueError("bound: expected a launch of a grid and a block, and nothing else")
        if place < 0:
            raise ValueError(f"place: expected 0 or more operands before the result, got {place}")
        self.element = element_of(dtype)
        element_count(size, self.element)
        self.size = size
        self.head = head
        self.tail = tail
        self.place = place
        self.bound = bound
        self.vectorcall = <uhal_vectorcall>call_for_result

    def __getattr__(self, name):
        return signature_or_nothing(self, name, _called_for_result)


cdef object call_for_result(object callee, PyObject **given, size_t flags, PyObject *keywords):
    """`launch(stream, out, *operands)`."""
    cdef ResultLaunch launch = <ResultLaunch>callee
    cdef BoundLaunch bound = launch.bound
    cdef Context context = bound.function.context
    cdef PyObject *arguments[STACK_PARAMETERS]
    cdef Py_ssize_t index, head = PyTuple_GET_SIZE(launch.head)
    cdef Py_ssize_t operands = PyVectorcall_NARGS(flags) - 2
    cdef Py_ssize_t result = head + launch.place
    cdef Py_ssize_t tail = PyTuple_GET_SIZE(launch.tail), count = head + operands + 1 + tail
    cdef StreamCore core = None
    if keywords != NULL and PyTuple_GET_SIZE(<object>keywords):
        words().refuse_keywords(bound.function, <object>keywords)
    if operands < launch.place or count > STACK_PARAMETERS:
        raise TypeError(
            f"{bound.function.name}: expected stream, out and {launch.place} or more operands, got "
            f"{operands + 2} arguments"
        )
    if given[0] != Py_None:
        core = core_for(context, <object>given[0])
    if given[1] != Py_None:
        made = <object>given[1]
    else:
        require_usable(context)
        made = new_buffer(DeviceBuffer, context, launch.size, launch.element, core)
    for index in range(head):
        arguments[index] = PyTuple_GET_ITEM(launch.head, index)
    for index in range(launch.place):
        arguments[head + index] = given[2 + index]
    arguments[result] = <PyObject *>made
    for index in range(launch.place, operands):
        arguments[head + index + 1] = given[2 + index]
    for index in range(tail):
        arguments[count - tail + index] = PyTuple_GET_ITEM(launch.tail, index)
    launch_checked(
        bound.function, bound.core if core is None else core, bound.geometry, bound.shared_bytes,
        arguments, count, NULL,
    )
    return made


cdef ResultLaunch _result_layout = ResultLaunch.__new__(ResultLaunch)
uhal_enable_vectorcall(
    ResultLaunch, <char *>&_result_layout.vectorcall - <char *><PyObject *>_result_layout
)
