# Copies of rows that lie a pitch apart. A backend may have one call for all rows; the default
# copies row by row. The two sides are described in bytes, so one piece of code serves every
# direction.


cdef struct Rows:
    # The layout of the source's or the destination's rows.
    uint64_t start
    size_t pitch     # bytes from one row to the next
    size_t width     # bytes of a row
    size_t height


cdef tuple DIRECTIONS = ("h2d", "d2h", "d2d")


# -- reading the request ---------------------------------------------------------------------------


cdef int read_rows(
    str role, uint64_t start, Py_ssize_t size, object dtype, object shape, object pitch, Rows *rows
) except -1:
    """Rows of a run of `size` elements; rows beyond the run are refused."""
    if not isinstance(shape, tuple) or len(shape) != 2:
        raise _errors.ArgumentTypeError(f"shape: expected (rows, columns), got {shape!r}")
    height = read_extent("shape", shape[0])
    width = read_extent("shape", shape[1])
    step = width if pitch is None else read_extent(f"{role}pitch", pitch)
    if step < width:
        raise _errors.ArgumentValueError(
            f"{role}pitch: expected at least the {width} columns of a row, got {step}"
        )
    if not height or not width:
        height = width = step = 0
    elif height == 1:
        step = width    # a single row has no next row: any pitch is allowed
    if height and (height - 1) * step + width > size:
        raise _errors.ArgumentValueError(
            f"{role}pitch: expected rows within {size} elements, got {height} rows of {width} "
            f"elements with pitch {step}"
        )
    rows.start = start
    rows.pitch = step * dtype.itemsize
    rows.width = width * dtype.itemsize
    rows.height = height
    return 0


cdef int read_array_rows(str role, object array, object shape, object pitch, Rows *rows) except -1:
    """Rows of a two-dimensional numpy array, by its strides."""
    cdef object dtype = array.dtype
    if array.ndim != 2:
        raise _errors.ArgumentValueError(
            f"{role}: expected a 2-D array, got {array.ndim} dimensions"
        )
    if shape is not None and tuple(shape) != array.shape:
        raise _errors.ArgumentValueError(
            f"shape: expected the array's shape {array.shape}, got {shape!r}"
        )
    if pitch is not None:
        raise _errors.ArgumentValueError(
            f"{role}_pitch: expected None for an array, which has its own pitch, got {pitch!r}"
        )
    step, inner = array.strides if array.size else (dtype.itemsize * array.shape[1], dtype.itemsize)
    if array.shape[1] > 1 and inner != dtype.itemsize or array.shape[0] > 1 and step < 0:
        raise _errors.ArgumentValueError(
            f"{role}: expected adjacent elements in each row, and rows in order, got strides "
            f"{array.strides}. Pass numpy.ascontiguousarray(array)."
        )
    rows.start = <uintptr_t>array.ctypes.data
    rows.width = array.shape[1] * dtype.itemsize
    rows.height = array.shape[0]
    rows.pitch = step if rows.height > 1 else rows.width
    if rows.pitch < rows.width and rows.height:
        raise _errors.ArgumentValueError(f"{role}: expected rows that do not overlap")
    return 0


# -- the native copy -------------------------------------------------------------------------------


