# Memory that DLPack consumers or streams of other devices use: no stamp of the memory's pool
# records these uses. The memory is kept until the last user has released it.


@cython.final
@cython.no_gc
cdef class HeldMemory:
    """HeldMemory()\n--\n
    A use of memory, which may last beyond its buffer's close."""

    cdef Context context
    cdef Block block
    cdef object owner
    cdef bint lent      # to a stream of another device

    def __dealloc__(self):
        if self.block is None:
            return
        self.context.pool.lent -= self.lent
        if exiting or self.context.state.word & UHAL_STATE_FORKED:
            return
        try:
            let_go(self.context, self.block)
        except BaseException as failure:
            warn_in_destructor(f"freeing {self.block.requested} bytes: {failure}")


cdef HeldMemory hold_memory(DeviceBuffer buffer):
    cdef HeldMemory held = HeldMemory.__new__(HeldMemory)
    cdef DeviceBuffer root = buffer if buffer.root is None else buffer.root
    held.context = buffer.context
    if buffer.block is None or buffer.block.foreign:
        held.owner = root.owner
        return held
    held.owner = root
    held.block = buffer.block
    held.block.holds += 1
    return held


cdef HeldMemory lent_memory(DeviceBuffer buffer):
    """Memory for another device's stream, kept until the stream's work is done.

    A stamp is not enough: stream ids are looked up in the memory's context.
    """
    cdef HeldMemory held = hold_memory(buffer)
    if held.block is not None:
        held.lent = True
        held.context.pool.lent += 1
    return held


cdef int reclaim_lent(Context context, bint wait) except -1:
    """Release memory lent to other devices' streams. With `wait`, first wait for their work."""
    cdef Context other
    cdef StreamCore core
    if not context.pool.lent:
        return 0
    for other in list(contexts):
        if other is context or other.state.word & (UHAL_STATE_FORKED | UHAL_STATE_LOST):
            continue
        for core in list(other.streams.values()):
            if not core.held or core.state.word & UHAL_STATE_CAPTURING:
                continue
            try:
                ask_borrower(other, core, wait)
            except _errors.DeviceError:
                pass  # the other device is lost: its next call says so
    return 0


cdef int ask_borrower(Context context, StreamCore core, bint wait) except -1:
    if wait:
        return synchronize_core(context, core)
    if core_is_idle(context, core):
        return 0
    poll_markers(context, core)
    if core.held and not core.closed:
        # lets the next call release this memory, even if later work keeps the stream busy
        marker_for(context, core, core.held[0][0])
    return 0
