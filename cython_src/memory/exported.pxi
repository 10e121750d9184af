# Memory with untracked uses: before its reuse, the host waits for every possible user.


cdef int settle_all_exported(Context context) except -1:
    """Turn free blocks with untracked uses into ordinary blocks."""
    cdef Block block
    cdef FreeList *free
    cdef int size_class
    cdef Py_ssize_t index
    cdef list exported = []
    for size_class in range(CLASS_COUNT):
        free = &context.pool.free_lists[size_class]
        for index in reversed(range(free.count)):
            if (<Block>free.blocks[index]).exported:
                exported.append(take_out(free, index))
    try:
        for block in exported:
            settle_exported(context, block)
    finally:
        for block in exported:
            put_free(&context.pool.free_lists[block.size_class], block)
    return 0


cdef int settle_exported(Context context, Block block) except -1:
    """Wait for the whole device: an untracked use may be in any stream."""
    synchronize_everything(context)
    block.exported = False
    block.stamp_count = 0
    return 0


cdef int synchronize_everything(Context context) except -1:
    """Wait for the device, and for devices whose kernels may use its memory."""
    cdef Context other
    synchronize_device(context)
    for other in list(contexts):
        if context.ordinal in other.peers and other.backend_name == context.backend_name:
            # A closed device still runs its pending work.
            if not other.state.word & (UHAL_STATE_FORKED | UHAL_STATE_LOST):
                synchronize_device(other)
    return 0


cdef int synchronize_device(Context context) except -1:
    """Wait for our streams, and for foreign streams if the vendor has a call for it."""
    cdef void *previous
    synchronize_streams(context)
    previous = enter(context)
    try:
        context.backend.synchronize_device(context.ordinal)
    except NotImplementedError:
        pass  # then other libraries must wait for their own streams
    finally:
        leave(context, previous)
    return 0