cdef int copy_rows(
    Context context, Direction direction, Rows *destination, Rows *source, StreamCore core
) except -1:
    cdef size_t row = 0, end, height = source.height
    cdef size_t width = source.width
    cdef int status = 0
    cdef void *previous
    cdef Watched watched
    if height == 0 or width == 0:
        return 0
    watched.record = NULL
    if destination.pitch == width and source.pitch == width:
        width *= height
        height = 1
    if core.state.word & UHAL_STATE_WATCHED:
        watch(&watched, context, core, UHAL_PROFILE_H2D + direction, 0, width * height)
        begin_times(&watched, context, core)
    previous = enter(context)
    try:
        if height > 1 and native_2d(context, direction, destination, source, core):
            return 0
        while row < height and status == 0:
            # check for signals before `end`: the driver copies these rows in a moment
            end = row + min(height - row, max(<size_t>1, min(<size_t>4096, PIECE_BYTES // width)))
            with nogil:
                while row < end and status == 0:
                    status = copy_row(
                        context.table, direction, destination.start + row * destination.pitch,
                        source.start + row * source.pitch, width, core.handle,
                    )
                    row += 1
            PyErr_CheckSignals()
    finally:
        if watched.record != NULL:
            end_copy(&watched, context, core, status)
        leave(context, previous)
    slots = ("copy_h2d", "copy_d2h", "copy_d2d")
    return check(context, status, slots[direction])


cdef bint native_2d(
    Context context, Direction direction, Rows *destination, Rows *source, StreamCore core
) except -1:
    try:
        context.backend.copy_2d(
            DIRECTIONS[direction], destination.start, destination.pitch, source.start,
            source.pitch, source.width, source.height, <uintptr_t>core.handle,
        )
    except NotImplementedError:
        return False
    return True


# -- in and out ------------------------------------------------------------------------------------


cdef int copy_2d_in(
    DeviceBuffer buffer, object source, object shape, object pitch, object source_pitch,
    object stream
) except -1:
    cdef StreamCore core = core_for(buffer.context, stream)
    cdef Rows here, there
    refuse_capturing(core, "a copy that waits", "no waiting copies")
    if buffer.readonly:
        refuse_readonly("copy_2d_from")
    if core.state.word & UHAL_STATE_OBSERVED:
        tell_observer(buffer.context, core, ("copy_2d", buffer, source))
    if isinstance(source, DeviceBuffer):
        return copy_2d_device(
            buffer, <DeviceBuffer>source, shape, pitch, source_pitch, core, stream is None
        )
    read_host_rows("source", source, buffer.dtype, shape, source_pitch, &there)
    shape = (there.height, there.width // buffer.dtype.itemsize)
    read_rows("", buffer.address, buffer.size, buffer.dtype, shape, pitch, &here)
    settle_2d(buffer, core, stream is None)
    return copy_rows_and_wait(buffer, source, HOST_TO_DEVICE, &here, &there, core)


cdef int copy_2d_out(
    DeviceBuffer buffer, object destination, object shape, object pitch, object destination_pitch,
    object stream
) except -1:
    cdef StreamCore core = core_for(buffer.context, stream)
    cdef Rows here, there
    refuse_capturing(core, "a copy that waits", "no waiting copies")
    if isinstance(destination, DeviceBuffer):
        require_buffer(<DeviceBuffer>destination)
        return copy_2d_in(
            <DeviceBuffer>destination, buffer, shape, destination_pitch, pitch, stream
        )
    read_host_rows("destination", destination, buffer.dtype, shape, destination_pitch, &there)
    if isinstance(destination, _numpy.ndarray) and not destination.flags.writeable:
        raise _errors.ArgumentValueError(
            "destination: expected writable memory, got a read-only one"
        )
    shape = (there.height, there.width // buffer.dtype.itemsize)
    read_rows("", buffer.address, buffer.size, buffer.dtype, shape, pitch, &here)
    settle_2d(buffer, core, stream is None)
    return copy_rows_and_wait(buffer, destination, DEVICE_TO_HOST, &there, &here, core)


cdef int copy_rows_and_wait(
    DeviceBuffer buffer, object memory, Direction direction, Rows *destination, Rows *source,
    StreamCore core
) except -1:
    """`copy_rows_of` with memory of the host."""
    cdef void *previous = enter(buffer.context)
    settle_for_copy(buffer.context, core, previous)
    leave(buffer.context, previous)
    try:
        copy_rows_of(buffer, None, direction, destination, source, core)
        synchronize_core(buffer.context, core)
    except BaseException:
        if isinstance(memory, HostBuffer):
            hold_pinned(core, (<HostBuffer>memory).memory)
        else:
            keep_memory(core, memory)
        raise
    return check_reports(buffer.context, core)


cdef int copy_rows_of(
    DeviceBuffer buffer, DeviceBuffer other, Direction direction, Rows *destination, Rows *source,
    StreamCore core
) except -1:
    """Hold memory and stream, call `copy_rows`, and stamp the memory."""
    cdef Context context = buffer.context
    cdef Block block = hold(buffer)
    cdef Block other_block = None if other is None else hold(other)
    hold_core(core)
    try:
        copy_rows(context, direction, destination, source, core)
    finally:
        core.ticket += 1
        let_go_core(context, core)
        used(context, block, core, 0)
        used(context, other_block, core, 0)
    return 0


cdef int copy_2d_device(
    DeviceBuffer destination, DeviceBuffer source, object shape, object pitch,
    object source_pitch, StreamCore core, bint wait
) except -1:
    cdef Rows here, there, dense
    cdef DeviceBuffer middle
    require_buffer(source)
    if source.context is not destination.context:
        raise _errors.InvalidHandleError(
            "copy_2d: expected two buffers of one device; copy_from copies whole buffers between "
            "devices"
        )
    refuse_other_dtype("source", destination.dtype, source.dtype)
    read_rows("", destination.address, destination.size, destination.dtype, shape, pitch, &here)
    read_rows("source_", source.address, source.size, source.dtype, shape, source_pitch, &there)
    settle_2d(destination, core, wait)
    settle_2d(source, core, wait)
    if overlap(&here, &there):
        middle = new_buffer(
            DeviceBuffer, source.context, shape[0] * shape[1], element_of(source.dtype), core
        )
        read_rows("", middle.address, middle.size, middle.dtype, shape, None, &dense)
        order_behind(middle, core)
        copy_rows_of(middle, source, DEVICE_TO_DEVICE, &dense, &there, core)
        there = dense
        source = middle
    copy_rows_of(destination, source, DEVICE_TO_DEVICE, &here, &there, core)
    synchronize_core(destination.context, core)
    return check_reports(destination.context, core)


cdef bint overlap(Rows *first, Rows *second) noexcept:
    if first.height == 0 or first.width == 0:
        return False
    return (
        first.start < second.start + (second.height - 1) * second.pitch + second.width
        and second.start < first.start + (first.height - 1) * first.pitch + first.width
    )


cdef int read_host_rows(
    str role, object memory, object dtype, object shape, object pitch, Rows *rows
) except -1:
    cdef HostBuffer host
    if isinstance(memory, HostBuffer):
        host = <HostBuffer>memory
        require_host_buffer(host)
        refuse_other_dtype(role, dtype, host.dtype)
        return read_rows(
            f"{role}_", <uintptr_t>host.memory.pointer, host.size, dtype, shape, pitch, rows
        )
    if not isinstance(memory, _numpy.ndarray):
        raise _errors.ArgumentTypeError(
            f"{role}: expected a 2-D numpy array, HostBuffer or DeviceBuffer, got "
            f"{type(memory).__name__}"
        )
    host_values().refuse_mask(role, memory)
    if not memory.dtype.isnative:
        raise _errors.ArgumentValueError(f"{role}: expected native byte order, got {memory.dtype}")
    refuse_other_dtype(role, dtype, _as_dtype(memory.dtype))
    return read_array_rows(role, memory, shape, pitch, rows)


cdef int settle_2d(DeviceBuffer buffer, StreamCore core, bint wait_for_all) except -1:
    """Order the copy behind the work that made the buffer, or behind every use of it."""
    if buffer.block is not None and wait_for_all:
        return wait_for_uses(buffer.context, buffer.block, core)
    return order_behind(buffer, core)
