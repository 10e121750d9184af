# Copies and fills: host to device, back, within a device, between devices.
#
# A pageable source may be changed when the call returns (the driver stages it); a copy to pageable
# memory has happened when it returns; pinned memory is read and written when the stream gets there
# and is held until then.
#
# Drivers wait for the stream inside a copy to pageable memory and a large one from it. On the main
# thread the lane waits first, where a signal can end it, and hands over at most a piece at a time.

cdef enum:
    # below this the driver only stages or copies in place: not worth letting go of the GIL
    GIL_KEPT_BYTES = 65536
    # of pageable memory: between two looks for signals, some 50 ms where memory is slow
    PIECE_BYTES = 256 << 20


cdef enum Direction:
    HOST_TO_DEVICE
    DEVICE_TO_HOST
    DEVICE_TO_DEVICE


cdef object contiguous(object array):
    """The values as a C-ordered array in native byte order; the same array when it is one."""
    if (
        _cnumpy.PyArray_CheckExact(array)
        and _cnumpy.PyArray_IS_C_CONTIGUOUS(array)
        and _cnumpy.PyArray_ISNOTSWAPPED(array)
    ):
        return array
    source = _numpy.asarray(array)
    if not source.dtype.isnative:
        source = source.astype(source.dtype.newbyteorder("="))
    return _numpy.ascontiguousarray(source)


cdef inline int order_behind(DeviceBuffer buffer, StreamCore core) except -1:
    """Order `core` behind what made the memory usable; in a capture, the replays of the plan."""
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
    """Count what was just put into the stream; False when it was only recorded."""
    if core.state.word & UHAL_STATE_CAPTURING:
        return False
    core.ticket += 1
    return True


cdef int used(Context context, Block block, StreamCore core, int status) except -1:
    """Stamp the memory with the call just made, if it was, and let go of it."""
    if block is None:
        return 0
    if status == 0 and not core.state.word & UHAL_STATE_CAPTURING:
        stamp(block, core.id, core.ticket)
    return let_go(context, block)


# -- one native copy -------------------------------------------------------------------------------


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
    """Tell `callback(done, total)` of bytes as copies of very much pageable memory get on.

    It is told in the copying thread after each piece of 256 MiB; what it raises ends the copy. None
    ends it. Returns what was told before. There is one in a process.
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
    """Between buffers of `core`'s device. What overlaps goes through a temporary."""
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
    """Between two devices of one backend, in the order of the destination's stream."""
    cdef Context context = destination.context
    cdef Block to_block
    cdef Block from_block
    cdef void *previous
    cdef Watched watched
    cdef int status
    if context.table.copy_peer == NULL:
        return copy_through_host(destination, source, core)
    watched.record = NULL
    from_block = hold(source)
    try:
        # the source's books name streams of its own device: wait for them here, on the host
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
        used(context, to_block, core, status)
        leave(context, previous)
        check(context, status, "copy_peer")
    finally:
        if from_block is not None:
            from_block.exported = True  # its device's streams do not know of this use
            let_go(source.context, from_block)
    return 0


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


# -- in --------------------------------------------------------------------------------------------


cdef int upload(DeviceBuffer buffer, object array, StreamCore core) except -1:
    """Enqueue a copy of a contiguous array of the buffer's size in bytes."""
    refuse_capturing(core, "a copy from ordinary memory", "pinned only")
    if buffer.nbytes:
        copy_h2d(buffer, _cnumpy.PyArray_DATA(array), core, True)
    return 0


cdef int copy_in(DeviceBuffer buffer, object source, object stream) except -1:
    cdef StreamCore core = core_for(buffer.context, stream)
    refuse_capturing(core, "a copy that waits", "no waiting copies")
    if stream is None and buffer.block is not None:
        wait_for_uses(buffer.context, buffer.block, core)
        if isinstance(source, DeviceBuffer) and (<DeviceBuffer>source).context is buffer.context:
            require_buffer(<DeviceBuffer>source)
            if (<DeviceBuffer>source).block is not None:
                wait_for_uses(buffer.context, (<DeviceBuffer>source).block, core)
    try:
        copy_in_async(buffer, source, core)
        return synchronize_core(buffer.context, core)
    except BaseException:
        keep_memory(core, source)
        raise


cdef int copy_in_async(DeviceBuffer buffer, object source, StreamCore core) except -1:
    cdef HostMemory memory
    if buffer.readonly:
        refuse_readonly("copy_from")
    if isinstance(source, DeviceBuffer):
        require_buffer(<DeviceBuffer>source)
        require_match(buffer, "source", (<DeviceBuffer>source).size, (<DeviceBuffer>source).dtype)
        return copy_device(buffer, <DeviceBuffer>source, core)
    if isinstance(source, HostBuffer):
        require_host_buffer(<HostBuffer>source)
        require_match(buffer, "source", (<HostBuffer>source).size, (<HostBuffer>source).dtype)
        memory = (<HostBuffer>source).memory
        if buffer.nbytes:
            copy_h2d(buffer, memory.pointer, core, False)
            hold_pinned(core, memory)
        return 0
    if isinstance(source, (bytes, bytearray, memoryview)):
        array = _numpy.frombuffer(source, _numpy.uint8) if len(source) else _numpy.empty(0, "u1")
        if array.nbytes != buffer.nbytes:
            refuse_size("source", f"{buffer.nbytes} bytes", f"{array.nbytes}")
    else:
        array = contiguous(source)
        require_match(
            buffer, "source", _cnumpy.PyArray_SIZE(array), element_of(array.dtype).dtype
        )
    return upload(buffer, array, core)


