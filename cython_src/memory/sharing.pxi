# Memory across processes: a handle names the driver's allocation. So a buffer travels as a handle,
# of the buffer's pool segment, and an offset in this segment.


@cython.final
@cython.no_gc
cdef class _IpcMemory:
    """Another process's allocation, mapped here until the last buffer over it has gone."""

    cdef Context context
    cdef uint64_t address

    def __dealloc__(self):
        if self.address == 0 or exiting:
            return
        if self.context.state.word & (UHAL_STATE_FORKED | UHAL_STATE_LOST):
            return
        try:
            close_ipc(self.context, self.address)
        except BaseException as failure:
            warn_in_destructor(f"unmapping another process's memory: {failure}")


cdef int close_ipc(Context context, uint64_t address) except -1:
    cdef void *previous = enter(context)
    try:
        context.backend.ipc_close(address)
    finally:
        leave(context, previous)
    return 0


cdef object export_ipc(DeviceBuffer buffer):
    from uhal.interop import IpcHandle
    cdef Context context = buffer.context
    cdef Block block = buffer.block
    cdef void *previous
    if block is None or block.segment is None or not buffer.nbytes:
        raise _errors.NotSupportedError(
            "ipc_handle: expected memory of the pool, got memory of another owner or of the "
            "driver's stream-ordered allocator, or an empty buffer. Copy it into "
            "DeviceBuffer.uninitialized(…).",
            backend=context.backend_name,
        )
    settle(buffer)
    previous = enter(context)
    try:
        native = context.backend.ipc_export(block.segment.address)
    finally:
        leave(context, previous)
    note_exported(buffer)
    return IpcHandle(
        context.backend_name,
        native,
        buffer.address - block.segment.address,
        buffer.size,
        buffer.dtype.name,
    )


cdef DeviceBuffer import_ipc(object cls, object handle, object device):
    from uhal.interop import IpcHandle
    cdef Context context = context_for(cls, device)
    cdef _IpcMemory memory
    cdef void *previous
    if not isinstance(handle, IpcHandle):
        raise _errors.ArgumentTypeError(
            f"handle: expected a uhal.interop.IpcHandle, got {type(handle).__name__}"
        )
    if handle.backend != context.backend_name:
        raise _errors.InvalidHandleError(
            f"handle: expected one of {context.backend_name}, got one of {handle.backend}"
        )
    dtype = _as_dtype(handle.dtype)
    offset = read_extent("handle.offset", handle.offset)
    element_count(handle.size, element_of(dtype))
    if not isinstance(handle.native, bytes):
        raise _errors.ArgumentTypeError(
            f"handle.native: expected bytes, got {type(handle.native).__name__}"
        )
    memory = _IpcMemory.__new__(_IpcMemory)
    memory.context = context
    previous = enter(context)
    try:
        memory.address = context.backend.ipc_open(handle.native)
    finally:
        leave(context, previous)
    return describe_foreign(
        cls, context, handle.size, dtype, memory.address + offset, False, memory, None
    )
