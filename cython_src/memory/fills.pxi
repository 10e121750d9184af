# Fills: a value or a pattern all over a buffer.


cdef int fill(DeviceBuffer buffer, int width, unsigned int value, StreamCore core) except -1:
    cdef Context context = buffer.context
    cdef size_t count = buffer.nbytes // width
    cdef void *previous
    cdef int status
    cdef OperationKind kind = (
        OPERATION_SET_8 if width == 1 else OPERATION_SET_16 if width == 2 else OPERATION_SET_32
    )
    cdef Watched watched
    watched.record = NULL
    order_behind(buffer, core)
    if core.state.word & UHAL_STATE_WATCHED:
        if note_or_watch(&watched, context, core, kind, buffer.address, 0, count, value):
            return 0
        begin_times(&watched, context, core)
    previous = enter(context)
    cdef Block block = hold(buffer)
    hold_core(core)
    with nogil:
        if width == 1:
            status = context.table.memset_8(buffer.address, value, count, core.handle)
        elif width == 2:
            status = context.table.memset_16(buffer.address, value, count, core.handle)
        else:
            status = context.table.memset_32(buffer.address, value, count, core.handle)
    if not took_ticket(core) and status == 0:
        add_operation(core.capture.recording, kind, buffer.address, 0, count, value)
    if watched.record != NULL:
        end_copy(&watched, context, core, status)
    let_go_core(context, core)
    used(context, block, core, status)
    leave(context, previous)
    return check(
        context, status, "memset_8" if width == 1 else "memset_16" if width == 2 else "memset_32"
    )


cdef int set_pattern(DeviceBuffer buffer, int width, object value, object stream) except -1:
    cdef StreamCore core = core_for(buffer.context, stream)
    if buffer.readonly:
        refuse_readonly(f"set_{8 * width}")
    if isinstance(value, bool) or not isinstance(value, (int, _numpy.integer)):
        raise _errors.ArgumentTypeError(
            f"set_{8 * width}: expected an int, got {type(value).__name__}"
        )
    most = {1: 0xFF, 2: 0xFFFF, 4: 0xFFFFFFFF}[width]
    if not 0 <= value <= most:
        raise _errors.ArgumentRangeError(
            f"set_{8 * width}: expected an int in 0…{most}, got {value}"
        )
    if buffer.nbytes % width or buffer.address % width:
        raise _errors.ArgumentValueError(
            f"set_{8 * width}: expected a whole number of aligned {width}-byte words, got "
            f"{buffer.nbytes} bytes at 0x{buffer.address:x}"
        )
    if core.state.word & UHAL_STATE_OBSERVED:
        tell_observer(buffer.context, core, ("fill", buffer, width, value))
    if buffer.nbytes:
        fill(buffer, width, value, core)
    return 0
