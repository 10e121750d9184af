# Streams and memory of other libraries: CUDA's protocols in and out, and the order between their
# streams and ours.
#
# Memory of another library gets a Block of its own. The stream named by the user waits for the
# producer, and every other stream waits for the user's stream. The block keeps the owner until the
# launches that use it are done.

cdef enum:
    HELD_LIMIT = 64   # objects a stream keeps before it checks which it may release


# -- streams in ------------------------------------------------------------------------------------

# Type → the attribute that gives the handle.
cdef dict stream_attributes = {}
cdef tuple STREAM_ATTRIBUTES = ("__cuda_stream__", "cuda_stream", "ptr", "handle")


cdef bint is_lasting(object kind) except -1:
    """Return whether a type stays in its module for good; other types are not cached."""
    module = _sys.modules.get(kind.__module__)
    return getattr(module, kind.__qualname__, None) is kind


cdef object stream_handle(object stream):
    """The handle of another library's stream object as an int, None when it is no stream."""
    cdef object kind = type(stream)
    cdef object attribute = stream_attributes.get(kind)
    if attribute is None:
        for attribute in STREAM_ATTRIBUTES:
            if hasattr(stream, attribute):
                break
        else:
            return None
        if is_lasting(kind):
            stream_attributes[kind] = attribute
    value = getattr(stream, attribute, None)
    if attribute == "__cuda_stream__":
        if callable(value):
            value = value()
        if isinstance(value, tuple) and len(value) == 2:
            value = value[1]
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    return _operator.index(value)


cdef StreamCore foreign_core(Context context, object stream):
    """The core of another library's stream, None if `stream` is not such a stream.

    The stream's owner must not destroy the stream while our work in it is pending; the lane can
    only hold the object.
    """
    cdef StreamCore core
    if context.dl_device_type != DL_CUDA:
        return None
    handle = stream_handle(stream)
    if handle is None:
        return None
    handle = explicit_handle(context, handle)
    core = context.foreign_streams.get(handle)
    if core is None:
        for known in context.streams.values():
            if <uintptr_t>(<StreamCore>known).handle == handle and not (<StreamCore>known).closed:
                return <StreamCore>known
        core = list_core(context, <void *><uintptr_t>handle, False)
        context.foreign_streams[handle] = core
    core.owner = stream
    return core


cdef object explicit_handle(Context context, object handle):
    """Return the handle; 0 becomes the legacy default stream's handle."""
    if handle == 0:
        handle = context.backend.special_stream("legacy")
        if handle is None:
            raise _errors.NotSupportedError(
                f"stream 0: {context.backend_name} has no legacy default stream. Pass a stream.",
                backend=context.backend_name,
            )
    return handle


# -- order -----------------------------------------------------------------------------------------


cdef int order_behind_handle(Context context, StreamCore core, uintptr_t handle) except -1:
    """Make later work of `core` wait for the current work of a foreign stream."""
    cdef void *event = NULL
    cdef void *previous
    cdef int status = 0
    if handle == <uintptr_t>core.handle:
        return 0
    refuse_capturing(core, "waiting for another library's stream", "no other library")
    slot = "event_create"
    previous = enter(context)
    if context.idle_events:
        event = <void *><uintptr_t>context.idle_events.pop()
    else:
        status = context.table.event_create(&event, EVENT_DISABLE_TIMING)
    if status == 0:
        slot = "event_record"
        status = context.table.event_record(event, <void *>handle)
    if status == 0:
        slot = "stream_wait_event"
        status = context.table.stream_wait_event(core.handle, event, 0)
    leave(context, previous)
    if event != NULL:
        # The wait refers to the record at the time of the call, so the event may be recorded again.
        context.idle_events.append(<uintptr_t>event)
    check(context, status, slot)
    core.ticket += 1
    return 0


cdef int order_foreign_behind(DeviceBuffer buffer, uintptr_t handle) except -1:
    """Make later work of a foreign stream start only after every recorded use of the buffer."""
    cdef Context context = buffer.context
    cdef Block block = buffer.block
    cdef int i
    for plan in context.captures:
        refuse_captured_handle(<Plan>plan, handle)
    if block is None:
        return 0
    if block.ready.stream_id != 0:
        order_foreign_behind_stamp(context, block.ready, handle)
    for i in range(block.stamp_count):
        order_foreign_behind_stamp(context, block.stamps[i], handle)
    block.exported = True
    return 0


