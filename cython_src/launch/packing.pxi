# The geometry and the arguments of a launch, read and checked.
#
# Correct arguments are handled here. uhal/arguments.py does the rare conversions and raises every
# error.

cdef enum:
    NEEDS_WAITING = 1       # one of its blocks may have to be waited for
    NEEDS_WATCHING = 2      # a profile has a record of it
    NEEDS_HOLDING = 4       # other threads may run, and close what it uses
    NEEDS_CHECKING = 8      # its kernel may report an id out of bounds
    NEEDS_HEARING = 16      # its kernel may fail an assertion
    REPORTS = 3             # the bit that these two begin at


cdef struct Packed:
    # The memory of one launch's arguments, on the stack unless there are very many.
    unsigned char *bytes
    void **pointers
    size_t byte_count
    void **blocks           # Block objects the launch uses, borrowed from the arguments
    Py_ssize_t block_count
    int needs               # before it is handed over: NEEDS_…
    Watched watched         # valid where it needs watching
    PyObject *held          # valid where it needs holding: a list of blocks, owned; null: not yet
    PyObject *foreign       # list of other libraries' memory, owned; null: none
    bint has_producer       # valid with `foreign`: the launch must wait for `producer`
    uintptr_t producer      # another library's stream
    PyObject *core          # the StreamCore it goes to, borrowed
    const uhal_launch_config *extended   # null: an ordinary launch
    bint ran_python         # while packing: buffers packed earlier may be closed by now
    void *memory            # memory of tables that are not on the stack, owned
    PyObject *kept          # other memory that `bytes` and `pointers` point into, owned


# -- geometry --------------------------------------------------------------------------------------


cdef inline int read_dimensions(object given, unsigned int *out) noexcept:
    """Return 1 for one to three ints that fit 32 bits, else 0."""
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
    if overflow or <unsigned long long>value > UINT32_MAX:
        return 0
    out[0] = <unsigned int>value
    return 1


cdef int read_other_dimension(object given, unsigned int *out) noexcept:
    """Read other integers, such as numpy's; a bool is no size."""
    try:
        if isinstance(given, (bool, _numpy.bool_)):
            return 0
        value = _operator.index(given)
        if not 0 <= value <= 0xFFFFFFFF:
            return 0
        out[0] = value
        return 1
    except Exception:
        return 0  # uhal/arguments.py raises the error


cdef inline int read_geometry(
    Function function, object grid, object block, object shared,
    unsigned int *geometry, unsigned int *shared_bytes
) except -1:
    """Fill geometry and shared_bytes, or raise the error for a mistake."""
    if is_known(function, <PyObject *>grid, <PyObject *>block, <PyObject *>shared):
        memcpy(geometry, function.known.geometry, sizeof(function.known.geometry))
        shared_bytes[0] = function.known.shared_bytes
        return 0
    read_new_geometry(function, grid, block, shared, geometry, shared_bytes)
    if is_constant(grid) and is_constant(block) and PyLong_CheckExact(shared):
        forget_geometry(&function.known)
        function.known.grid = own(grid)
        function.known.block = own(block)
        function.known.shared = own(shared)
        memcpy(function.known.geometry, geometry, sizeof(function.known.geometry))
        function.known.shared_bytes = shared_bytes[0]
    return 0


cdef inline bint is_known(
    Function function, PyObject *grid, PyObject *block, PyObject *shared
) noexcept:
    """Return whether the kernel was launched last with the very same objects.

    Most launches of a kernel come from one line, whose constants are the same objects each time.
    """
    return (
        grid == function.known.grid
        and block == function.known.block
        and shared == function.known.shared
        and grid != NULL
    )


cdef inline PyObject *own(object value):
    Py_INCREF(value)
    return <PyObject *>value


cdef void forget_geometry(KnownGeometry *known) noexcept:
    Py_XDECREF(known.grid)
    Py_XDECREF(known.block)
    Py_XDECREF(known.shared)
    known.grid = known.block = known.shared = NULL


cdef bint is_constant(object given) noexcept:
    """Whether a grid or block object is immutable: ints and their tuples."""
    cdef Py_ssize_t axis
    if PyLong_CheckExact(given):
        return True
    if not PyTuple_CheckExact(given):
        return False
    for axis in range(PyTuple_GET_SIZE(given)):
        if not PyLong_CheckExact(<object>PyTuple_GET_ITEM(given, axis)):
            return False
    return True


cdef int read_new_geometry(
    Function function, object grid, object block, object shared,
    unsigned int *geometry, unsigned int *shared_bytes
) except -1:
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
        if function.context is None:
            refuse_unmade()
        words().refuse_geometry(function, grid, block, shared)
        raise SystemError("uhal.arguments.refuse_geometry returned")
    return 0


cdef inline bint is_own_stream(Function function, PyObject *stream) noexcept:
    """Return whether `stream` is exactly a Stream of the kernel's device."""
    return (
        stream != NULL
        and Py_IS_TYPE(stream, <PyTypeObject *>Stream)
        and (<Stream>stream).context is function.context
    )


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


# -- arguments -------------------------------------------------------------------------------------


