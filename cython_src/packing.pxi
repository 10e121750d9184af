# The geometry and the arguments of a launch, read and checked.
#
# What is right is decided here; what is wrong, and the rare conversions, in uhal/arguments.py, which
# says every word.

cdef struct Packed:
    # Where the arguments of one launch lie, on the stack unless there are very many.
    unsigned char *bytes
    void **pointers
    void **blocks           # Block objects the launch uses, borrowed from the arguments
    Py_ssize_t block_count
    PyObject *foreign       # list of other libraries' memory and streams, owned; null: none
    PyObject *core          # the StreamCore it goes to, borrowed
    const uhal_launch_config *extended   # null: an ordinary launch
    bint ran_python         # while packing: buffers packed before may be closed by now


# -- geometry ----------------------------------------------------------------------------------------


cdef inline int read_dimensions(object given, unsigned int *out) noexcept:
    """1 when `given` is an int or a tuple of one to three that fit 32 bits, else 0."""
    cdef Py_ssize_t axis, count
    out[1] = out[2] = 1
    if PyTuple_CheckExact(given):
        count = PyTuple_GET_SIZE(given)
        if count < 1 or count > 3:
            return 0
        for axis in range(count):
            if not read_dimension(<object>PyTuple_GET_ITEM(given, axis), &out[axis]):
                return 0
        return 1
    return read_dimension(given, &out[0])


cdef inline int read_dimension(object given, unsigned int *out) noexcept:
    cdef int overflow = 0
    cdef long long value
    if not PyLong_CheckExact(given):
        return read_other_dimension(given, out)
    value = PyLong_AsLongLongAndOverflow(given, &overflow)
    if overflow or value < 0 or value > 0xFFFFFFFF:
        return 0
    out[0] = <unsigned int>value
    return 1


cdef int read_other_dimension(object given, unsigned int *out) noexcept:
    """numpy's integers and their like; bool is no size."""
    try:
        if isinstance(given, (bool, _numpy.bool_)):
            return 0
        value = _operator.index(given)
        if not 0 <= value <= 0xFFFFFFFF:
            return 0
        out[0] = value
        return 1
    except Exception:
        return 0  # refused, in words, by uhal/arguments.py


cdef inline int read_geometry(
    Function function, object grid, object block, object shared,
    unsigned int *geometry, unsigned int *shared_bytes
) except -1:
    """Fill geometry and shared_bytes, or raise what is wrong with them."""
    cdef int axis
    cdef bint good = (
        read_dimensions(grid, geometry)
        and read_dimensions(block, geometry + 3)
        and read_dimension(shared, shared_bytes)
    )
    if good:
        for axis in range(3):
            if geometry[axis] - 1 >= function.max_grid[axis]:
                good = False
            if geometry[3 + axis] - 1 >= function.max_block[axis]:
                good = False
            if <uint64_t>geometry[axis] * geometry[3 + axis] > function.max_grid_threads:
                good = False
    if (
        not good
        or <uint64_t>geometry[3] * geometry[4] * geometry[5] > function.max_threads
        or shared_bytes[0] > function.max_shared
    ):
        words().refuse_geometry(function, grid, block, shared)
        raise SystemError("uhal.arguments.refuse_geometry returned")
    return 0


cdef StreamCore stream_of_launch(Function function, object stream):
    if stream is None:
        return function.context.default_core
    if not isinstance(stream, Stream) or (<Stream>stream).context is not function.context:
        return foreign_stream_of_launch(function, stream)
    return (<Stream>stream).core


cdef StreamCore foreign_stream_of_launch(Function function, object stream):
    cdef StreamCore core = None
    if not isinstance(stream, Stream):
        core = foreign_core(function.context, stream)
    if core is None:
        words().refuse_stream(function, stream)
    return core


cdef int refuse_closed(Function function, StreamCore core) except -1:
    require_usable(function.context)
    words().refuse_closed(function, "Module" if function.module.closed else "Stream")


# -- arguments ---------------------------------------------------------------------------------------


