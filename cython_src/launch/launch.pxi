# A launch: read the geometry, pack and check the arguments, call the driver, record the launch.
#
# Nothing native is called before the last check has passed.

cdef enum:
    STACK_PARAMETERS = 48
    STACK_BYTES = 512
    # A launch keeps the GIL while fewer launches than this are known to be pending. Beyond this
    # limit a launch releases the GIL. The driver may block until its queue has room (1024 launches
    # on every vendor we know). Before that, a callback that needs the GIL may have to run.
    PENDING_LIMIT = 512
    # Beyond the limit, one launch in this number asks whether the stream is idle. A query may
    # cost more than the launch, and a backend that batches submits its batch.
    ASK_EVERY = 32


# -- the launch ------------------------------------------------------------------------------------


cdef int launch_checked(
    Function function, StreamCore core, const unsigned int *geometry, unsigned int shared_bytes,
    PyObject **arguments, Py_ssize_t given, const uhal_launch_config *extended
) except -1:
    """Check and pack the arguments, then launch. Geometry is checked already."""
    cdef unsigned char bytes[STACK_BYTES]
    cdef void *pointers[STACK_PARAMETERS]
    cdef void *blocks[STACK_PARAMETERS]
    cdef Packed packed
    packed.needs = function.module.needs
    packed.memory = NULL
    if UHAL_CHECKED and (function.module.closed or core.state.word & UHAL_STATE_DIVERTS):
        if divert(function, core, geometry, shared_bytes, arguments, given, extended, &packed):
            return 0
    packed.block_count = 0
    packed.foreign = NULL
    packed.core = <PyObject *>core
    packed.extended = extended
    packed.ran_python = False
    packed.kept = NULL
    packed.bytes = bytes
    packed.pointers = pointers
    packed.blocks = blocks
    packed.byte_count = function.packed_bytes
    try:
        if function.count < 0:
            pack_untyped_arguments(function, core, arguments, given, &packed)
        else:
            if given != function.count:
                words().refuse_count(function, given)
            if given > STACK_PARAMETERS or function.packed_bytes > STACK_BYTES:
                make_room(function, &packed)
            pack_arguments(function, core, arguments, given, &packed)
        if packed.needs & NEEDS_HOLDING:
            hold_used(function, core, &packed)
        return submit(function, core, geometry, shared_bytes, &packed)
    finally:
        if packed.foreign != NULL or packed.memory != NULL:
            release_packed(function, &packed)


cdef int make_room(Function function, Packed *packed) except -1:
    """Allocate memory for the arguments of a kernel with very many parameters."""
    packed.memory = malloc(function.packed_bytes + 2 * function.count * sizeof(void *))
    if packed.memory == NULL:
        raise MemoryError
    packed.bytes = <unsigned char *>packed.memory
    packed.pointers = <void **>(packed.bytes + function.packed_bytes)
    packed.blocks = packed.pointers + function.count
    return 0


# Sentinel: no argument memory, but references to drop.
cdef char NO_MEMORY


cdef int hold_used(Function function, StreamCore core, Packed *packed) except -1:
    """Hold the launch's objects: another thread may close them before the slot has returned."""
    cdef Py_ssize_t i
    cdef Block block
    cdef list held = [<Block>packed.blocks[i] for i in range(packed.block_count)]
    for block in held:
        block.holds += 1
    hold_core(core)
    hold_module(function.module)
    packed.held = own(held)
    return 0


cdef int let_go_used(Function function, Packed *packed) except -1:
    cdef Context context = function.context
    cdef Block block
    cdef list held = <list>packed.held
    Py_DECREF(held)
    let_go_core(context, <StreamCore>packed.core)
    let_go_module(function.module)
    for block in held:
        let_go(context, block)
    return 0


cdef int release_packed(Function function, Packed *packed) except -1:
    if packed.memory != &NO_MEMORY:
        c_free(packed.memory)
    Py_XDECREF(packed.kept)
    Py_XDECREF(packed.foreign)
    if packed.needs & NEEDS_WATCHING:
        let_go_watched(&packed.watched)
    if packed.needs & NEEDS_HOLDING and packed.held != NULL:
        let_go_used(function, packed)
    return 0


cdef inline int pack_arguments(
    Function function, StreamCore core, PyObject **arguments, Py_ssize_t count, Packed *packed
) except -1:
    cdef Py_ssize_t index
    cdef Slot *slot = function.slots
    # Local variables, because no other thread and no conversion can change them.
    cdef unsigned char *bytes = packed.bytes
    cdef void **pointers = packed.pointers
    cdef unsigned char *out
    for index in range(count):
        out = bytes + slot.offset
        pointers[index] = out
        if not pack_common(function, slot, arguments[index], out, packed):
            pack_other(function, index, arguments[index], out, packed)
        slot += 1
    if packed.ran_python:
        refuse_closed_meanwhile(function, core, arguments, count)
    return 0