cdef inline bint pack_common(
    Function function, Slot *slot, PyObject *argument, unsigned char *out, Packed *packed
) noexcept:
    """Put an argument of the usual kinds into its slot; False if `pack_other` is needed."""
    cdef char code = slot.code
    cdef long long value
    cdef double number
    if code == c'P':
        if PyObject_TypeCheck(argument, <PyTypeObject *>DeviceBuffer):
            return take_buffer(function, slot, argument, out, packed)
        if argument == Py_None:
            (<uint64_t *>out)[0] = 0
            return True
        return False
    if PyLong_CheckExact(<object>argument):
        if not uhal_compact_int(argument, &value):
            return False
        if code == c'I':
            (<uint32_t *>out)[0] = <uint32_t>value
            return not UHAL_CHECKED or 0 <= value <= 4294967295LL
        if code == c'i':
            (<int32_t *>out)[0] = <int32_t>value
            return not UHAL_CHECKED or -2147483648LL <= value <= 2147483647LL
        if code == c'Q' or code == c'q':
            (<int64_t *>out)[0] = value
            return not UHAL_CHECKED or value >= 0 or code == c'q'
        if code == c'f':
            (<float *>out)[0] = <float>value
            return True
        if code == c'n':
            (<uint32_t *>out)[0] = <uint32_t>value
            return not UHAL_CHECKED or -2147483648LL <= value <= 4294967295LL
        if code == c'N':
            (<int64_t *>out)[0] = value
            return True
        return False
    if code == c'f' and PyFloat_CheckExact(<object>argument):
        number = PyFloat_AS_DOUBLE(<object>argument)
        (<float *>out)[0] = <float>number
        return not UHAL_CHECKED or fabs(number) <= FLT_MAX or not isfinite(number)
    return False


cdef int pack_other(
    Function function, Py_ssize_t index, PyObject *argument, unsigned char *out, Packed *packed
) except -1:
    """Put any argument into its slot, or raise the error that names its mistake."""
    cdef Slot *slot = &function.slots[index]
    cdef char code = slot.code
    cdef long long value
    cdef int overflow = 0
    if code == c'P' or (code == c'U' and slot.size == sizeof(uint64_t)):
        if PyObject_TypeCheck(argument, <PyTypeObject *>DeviceBuffer):
            if take_buffer(function, slot, argument, out, packed):
                return 0
        elif argument == Py_None:
            (<uint64_t *>out)[0] = 0
            return 0
        # asking another library's object for its memory runs Python code too
        packed.ran_python = True
        if take_foreign(function, index, argument, slot, out, packed):
            return 0
        pack_rare(function, index, argument, out, slot.size, packed)
        return remember_peer(function, <object>argument, packed)
    if PyLong_CheckExact(<object>argument):
        value = PyLong_AsLongLongAndOverflow(<object>argument, &overflow)
        if overflow == 0:
            if code == c'i' and -2147483648LL <= value <= 2147483647LL:
                (<int32_t *>out)[0] = <int32_t>value
                return 0
            if code == c'I' and 0 <= value <= 4294967295LL:
                (<uint32_t *>out)[0] = <uint32_t>value
                return 0
            if code == c'q' or code == c'N' or (code == c'Q' and value >= 0):
                (<int64_t *>out)[0] = value
                return 0
            if code == c'f':
                (<float *>out)[0] = <float>value
                return 0
            if code == c'd':
                (<double *>out)[0] = <double>value
                return 0
        return pack_rare(function, index, argument, out, slot.size, packed)
    if code == c'd' and PyFloat_CheckExact(<object>argument):
        (<double *>out)[0] = PyFloat_AS_DOUBLE(<object>argument)
        return 0
    if code == c'?' and (argument == Py_True or argument == Py_False):
        out[0] = argument == Py_True
        return 0
    if uhal_numpy_scalar(argument, code, out):
        return 0
    return pack_rare(function, index, argument, out, slot.size, packed)


cdef inline bint take_buffer(
    Function function, Slot *slot, PyObject *argument, unsigned char *out, Packed *packed
) noexcept:
    """Pack a DeviceBuffer and note its block; False if the launch must not take the buffer."""
    # Casts in place, not a variable: this runs for every buffer of every launch, and a variable
    # would count references.
    if UHAL_CHECKED and (
        (<DeviceBuffer>argument).context is not function.context
        or (<DeviceBuffer>argument).is_closed
        or (slot.dtype != NULL and slot.dtype != <PyObject *>(<DeviceBuffer>argument).dtype)
        or ((<DeviceBuffer>argument).readonly and not slot.is_const)
    ):
        return False
    if (
        UHAL_CHECKED
        and (<DeviceBuffer>argument).root is not None
        and (<DeviceBuffer>argument).root.is_closed
    ):
        return False
    (<uint64_t *>out)[0] = (<DeviceBuffer>argument).address
    if (<DeviceBuffer>argument).block is not None:
        note_block(packed, <PyObject *>(<DeviceBuffer>argument).block)
    return True


cdef inline void note_block(Packed *packed, PyObject *block) noexcept:
    """Remember that the launch uses the block."""
    packed.blocks[packed.block_count] = <void *>block
    packed.block_count += 1
    if (<Block>block).ready.stream_id != 0:
        packed.needs |= NEEDS_WAITING


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


cdef int remember_peer(Function function, object argument, Packed *packed) except -1:
    """Note memory of another device, which stamps of this device's streams do not hold."""
    if isinstance(argument, DeviceBuffer) and (
        (<DeviceBuffer>argument).context is not function.context
    ):
        remember(packed, lent_memory(<DeviceBuffer>argument))
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
    cdef bytes converted = words().pack_untyped(function, index, argument)
    remember_peer(function, argument, packed)
    return converted