cdef inline int pack_one(
    Function function, Py_ssize_t index, PyObject *argument, Packed *packed
) except -1:
    """Put one argument into its slot; everything out of the ordinary goes to `pack_rare`."""
    cdef Slot *slot = &function.slots[index]
    cdef unsigned char *out = packed.bytes + slot.offset
    cdef char code = slot.code
    cdef DeviceBuffer buffer
    cdef long long value
    cdef int overflow = 0
    cdef double number
    if code == c'P' or (code == c'U' and slot.size == sizeof(uint64_t)):
        if PyObject_TypeCheck(argument, <PyTypeObject *>DeviceBuffer):
            buffer = <DeviceBuffer>argument
            if (
                buffer.context is function.context
                and not buffer_closed(buffer)
                and (slot.dtype == NULL or slot.dtype == <PyObject *>buffer.dtype)
                and (slot.is_const or not buffer.readonly)
            ):
                (<uint64_t *>out)[0] = buffer.address
                if buffer.block is not None:
                    packed.blocks[packed.block_count] = <void *>buffer.block
                    packed.block_count += 1
                return 0
        elif argument == Py_None:
            (<uint64_t *>out)[0] = 0
            return 0
        # asking another library's object for its memory runs Python code too
        packed.ran_python = True
        if take_foreign(function, index, argument, slot, out, packed):
            return 0
        return pack_rare(function, index, argument, out, slot.size, packed)
    if PyLong_CheckExact(<object>argument):
        value = PyLong_AsLongLongAndOverflow(<object>argument, &overflow)
        if overflow == 0:
            if code == c'i':
                if -2147483648LL <= value <= 2147483647LL:
                    (<int32_t *>out)[0] = <int32_t>value
                    return 0
            elif code == c'I':
                if 0 <= value <= 4294967295LL:
                    (<uint32_t *>out)[0] = <uint32_t>value
                    return 0
            elif code == c'q':
                (<int64_t *>out)[0] = value
                return 0
            elif code == c'Q':
                if value >= 0:
                    (<uint64_t *>out)[0] = <uint64_t>value
                    return 0
            elif code == c'f':
                (<float *>out)[0] = <float>value
                return 0
            elif code == c'd':
                (<double *>out)[0] = <double>value
                return 0
        return pack_rare(function, index, argument, out, slot.size, packed)
    if PyFloat_CheckExact(<object>argument):
        number = PyFloat_AS_DOUBLE(<object>argument)
        if code == c'f':
            if fabs(number) <= FLT_MAX or not isfinite(number):
                (<float *>out)[0] = <float>number
                return 0
        elif code == c'd':
            (<double *>out)[0] = number
            return 0
        return pack_rare(function, index, argument, out, slot.size, packed)
    if code == c'?' and (argument == Py_True or argument == Py_False):
        out[0] = argument == Py_True
        return 0
    if uhal_numpy_scalar(argument, code, out):
        return 0
    return pack_rare(function, index, argument, out, slot.size, packed)


cdef int pack_rare(
    Function function, Py_ssize_t index, PyObject *argument, unsigned char *out, uint32_t size,
    Packed *packed
) except -1:
    packed.ran_python = True
    cdef bytes converted = words().pack(function, index, <object>argument)
    if len(converted) != size:
        raise SystemError(f"uhal.arguments.pack returned {len(converted)} bytes for {size}")
    memcpy(out, <const char *>converted, size)
    return 0


cdef bytes pack_untyped(Function function, Py_ssize_t index, object argument, Packed *packed):
    cdef DeviceBuffer buffer
    cdef uint64_t address = 0
    if isinstance(argument, DeviceBuffer):
        buffer = <DeviceBuffer>argument
        if buffer.context is function.context and not buffer_closed(buffer) and not buffer.readonly:
            return (<const char *>&buffer.address)[:sizeof(buffer.address)]
    elif take_foreign(
        function, index, <PyObject *>argument, NULL, <unsigned char *>&address, packed
    ):
        return (<const char *>&address)[:sizeof(address)]
    return words().pack_untyped(function, index, argument)