cdef int order_foreign_behind_stamp(Context context, Stamp stamp, uintptr_t handle) except -1:
    cdef void *event
    if is_complete(context, stamp.stream_id, stamp.ticket, True):
        return 0
    if <uintptr_t>(<StreamCore>context.streams[stamp.stream_id]).handle == handle:
        return 0
    event = marker_for(context, <StreamCore>context.streams[stamp.stream_id], stamp.ticket)
    return native_stream_wait_event(context, <void *>handle, event, 0)


# -- memory in -------------------------------------------------------------------------------------


cdef DeviceBuffer describe_foreign(
    object cls, Context context, object size, object dtype, object address, bint readonly,
    object owner, StreamCore core
):
    """A buffer over memory of `owner`. `core`, if given, is the stream that made it ready."""
    cdef DeviceBuffer buffer = describe(cls, context, size, element_of(dtype))
    cdef Block block = Block.__new__(Block)
    live.buffers += 1
    if not 0 <= address <= 2**64 - 1 - buffer.nbytes:
        raise _errors.ArgumentValueError(
            f"address: expected {buffer.nbytes} bytes within 64 bits, got {address:#x}"
        )
    block.foreign = True
    block.owner = owner
    block.address = address
    block.bytes = block.requested = buffer.nbytes
    buffer.block = block
    buffer.address = address
    buffer.readonly = readonly
    buffer.owner = owner
    if core is not None:
        mark_ready(buffer, core)
    return buffer


cdef int release_foreign(Context context, Block block) except -1:
    """Let go of the owner once the work that uses its memory is done."""
    cdef object owner = block.owner
    cdef StreamCore core
    cdef int i
    block.owner = None
    if owner is None or context.state.word & UHAL_STATE_LOST:
        return 0
    if block.exported:
        # an untracked use may be in any stream
        for core in list(context.streams.values()):
            if not core_is_idle(context, core):
                keep(context, core, owner)
        return 0
    for i in range(block.stamp_count):
        if not is_complete(context, block.stamps[i].stream_id, block.stamps[i].ticket, True):
            keep(context, <StreamCore>context.streams[block.stamps[i].stream_id], owner)
    return 0


cdef int keep(Context context, StreamCore core, object memory) except -1:
    """Hold an object until the stream's current work is done; release objects whose work is
    done."""
    core.held.append((core.ticket, memory))
    if len(core.held) % HELD_LIMIT or core.state.word & (UHAL_STATE_CAPTURING | UHAL_STATE_CLOSED):
        return 0
    if not core_is_idle(context, core):
        poll_markers(context, core)
        marker_for(context, core, core.ticket)
    return 0


cdef DeviceBuffer import_array_interface(object cls, object source, object device, object stream):
    """`__cuda_array_interface__`, versions 2 and 3."""
    cdef Context context = context_for(cls, device)
    cdef StreamCore core = core_for(context, stream)
    refuse_capturing(core, "DeviceBuffer.from_cuda_array_interface", "no other library")
    return import_array_interface_on(cls, context, core, source)


cdef DeviceBuffer import_array_interface_on(
    object cls, Context context, StreamCore core, object source
):
    facts = getattr(source, "__cuda_array_interface__", None)
    if not isinstance(facts, dict):
        raise _errors.ArgumentTypeError(
            "source: expected an object with __cuda_array_interface__, got "
            f"{type(source).__name__}"
        )
    if context.dl_device_type != DL_CUDA:
        raise BufferError(
            f"expected memory of {context.backend_name}:{context.ordinal}, got CUDA memory (by "
            "__cuda_array_interface__). Copy it through the host."
        )
    if facts.get("mask") is not None:
        raise BufferError("expected an array without a mask, got a masked array. Fill it first.")
    dtype = interface_dtype(facts.get("typestr"))
    size = interface_size(facts.get("shape"), facts.get("strides"), dtype.itemsize)
    pointer, readonly = interface_data(facts.get("data"), size)
    producer = facts.get("stream")
    if producer is not None and not (type(producer) is int and 0 < producer < 2**64):
        raise _errors.ArgumentValueError(
            f"__cuda_array_interface__, stream: expected None, 1 for the legacy default stream, 2 "
            f"for the thread's or a handle, got {producer!r}"
        )
    if size:
        require_aligned(pointer, dtype.itemsize)
        where = context.backend.pointer_device(pointer)
        if where is not None and where != context.ordinal:
            raise BufferError(
                f"the memory is on {context.backend_name}:{where}, expected "
                f"{context.backend_name}:{context.ordinal}"
            )
    if producer is None:
        core = None   # the producer says that nothing is pending
    else:
        order_behind_handle(context, core, producer)
    return describe_foreign(
        cls, context, size, dtype, pointer if size else 0, readonly, source, core
    )