cdef int refuse_closed_meanwhile(
    Function function, StreamCore core, PyObject **arguments, Py_ssize_t count
) except -1:
    """Refuse objects that another thread closed while a conversion ran Python code."""
    cdef Py_ssize_t index
    for index in range(count):
        argument = <object>arguments[index]
        if isinstance(argument, DeviceBuffer) and buffer_closed(<DeviceBuffer>argument):
            if function.count < 0:
                words().pack_untyped(function, index, argument)
            words().pack(function, index, argument)
    if function.module.closed or core.state.word & UHAL_STATE_REFUSES:
        refuse_closed(function, core)
    return 0


cdef int pack_untyped_arguments(
    Function function, StreamCore core, PyObject **arguments, Py_ssize_t given, Packed *packed
) except -1:
    """Pack arguments without a signature: every argument has its own size."""
    cdef Py_ssize_t index
    cdef list converted = []
    packed.memory = malloc(max(2 * given, 1) * sizeof(void *))
    if packed.memory == NULL:
        raise MemoryError
    packed.pointers = <void **>packed.memory
    packed.blocks = packed.pointers + given
    for index in range(given):
        converted.append(pack_untyped(function, index, <object>arguments[index], packed))
    refuse_closed_meanwhile(function, core, arguments, given)
    joined = b"".join(converted)
    for index in range(given):
        packed.pointers[index] = <void *><const char *>(<bytes>converted[index])
        if isinstance(<object>arguments[index], DeviceBuffer):
            if (<DeviceBuffer>arguments[index]).block is not None:
                note_block(packed, <PyObject *>(<DeviceBuffer>arguments[index]).block)
    packed.bytes = <unsigned char *><const char *>joined
    packed.byte_count = len(joined)
    packed.kept = own((converted, joined))
    return 0


cdef inline int submit(
    Function function, StreamCore core, const unsigned int *geometry, unsigned int shared_bytes,
    Packed *packed
) except -1:
    """Make the native call; take a ticket, stamp, write the ledger."""
    cdef Context context = function.context
    cdef uhal_hot_table *table = context.table
    cdef Py_ssize_t i
    cdef int status
    cdef int instruction_offset = 0
    cdef void *previous
    cdef PyObject *code
    cdef bint keep_gil = core.ticket - core.completed < PENDING_LIMIT
    if packed.foreign != NULL and packed.has_producer:
        order_behind_producer(context, packed)
    if UHAL_CHECKED and packed.needs:
        if packed.needs & (NEEDS_CHECKING | NEEDS_HEARING):
            core.reporting[packed.needs >> REPORTS & 3] = core.ticket + 1
        if packed.needs & ~(NEEDS_CHECKING | NEEDS_HEARING):
            for i in range(packed.block_count):
                wait_until_ready(context, <Block>packed.blocks[i], core)
        if packed.needs & NEEDS_WATCHING:
            begin_times(&packed.watched, context, core)
    if core.ledger == NULL:
        core.ledger = uhal_ledger_new()
        if core.ledger == NULL:
            raise MemoryError
    if not keep_gil and core.ticket % ASK_EVERY == 0:
        keep_gil = core_is_idle(context, core)
    previous = enter(context)
    if keep_gil and packed.extended == NULL:
        status = table.launch(
            function.handle_, geometry[0], geometry[1], geometry[2], geometry[3], geometry[4],
            geometry[5], shared_bytes, core.handle, packed.pointers, NULL,
        )
        if status == 0:
            core.ticket += 1
            stamp_all(packed, core)
    else:
        status = launch_unlocked(function, core, geometry, shared_bytes, packed)
    leave(context, previous)
    if status != 0:
        raise_native(context, status, "launch" if packed.extended == NULL else "launch_ex")
    if UHAL_CHECKED:
        code = uhal_callsite(&instruction_offset)
        uhal_ledger_write(
            core.ledger, core.ticket, <PyObject *>function.ledger_key, code, instruction_offset,
            geometry, shared_bytes, packed.bytes, packed.byte_count,
        )
    if packed.foreign != NULL:
        keep_foreign(context, core, packed)
    if core.state.word:
        if packed.needs & NEEDS_WATCHING:
            end_times(&packed.watched, context, core)
        after_launch(context, core)
    return 0


cdef inline int stamp_all(Packed *packed, StreamCore core) except -1:
    cdef uint64_t stream_id = core.id, ticket = core.ticket
    cdef void **block = packed.blocks
    cdef void **end = block + packed.block_count
    while UHAL_CHECKED and block < end:
        if not stamp_again(block[0], stream_id, ticket):
            stamp(<Block>block[0], stream_id, ticket)
        block += 1
    return 0


