# One copy by the driver, in each direction, with its waits and its stamps on the memory.
#
# Drivers wait for the stream inside a copy to pageable memory, and inside a large copy from
# pageable memory. The lane itself waits first, so that a signal can end the wait and other threads'
# calls do not block. On the main thread it hands over at most one piece at a time.

cdef enum:
    # a smaller copy is too short to release the GIL: the driver only stages, or copies in place
    GIL_KEPT_BYTES = 65536
    # bytes of pageable memory between two checks for signals; some 50 ms on slow memory
    PIECE_BYTES = 256 << 20


cdef enum Direction:
    HOST_TO_DEVICE
    DEVICE_TO_HOST
    DEVICE_TO_DEVICE


cdef object contiguous(object array):
    """The values as a C-ordered array in native byte order, without a copy if possible."""
    if (
        _cnumpy.PyArray_CheckExact(array)
        and _cnumpy.PyArray_IS_C_CONTIGUOUS(array)
        and _cnumpy.PyArray_ISNOTSWAPPED(array)
    ):
        return array
    source = host_values().source_array(array)
    if not source.dtype.isnative:
        source = source.astype(source.dtype.newbyteorder("="))
    return _numpy.ascontiguousarray(source)


cdef inline int order_behind(DeviceBuffer buffer, StreamCore core) except -1:
    """Make `core`, or in a capture the plan's replays, wait until the memory is usable."""
    if core.state.word & UHAL_STATE_CAPTURING:
        use_captured(buffer, core, "a copy or fill")
    elif buffer.block is not None:
        wait_until_ready(buffer.context, buffer.block, core)
    return 0


cdef inline Block hold(DeviceBuffer buffer):
    """Hold the memory: another thread may close the buffer while a call runs without the GIL."""
    if buffer.block is not None:
        buffer.block.holds += 1
    return buffer.block


cdef inline bint took_ticket(StreamCore core) noexcept:
    """Count the operation just enqueued on the stream; False when it was only recorded."""
    if core.state.word & UHAL_STATE_CAPTURING:
        return False
    core.ticket += 1
    return True


cdef int used(Context context, Block block, StreamCore core, int status) except -1:
    """Stamp the memory with the call, if it was made, and end the hold."""
    if block is None:
        return 0
    if status == 0 and not core.state.word & UHAL_STATE_CAPTURING:
        stamp(block, core.id, core.ticket)
    return let_go(context, block)


cdef int copy_h2d(
    DeviceBuffer buffer, const void *source, StreamCore core, bint pageable
) except -1:
    cdef Context context = buffer.context
    cdef size_t count = buffer.nbytes
    cdef int status = 0
    cdef Watched watched
    watched.record = NULL
    order_behind(buffer, core)
    if core.state.word & UHAL_STATE_WATCHED:
        if note_or_watch(
            &watched, context, core, OPERATION_H2D, buffer.address, <uintptr_t>source, count, 0
        ):
            return 0
    cdef void *previous = enter(context)
    if pageable and count > context.table.staged_bytes:
        settle_for_copy(context, core, previous)
    if (
        count <= GIL_KEPT_BYTES
        and core.ticket - core.completed < PENDING_LIMIT
        and not core.state.word & (UHAL_STATE_WATCHED | UHAL_STATE_PYTHON)
    ):
        # No other thread runs meanwhile: nothing has to be held.
        status = context.table.copy_h2d(buffer.address, source, count, core.handle)
        core.ticket += 1
        if status == 0 and buffer.block is not None:
            stamp(buffer.block, core.id, core.ticket)
        leave(context, previous)
        return check(context, status, "copy_h2d")
    cdef Block block = hold(buffer)
    hold_core(core)
    try:
        if watched.record != NULL:
            begin_times(&watched, context, core)
        status = copy_pieces(
            context.table, HOST_TO_DEVICE, buffer.address, <uintptr_t>source, count,
            core.handle, pageable,
        )
    finally:
        if not took_ticket(core) and status == 0:
            add_operation(
                core.capture.recording, OPERATION_H2D, buffer.address, <uintptr_t>source, count, 0
            )
        if watched.record != NULL:
            end_copy(&watched, context, core, status)
        let_go_core(context, core)
        used(context, block, core, status)
        leave(context, previous)
    return check(context, status, "copy_h2d")