cdef int refuse_fact(str name, str expected, object given) except -1:
    raise BufferError(f"__cuda_array_interface__, {name}: expected {expected}, got {given!r}")


cdef object interface_dtype(object typestr):
    try:
        element = _numpy.dtype(typestr if isinstance(typestr, str) else None)
    except TypeError:
        element = None
    if element is None or not isinstance(typestr, str):
        refuse_fact("typestr", "a type of numpy's as '<f4'", typestr)
    if not element.isnative:
        raise BufferError(f"expected elements in native byte order, got {typestr}")
    return _as_dtype(element)


cdef object interface_size(object shape, object strides, Py_ssize_t itemsize):
    """The number of elements, an int of any size; `describe` checks it."""
    size = 1
    if not isinstance(shape, (tuple, list)):
        refuse_fact("shape", "a tuple of ints", shape)
    for extent in shape:
        if isinstance(extent, bool) or not hasattr(extent, "__index__") or extent < 0:
            refuse_fact("shape", "a tuple of ints of 0 or more", shape)
        size *= _operator.index(extent)
    if strides is None:
        return size
    if not isinstance(strides, (tuple, list)) or len(strides) != len(shape):
        refuse_fact("strides", f"None or {len(shape)} ints", strides)
    if size and not in_c_order(shape, strides, itemsize):
        refuse_strided()
    return size


cdef tuple interface_data(object data, object size):
    if (
        not isinstance(data, (tuple, list))
        or len(data) != 2
        or isinstance(data[0], bool)
        or not hasattr(data[0], "__index__")
        or not 0 <= data[0] < 2**64
    ):
        refuse_fact("data", "a pair of an address and whether it is read-only", data)
    if size and not data[0]:
        refuse_fact("data", f"the address of {size} elements", data)
    return _operator.index(data[0]), bool(data[1])


cdef bint in_c_order(object shape, object strides, object expected) except -1:
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


cdef int refuse_strided() except -1:
    raise BufferError(
        "expected a C-contiguous tensor; make one with the exporter's contiguous() or copy()"
    )


# -- out -------------------------------------------------------------------------------------------


cdef int require_cuda_protocol(Context context, str attribute) except -1:
    """AttributeError, so that hasattr() is False for other libraries."""
    if context is None:
        raise AttributeError(f"the object was never initialised: no {attribute}")
    if context.dl_device_type != DL_CUDA:
        raise AttributeError(f"{context.backend_name} has no CUDA objects: no {attribute}")
    return 0


cdef dict export_array_interface(DeviceBuffer buffer):
    """`__cuda_array_interface__`, version 3: the consumer waits for the stream named in it."""
    cdef Context context = buffer.context
    require_cuda_protocol(context, "__cuda_array_interface__")
    cdef StreamCore core = context.default_core
    if buffer.dtype.name in DLPACK_NAME_CODES:
        raise AttributeError(
            f"__cuda_array_interface__ cannot name {buffer.dtype.name}; DLPack (__dlpack__) can"
        )
    require_buffer(buffer)
    if buffer.block is not None:
        wait_for_uses(context, buffer.block, core)
        buffer.block.exported = True
    return {
        "shape": (buffer.size,),
        "typestr": buffer.dtype.dtype.str,
        "data": (buffer.address, bool(buffer.readonly)),
        "version": 3,
        "strides": None,
        "stream": <uintptr_t>core.handle,
    }