cdef int launch_unlocked(
    Function function, StreamCore core, const unsigned int *geometry, unsigned int shared_bytes,
    Packed *packed
) except? -1:
    """Launch without the GIL and return the status; used objects may be closed meanwhile."""
    cdef Context context = function.context
    cdef uhal_hot_table *table = context.table
    cdef int status
    cdef Py_ssize_t i
    cdef Block block
    cdef list held = [<Block>packed.blocks[i] for i in range(packed.block_count)]
    for block in held:
        block.holds += 1
    hold_core(core)
    hold_module(function.module)
    if packed.extended != NULL:
        status = launch_extended(context, function, packed)
    else:
        with nogil:
            status = table.launch(
                function.handle_, geometry[0], geometry[1], geometry[2], geometry[3], geometry[4],
                geometry[5], shared_bytes, core.handle, packed.pointers, NULL,
            )
    if status == 0:
        core.ticket += 1
        core.reporting[packed.needs >> REPORTS & 3] = core.ticket
    let_go_core(context, core)
    let_go_module(function.module)
    if status == 0:
        stamp_all(packed, core)
    for block in held:
        let_go(context, block)
    return status


# -- entry points ----------------------------------------------------------------------------------


cdef object call_bound(object callee, PyObject **arguments, size_t flags, PyObject *keywords):
    """`bound(*args)`."""
    cdef BoundLaunch bound = <BoundLaunch>callee
    cdef const uhal_launch_config *extended = NULL
    if keywords != NULL and PyTuple_GET_SIZE(<object>keywords):
        words().refuse_keywords(bound.function, <object>keywords)
    if bound.extended is not None:
        extended = <const uhal_launch_config *><const char *>bound.extended
    if not bound.is_empty:
        launch_checked(
            bound.function, bound.core, bound.geometry, bound.shared_bytes, arguments,
            PyVectorcall_NARGS(flags), extended,
        )
    return None


cdef object refuse_call(object callee, PyObject **arguments, size_t flags, PyObject *keywords):
    """Refuse `function(*args)`, which has no geometry."""
    words().refuse_call(callee)


cdef enum:
    LAUNCH_FUNCTION = 0
    LAUNCH_GRID = 1
    LAUNCH_BLOCK = 2
    LAUNCH_ARGS = 3
    LAUNCH_SHARED = 4
    LAUNCH_STREAM = 5
    LAUNCH_CONFIG = 6
    LAUNCH_PARAMETERS = 7

cdef object NO_BYTES = 0
cdef tuple LAUNCH_NAMES = ("function", "grid", "block", "args", "shared", "stream", "config")


cdef struct KnownKeywords:
    # The keywords read last, by the owned tuple of their names: a call site passes the same tuple
    # each time.
    PyObject *names
    int indices[LAUNCH_PARAMETERS]

cdef KnownKeywords known_keywords
known_keywords.names = NULL


cdef int read_keywords(PyObject *names) except -1:
    """Fill `known_keywords` with the position of each name."""
    cdef int indices[LAUNCH_PARAMETERS]
    cdef Py_ssize_t index, count = PyTuple_GET_SIZE(<object>names)
    cdef PyObject *old = known_keywords.names
    if count > LAUNCH_PARAMETERS:
        for index in range(count):
            launch_keyword(<object>PyTuple_GET_ITEM(<object>names, index))
    for index in range(count):
        indices[index] = launch_keyword(<object>PyTuple_GET_ITEM(<object>names, index))
    memcpy(known_keywords.indices, indices, sizeof(indices))
    known_keywords.names = own(<object>names)
    Py_XDECREF(old)
    return 0


cdef int launch_keyword(object name) except -1:
    """Index of a keyword of `launch`; names in a program's source are interned."""
    cdef int index
    for index in range(LAUNCH_PARAMETERS):
        if <PyObject *>name == PyTuple_GET_ITEM(LAUNCH_NAMES, index):
            return index
    if name in LAUNCH_NAMES:
        return LAUNCH_NAMES.index(name)
    raise TypeError(f"launch() got an unexpected keyword argument '{name}'")