cdef int copy_d2h(DeviceBuffer buffer, void *destination, StreamCore core, bint pageable) except -1:
    cdef Context context = buffer.context
    cdef size_t count = buffer.nbytes
    cdef int status = 0
    cdef Watched watched
    watched.record = NULL
    order_behind(buffer, core)
    if core.state.word & UHAL_STATE_WATCHED:
        if note_or_watch(
            &watched, context, core, OPERATION_D2H, <uintptr_t>destination, buffer.address, count, 0
        ):
            return 0
    cdef void *previous = enter(context)
    if (
        pageable and count <= GIL_KEPT_BYTES
        and not core.state.word & (UHAL_STATE_CAPTURING | UHAL_STATE_WATCHED | UHAL_STATE_PYTHON)
        and context.table.stream_query(core.handle) == 0
    ):
        # Nothing is pending, so the copy does not wait. No other thread runs meanwhile: nothing has
        # to be held.
        status = context.table.copy_d2h(destination, buffer.address, count, core.handle)
        core.ticket += 1
        if status == 0 and buffer.block is not None:
            stamp(buffer.block, core.id, core.ticket)
        leave(context, previous)
        return check(context, status, "copy_d2h")
    if pageable:
        settle_for_copy(context, core, previous)
    cdef Block block = hold(buffer)
    hold_core(core)
    try:
        if watched.record != NULL:
            begin_times(&watched, context, core)
        status = copy_pieces(
            context.table, DEVICE_TO_HOST, <uintptr_t>destination, buffer.address, count,
            core.handle, pageable,
        )
    finally:
        if not took_ticket(core) and status == 0:
            add_operation(
                core.capture.recording, OPERATION_D2H, <uintptr_t>destination, buffer.address,
                count, 0,
            )
        if watched.record != NULL:
            end_copy(&watched, context, core, status)
        let_go_core(context, core)
        used(context, block, core, status)
        leave(context, previous)
    return check(context, status, "copy_d2h")


cdef object copy_listener = None


def set_copy_listener(callback):
    """Call `callback(done, total)`, in bytes, during copies of very large pageable memory.

    The copying thread calls it after each piece of 256 MiB; its exception ends the copy. There is
    one listener in a process; None removes it. Returns the previous listener.
    """
    global copy_listener
    before, copy_listener = copy_listener, callback
    return before


cdef int copy_pieces(
    uhal_hot_table *table, Direction direction, uint64_t destination, uint64_t source,
    size_t count, void *stream, bint pageable
) except? -1:
    """The driver's answer; between two pieces of pageable memory a signal may end it."""
    cdef size_t done = 0
    cdef size_t piece = count
    cdef int status
    while True:
        if pageable:
            piece = min(count - done, <size_t>PIECE_BYTES)
        with nogil:
            status = copy_row(table, direction, destination + done, source + done, piece, stream)
        done += piece
        if count > PIECE_BYTES and copy_listener is not None:
            copy_listener(done, count)
        if status != 0 or done == count:
            return status
        PyErr_CheckSignals()


cdef inline int copy_row(
    uhal_hot_table *table, Direction direction, uint64_t destination, uint64_t source,
    size_t count, void *stream
) noexcept nogil:
    if direction == HOST_TO_DEVICE:
        return table.copy_h2d(destination, <const void *><uintptr_t>source, count, stream)
    if direction == DEVICE_TO_HOST:
        return table.copy_d2h(<void *><uintptr_t>destination, source, count, stream)
    return table.copy_d2d(destination, source, count, stream)


