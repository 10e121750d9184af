# DeviceBuffer's copies: from the host, from another device's memory, back to the host.
#
# A pageable source may be changed when the call returns, because the driver stages it. A copy to
# pageable memory is complete when the call returns. Pinned memory is read and written when the
# stream reaches the copy, and is held until then.


cdef bint is_pageable_owner(object owner) except -1:
    """Return whether memory is of a type that drivers never allocate."""
    if isinstance(owner, (_numpy.ndarray, bytes, bytearray)):
        return True
    for name in ("array", "mmap"):
        # a module that is not loaded has no objects
        module = _sys.modules.get(name)
        if module is not None and isinstance(owner, getattr(module, name)):
            return True
    return False


# -- in --------------------------------------------------------------------------------------------


cdef int upload(DeviceBuffer buffer, object array, StreamCore core) except -1:
    """Enqueue a copy of a contiguous array of the buffer's size in bytes."""
    refuse_capturing(core, "a copy from ordinary memory", "pinned only")
    if not buffer.nbytes:
        return 0
    copy_h2d(buffer, _cnumpy.PyArray_DATA(array), core, True)
    if not _cnumpy.PyArray_CHKFLAGS(array, _cnumpy.NPY_ARRAY_OWNDATA) and may_be_pinned(array):
        try:
            synchronize_core(buffer.context, core)
        except BaseException:
            keep_memory(core, array)
            raise
    return 0


cdef bint may_be_pinned(object array) except -1:
    """Whether a driver may read an array's memory when the stream runs the copy, not at the call.

    A driver may do so with memory that it allocated or registered: memory of a HostBuffer or of
    another library.
    """
    owner = array
    while True:
        if isinstance(owner, memoryview):
            owner = (<object>owner).obj
        elif isinstance(owner, _numpy.ndarray) and owner.base is not None:
            owner = owner.base
        else:
            return not is_pageable_owner(owner)


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
        synchronize_core(buffer.context, core)
    except BaseException:
        keep_memory(core, source)
        raise
    return check_reports(buffer.context, core)


cdef int copy_in_async(DeviceBuffer buffer, object source, StreamCore core) except -1:
    cdef HostMemory memory
    if buffer.readonly:
        refuse_readonly("copy_from")
    if core.state.word & UHAL_STATE_OBSERVED:
        tell_observer(buffer.context, core, ("copy", buffer, source))
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
        array = host_values().byte_array("source", source)
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
    synchronize_core(buffer.context, core)
    return check_reports(buffer.context, core)


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
        array = host_values().byte_array("destination", destination)
        if array.nbytes != buffer.nbytes:
            refuse_size("destination", f"{buffer.nbytes} bytes", f"{array.nbytes}")
    else:
        array = destination
        if not _cnumpy.PyArray_CheckExact(destination):
            array = host_values().destination_array(destination)
        dtype = array.dtype
        if not _cnumpy.PyArray_ISNOTSWAPPED(array):
            dtype = dtype.newbyteorder("=")
        require_match(
            buffer, "destination", _cnumpy.PyArray_SIZE(array), element_of(dtype).dtype
        )
    if not _cnumpy.PyArray_ISWRITEABLE(array):
        raise _errors.ArgumentValueError(
            "destination: expected writable memory, got a read-only one"
        )
    if not buffer.nbytes:
        return 0
    whole = array
    if not (
        _cnumpy.PyArray_IS_C_CONTIGUOUS(array) and _cnumpy.PyArray_ISNOTSWAPPED(array)
    ):
        whole = _numpy.empty(array.shape, buffer.dtype.dtype)
    try:
        copy_d2h(buffer, _cnumpy.PyArray_DATA(whole), core, True)
        # The vendors promise that a copy to pageable memory is complete when the call returns. They
        # do not promise it for registered memory, which cannot be recognised here.
        synchronize_core(buffer.context, core)
    except BaseException:
        keep_memory(core, whole)
        raise
    if whole is not array:
        array[...] = whole
    return 0


cdef StreamCore core_of_device(DeviceBuffer destination, StreamCore core, DeviceBuffer source):
    """The stream of a copy between buffers: the source's if both are on one device."""
    return core if destination.context is source.context else destination.context.default_core


cdef int keep_memory(StreamCore core, object memory) except -1:
    """Keep registered memory for a copy whose wait ended early.

    Buffers are kept by the copies themselves.
    """
    if not isinstance(memory, (DeviceBuffer, HostBuffer)):
        core.held.append((core.ticket, memory))
    return 0


cdef int hold_pinned(StreamCore core, HostMemory memory) except -1:
    """Keep host memory until the stream's current work is done."""
    if core.state.word & UHAL_STATE_CAPTURING:
        core.capture.memory.append(memory)
        return 0
    memory.block.pending += 1
    core.held.append((core.ticket, memory.block))
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