cdef int copy_device(DeviceBuffer destination, DeviceBuffer source, StreamCore core) except -1:
    if source.nbytes == 0:
        return 0
    if source.context is destination.context:
        return copy_d2d(destination, source, core)
    refuse_capturing(core, "a copy between devices", "one device")
    if source.context.backend_name == destination.context.backend_name:
        return copy_peer(destination, source, core)
    return copy_through_host(destination, source, core)


# -- out -------------------------------------------------------------------------------------------


cdef int copy_out(DeviceBuffer buffer, object destination, object stream) except -1:
    cdef StreamCore core = core_for(buffer.context, stream)
    if isinstance(destination, DeviceBuffer):
        require_buffer(<DeviceBuffer>destination)
        return copy_in(<DeviceBuffer>destination, buffer, stream)
    refuse_capturing(core, "a copy that waits", "no waiting copies")
    if stream is None and buffer.block is not None:
        wait_for_uses(buffer.context, buffer.block, core)
    copy_out_async(buffer, destination, core)
    return synchronize_core(buffer.context, core)


cdef int copy_out_async(DeviceBuffer buffer, object destination, StreamCore core) except -1:
    cdef HostMemory memory
    if isinstance(destination, DeviceBuffer):
        require_buffer(<DeviceBuffer>destination)
        copy_in_async(
            <DeviceBuffer>destination,
            buffer,
            core_of_device(<DeviceBuffer>destination, core, buffer),
        )
        return 0
    if isinstance(destination, HostBuffer):
        require_host_buffer(<HostBuffer>destination)
        require_match(
            buffer, "destination", (<HostBuffer>destination).size, (<HostBuffer>destination).dtype
        )
        memory = (<HostBuffer>destination).memory
        if buffer.nbytes:
            copy_d2h(buffer, memory.pointer, core, False)
            hold_pinned(core, memory)
        return 0
    refuse_capturing(core, "a copy to ordinary memory", "pinned only")
    if isinstance(destination, (bytearray, memoryview)):
        array = _numpy.empty(0, "u1")
        if len(destination):
            array = _numpy.frombuffer(destination, _numpy.uint8)
        if array.nbytes != buffer.nbytes:
            refuse_size("destination", f"{buffer.nbytes} bytes", f"{array.nbytes}")
    elif isinstance(destination, _numpy.ndarray):
        array = destination
        require_match(buffer, "destination", array.size, _as_dtype(array.dtype))
    else:
        raise _errors.ArgumentTypeError(
            "destination: expected a numpy array, bytearray, HostBuffer or DeviceBuffer, got "
            f"{type(destination).__name__}"
        )
    if not array.flags.writeable:
        raise _errors.ArgumentValueError(
            "destination: expected writable memory, got a read-only one"
        )
    if not buffer.nbytes:
        return 0
    whole = array if array.flags.c_contiguous and array.dtype.isnative else _numpy.empty(
        array.shape, buffer.dtype.dtype
    )
    try:
        copy_d2h(buffer, _cnumpy.PyArray_DATA(whole), core, True)
        # The vendors promise that a copy to pageable memory has happened when the call returns;
        # they do not for memory the caller registered with them, which we cannot tell from here.
        synchronize_core(buffer.context, core)
    except BaseException:
        keep_memory(core, whole)
        raise
    if whole is not array:
        array[...] = whole
    return 0


cdef StreamCore core_of_device(DeviceBuffer destination, StreamCore core, DeviceBuffer source):
    """The stream a copy to another device's buffer runs in: the source's only on one device."""
    return core if destination.context is source.context else destination.context.default_core


cdef int keep_memory(StreamCore core, object memory) except -1:
    """Keep memory that a copy may still use whose wait ended early: registered memory.

    Buffers are kept by the copies themselves.
    """
    if not isinstance(memory, (DeviceBuffer, HostBuffer)):
        core.held.append((core.ticket, memory))
    return 0


cdef int hold_pinned(StreamCore core, HostMemory memory) except -1:
    """Keep host memory until what was just put into the stream is done."""
    if core.state.word & UHAL_STATE_CAPTURING:
        core.capture.memory.append(memory)
        return 0
    memory.block.pending += 1
    core.held.append((core.ticket, memory.block))
    return 0


# -- fills -----------------------------------------------------------------------------------------


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
    if buffer.nbytes:
        fill(buffer, width, value, core)
    return 0


# -- refusals --------------------------------------------------------------------------------------


cdef int refuse_other_dtype(str role, object expected, object given) except -1:
    if given is not expected:
        raise _errors.ArgumentTypeError(
            f"{role}: expected {expected.name} elements, got {given.name}; convert it, or copy "
            "between views of one dtype (buffer.view)"
        )
    return 0


cdef int require_match(
    DeviceBuffer buffer, str role, Py_ssize_t size, object dtype
) except -1:
    refuse_other_dtype(role, buffer.dtype, dtype)
    if size != buffer.size:
        refuse_size(role, f"{buffer.size} elements", f"{size}")
    return 0


cdef int refuse_size(str role, str expected, str given) except -1:
    raise _errors.ArgumentValueError(
        f"{role}: expected {expected}, got {given}; copy to or from a view (buffer[a:b])"
    )


cdef int refuse_readonly(str operation) except -1:
    raise _errors.ArgumentValueError(
        f"{operation}: the buffer describes read-only memory; copy it into a buffer of your own"
    )