cdef int copy_d2d(DeviceBuffer destination, DeviceBuffer source, StreamCore core) except -1:
    """Copy between buffers of `core`'s device. Overlapping buffers go through a temporary."""
    cdef Context context = destination.context
    cdef size_t count = source.nbytes
    cdef DeviceBuffer middle
    cdef Watched watched
    cdef int status
    watched.record = NULL
    if destination.address == source.address:
        return 0
    if (
        destination.address < source.address + count
        and source.address < destination.address + count
    ):
        middle = new_buffer(DeviceBuffer, context, source.nbytes, element_of("u8"), core)
        copy_d2d(middle, source, core)
        return copy_d2d(destination, middle, core)
    order_behind(source, core)
    order_behind(destination, core)
    if core.state.word & UHAL_STATE_WATCHED:
        if note_or_watch(
            &watched, context, core, OPERATION_D2D, destination.address, source.address, count, 0
        ):
            return 0
        begin_times(&watched, context, core)
    cdef void *previous = enter(context)
    cdef Block to_block = hold(destination)
    cdef Block from_block = hold(source)
    hold_core(core)
    with nogil:
        status = context.table.copy_d2d(destination.address, source.address, count, core.handle)
    if not took_ticket(core) and status == 0:
        add_operation(
            core.capture.recording, OPERATION_D2D, destination.address, source.address, count, 0
        )
    if watched.record != NULL:
        end_copy(&watched, context, core, status)
    let_go_core(context, core)
    used(context, to_block, core, status)
    used(context, from_block, core, status)
    leave(context, previous)
    return check(context, status, "copy_d2d")


cdef int copy_peer(DeviceBuffer destination, DeviceBuffer source, StreamCore core) except -1:
    """Copy between two devices of one backend, in the destination's stream order."""
    cdef Context context = destination.context
    cdef HeldMemory from_memory
    cdef Block to_block
    cdef void *previous
    cdef Watched watched
    cdef int status
    if context.table.copy_peer == NULL:
        return copy_through_host(destination, source, core)
    watched.record = NULL
    from_memory = lent_memory(source)
    # the source's stamps name streams of its own device: wait for them here, on the host
    settle(source)
    order_behind(destination, core)
    if core.state.word & UHAL_STATE_WATCHED:
        watch(&watched, context, core, UHAL_PROFILE_PEER, 0, source.nbytes)
        begin_times(&watched, context, core)
    previous = enter(context)
    to_block = hold(destination)
    hold_core(core)
    with nogil:
        status = context.table.copy_peer(
            destination.address, context.token_pointer, source.address,
            source.context.token_pointer, source.nbytes, core.handle,
        )
    core.ticket += 1
    if watched.record != NULL:
        end_copy(&watched, context, core, status)
    let_go_core(context, core)
    keep(context, core, from_memory)
    used(context, to_block, core, status)
    leave(context, previous)
    return check(context, status, "copy_peer")


cdef int copy_through_host(
    DeviceBuffer destination, DeviceBuffer source, StreamCore core
) except -1:
    host = _numpy.empty(source.nbytes, _numpy.uint8)
    copy_out(source.view("u8"), host, None)
    return upload(destination, host, core)


cdef int settle(DeviceBuffer buffer) except -1:
    """Wait on the host for every recorded use of the buffer."""
    cdef Block block = buffer.block
    cdef int i
    if block is None:
        return 0
    if block.ready.stream_id != 0:
        settle_stamp(buffer.context, block.ready)
    for i in range(block.stamp_count):
        settle_stamp(buffer.context, block.stamps[i])
    return 0


cdef int settle_stamp(Context context, Stamp stamp) except -1:
    if not is_complete(context, stamp.stream_id, stamp.ticket, True):
        synchronize_core(context, <StreamCore>context.streams[stamp.stream_id])
    return 0