cdef object launch_entry(PyObject *self, PyObject **given, Py_ssize_t count, PyObject *keywords):
    """`launch(function, grid, block, args, shared, stream, *, config)`, read by hand for speed."""
    cdef PyObject *values[LAUNCH_PARAMETERS]
    cdef unsigned int geometry[6]
    cdef unsigned int shared_bytes
    cdef Py_ssize_t index
    cdef int which
    cdef Function function
    cdef StreamCore core
    cdef tuple arguments
    memset(values, 0, sizeof(values))
    if count > LAUNCH_CONFIG:
        raise TypeError(f"launch() takes at most {LAUNCH_CONFIG} positional arguments, got {count}")
    for index in range(count):
        values[index] = given[index]
    if keywords != NULL:
        if keywords != known_keywords.names:
            read_keywords(keywords)
        for index in range(PyTuple_GET_SIZE(<object>keywords)):
            which = known_keywords.indices[index]
            if values[which] != NULL:
                raise TypeError(f"launch() got '{LAUNCH_NAMES[which]}' twice")
            values[which] = given[count + index]
    if values[LAUNCH_FUNCTION] == NULL:
        raise TypeError("launch() needs a function")
    if not PyObject_TypeCheck(values[LAUNCH_FUNCTION], <PyTypeObject *>Function):
        words().refuse_function(<object>values[LAUNCH_FUNCTION])
    function = <Function>values[LAUNCH_FUNCTION]
    if values[LAUNCH_CONFIG] != NULL and values[LAUNCH_CONFIG] != Py_None:
        return launch_configured(function, values)
    if values[LAUNCH_SHARED] == NULL:
        values[LAUNCH_SHARED] = <PyObject *>NO_BYTES
    if is_known(
        function, values[LAUNCH_GRID], values[LAUNCH_BLOCK], values[LAUNCH_SHARED]
    ):
        memcpy(geometry, function.known.geometry, sizeof(geometry))
        shared_bytes = function.known.shared_bytes
    else:
        read_geometry(
            function,
            <object>values[LAUNCH_GRID] if values[LAUNCH_GRID] != NULL else None,
            <object>values[LAUNCH_BLOCK] if values[LAUNCH_BLOCK] != NULL else None,
            <object>values[LAUNCH_SHARED],
            geometry,
            &shared_bytes,
        )
    if is_own_stream(function, values[LAUNCH_STREAM]):
        core = (<Stream>values[LAUNCH_STREAM]).core
    else:
        core = stream_of_launch(
            function, <object>values[LAUNCH_STREAM] if values[LAUNCH_STREAM] != NULL else None
        )
    arguments = arguments_of_launch(function, values[LAUNCH_ARGS])
    launch_checked(
        function, core, geometry, shared_bytes, tuple_items(arguments),
        PyTuple_GET_SIZE(arguments), NULL,
    )
    return None


cdef object launch_configured(Function function, PyObject **values):
    """Launch with a LaunchConfig, which has the geometry and further options."""
    cdef unsigned int geometry[6]
    cdef unsigned int shared_bytes
    cdef uhal_launch_config extended
    cdef int which
    cdef StreamCore core
    config = <object>values[LAUNCH_CONFIG]
    for which in (LAUNCH_GRID, LAUNCH_BLOCK, LAUNCH_SHARED):
        if values[which] != NULL:
            raise TypeError(f"launch() got both config and '{LAUNCH_NAMES[which]}'")
    if not is_config(config):
        raise TypeError(f"config: expected a uhal.LaunchConfig, got {type(config).__name__}")
    if config.is_empty:
        return None
    read_geometry(function, config.grid, config.block, config.shared, geometry, &shared_bytes)
    core = stream_of_launch(
        function, <object>values[LAUNCH_STREAM] if values[LAUNCH_STREAM] != NULL else None
    )
    has_more = read_extended(function, config, geometry, shared_bytes, core, &extended)
    arguments = arguments_of_launch(function, values[LAUNCH_ARGS])
    launch_checked(
        function, core, geometry, shared_bytes, tuple_items(arguments),
        PyTuple_GET_SIZE(arguments), &extended if has_more else NULL,
    )
    return None


cdef inline tuple arguments_of_launch(Function function, PyObject *given):
    if given == NULL:
        return ()
    if PyTuple_CheckExact(<object>given):
        return <tuple>given
    return other_arguments(function, <object>given)


cdef tuple other_arguments(Function function, object given):
    if isinstance(given, (tuple, list)):
        return tuple(given)
    raise _errors.ArgumentTypeError(
        f"{function.name}, args: expected a tuple of kernel arguments, got "
        f"{type(given).__name__}. The kernel was not launched. [{words().call_site()}]"
    )


cdef PyMethodDef launch_method
launch_method.ml_name = b"launch"
launch_method.ml_meth = <PyCFunction>launch_entry
launch_method.ml_flags = METH_FASTCALL | METH_KEYWORDS
launch_method.ml_doc = LAUNCH_DOC
# The function has no self: pickle finds the function by its module's name.
launch = PyCFunction_NewEx(&launch_method, NULL, "uhal")

cdef BoundLaunch _bound_layout = BoundLaunch.__new__(BoundLaunch)
cdef Function _function_layout = Function.__new__(Function)
uhal_enable_vectorcall(
    BoundLaunch, <char *>&_bound_layout.vectorcall - <char *><PyObject *>_bound_layout
)
uhal_enable_vectorcall(
    Function, <char *>&_function_layout.vectorcall - <char *><PyObject *>_function_layout
)
