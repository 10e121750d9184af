# Segments: memory from the driver, its allocation, a second attempt, and its release.


cdef Segment new_segment(Context context, size_t bytes):
    cdef Segment segment = Segment.__new__(Segment)
    segment.address = driver_alloc(context, bytes)
    segment.bytes = bytes
    context.pool.segments.append(segment)
    return segment


cdef uint64_t driver_alloc(Context context, size_t bytes, StreamCore ordered_in=None) except? 0:
    """Memory from the driver; releases unused segments if the device is full.

    `ordered_in` asks the driver's stream-ordered allocator instead of the plain one.
    """
    cdef Pool pool = context.pool
    cdef uint64_t address = 0
    cdef int status
    slot = "alloc" if ordered_in is None else "alloc_async"
    stay_within_limit(context, bytes)
    # counted before the call, during which other threads may allocate
    pool.bytes_reserved += bytes
    try:
        status = try_alloc(context, bytes, ordered_in, &address)
        if status == context.table.out_of_memory:
            pool.retries += 1
            reclaim_lent(context, True)
            synchronize_streams(context)
            pool_empty_cache(context)
            status = try_alloc(context, bytes, ordered_in, &address)
    except BaseException:
        pool.bytes_reserved -= bytes
        raise
    if status != 0:
        pool.bytes_reserved -= bytes
    if status == context.table.out_of_memory:
        pool.out_of_memory += 1
        raise _errors.from_code(
            context.backend,
            context.hot_table.names.get(slot, slot),
            status,
            memory_words().full_device_note(context, bytes),
        )
    check(context, status, slot)
    pool.peak_bytes_reserved = max(pool.peak_bytes_reserved, pool.bytes_reserved)
    pool.driver_allocations += 1
    return address


cdef int try_alloc(
    Context context, size_t bytes, StreamCore ordered_in, uint64_t *address
) except? -1:
    if ordered_in is not None:
        return status_of_alloc_async(context, address, bytes, ordered_in.handle)
    return status_of_alloc_unlocked(context, address, bytes)


cdef inline bint fits_limit(Pool pool, size_t bytes) noexcept:
    return pool.bytes_reserved <= pool.limit and bytes <= pool.limit - pool.bytes_reserved


cdef int stay_within_limit(Context context, size_t bytes) except -1:
    """Free memory until `bytes` more fit the pool's limit, or refuse."""
    cdef Pool pool = context.pool
    if fits_limit(pool, bytes):
        return 0
    if bytes <= pool.limit:
        pool.retries += 1
        pool_empty_cache(context)
        if not fits_limit(pool, bytes):
            reclaim_lent(context, True)
            synchronize_streams(context)
            pool_empty_cache(context)
        if fits_limit(pool, bytes):
            return 0
    pool.out_of_memory += 1
    raise _errors.OutOfMemoryError(
        memory_words().limit_note(context, bytes), backend=context.backend_name
    )


cdef int driver_free(Context context, Segment segment) except -1:
    # drivers wait for the whole device in this call; see settle_for_free
    cdef int status = status_of_free_unlocked(context, segment.address)
    context.pool.bytes_reserved -= segment.bytes
    context.pool.driver_frees += 1
    return check(context, status, "free")


cdef Py_ssize_t pool_empty_cache(Context context) except? -1:
    """Give segments without a block in use back to the driver; returns the bytes."""
    cdef Pool pool = context.pool
    cdef Segment segment
    cdef Block block
    cdef FreeList *free
    cdef int size_class
    cdef Py_ssize_t index
    cdef Py_ssize_t freed = 0
    if context.captures:
        return 0  # freeing exported memory needs a wait for the device: forbidden in a capture
    release_waiting(context)
    settle_all_exported(context)
    for segment in pool.segments:
        if segment.blocks_in_use == 0:
            settle_for_free(context)
            break
    busy = set()
    for block in free_blocks(pool):
        if drop_complete_stamps(context, block, True) > 0:
            busy.add(block.segment)
    unused = {
        segment for segment in pool.segments
        if (<Segment>segment).blocks_in_use == 0 and segment not in busy
    }
    if not unused:
        return 0
    for size_class in range(CLASS_COUNT):
        free = &pool.free_lists[size_class]
        for index in reversed(range(free.count)):
            if (<Block>free.blocks[index]).segment in unused:
                take_out(free, index)
    if pool.shared_segment in unused:
        pool.shared_segment = None
    for segment in unused:
        # Removed one by one: after a failure, the end of the context frees the remaining segments.
        pool.segments.remove(segment)
        driver_free(context, segment)
        freed += segment.bytes
    return freed


cdef int pool_free_segments(Context context) except? -1:
    """Free every segment at the end of a context, used or not; return the first failure."""
    cdef Segment segment
    cdef Block block
    cdef int status = 0
    for block in context.pool.waiting:
        keep_first(&status, context.table.free(block.segment.address))
    for segment in context.pool.segments:
        keep_first(&status, context.table.free(segment.address))
    context.pool.waiting = []
    context.pool.segments = []
    return status
