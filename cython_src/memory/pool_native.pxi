# Stream-ordered allocation by the driver itself: `uninitialized_async(…, native=True)`.


cdef Block native_block(Context context, size_t bytes, StreamCore core):
    cdef Block block = Block.__new__(Block)
    refuse_capturing(core, "DeviceBuffer.uninitialized_async(native=True)", "no driver memory")
    if context.table.alloc_async == NULL or context.table.free_async == NULL:
        slot = "alloc_async" if context.table.alloc_async == NULL else "free_async"
        raise _errors.NotSupportedError(
            f"{context.backend_name} has no stream-ordered allocation of its own"
            f"{lacking(context, slot)}; leave out native=True to use the pool",
            backend=context.backend_name,
        )
    block.address = driver_alloc(context, bytes, core)
    core.ticket += 1
    block.bytes = block.requested = bytes
    block.native_stream = core
    block.ready.stream_id = core.id
    block.ready.ticket = core.ticket
    context.pool.fresh_blocks += 1
    count_in(context.pool, block)
    if context.pool.path == POOL_WATCHED:
        watch_memory(context, block, UHAL_PROFILE_ALLOCATE, 0)
    return block


cdef int free_native(Context context, Block block) except -1:
    """Free memory in its stream's order, behind every recorded use."""
    cdef StreamCore core = block.native_stream
    cdef int i, status
    if core.state.word & UHAL_STATE_CAPTURING:
        keep_for_plan(core.capture, block)
        return 0
    if core.closed:
        core = context.default_core
        wait_for(context, core, block.ready.stream_id, block.ready.ticket)
    for i in range(block.stamp_count):
        wait_for(context, core, block.stamps[i].stream_id, block.stamps[i].ticket)
    status = status_of_free_async(context, block.address, core.handle)
    core.ticket += 1
    context.pool.bytes_reserved -= block.bytes
    context.pool.driver_frees += 1
    return check(context, status, "free_async")
