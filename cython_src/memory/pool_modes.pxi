# UHAL_POOL=direct and guard: one driver allocation for each buffer. guard adds red zones and
# poison.

cdef enum:
    RED_ZONE_BYTES = 256
    RED_ZONE_BYTE = 0xFD
    POISON_FRESH_BYTE = 0xCB
    POISON_FREED_BYTE = 0xDB


cdef Block direct_block(Context context, size_t bytes):
    cdef Block block = Block.__new__(Block)
    cdef Segment segment = Segment.__new__(Segment)
    cdef size_t margin = RED_ZONE_BYTES if context.pool.mode == POOL_GUARD else 0
    segment.bytes = bytes + 2 * margin
    segment.address = driver_alloc(context, segment.bytes)
    block.segment = segment
    block.address = segment.address + margin
    block.bytes = bytes
    if margin:
        fill_bytes(context, segment.address, RED_ZONE_BYTE, margin)
        fill_bytes(context, block.address, POISON_FRESH_BYTE, bytes)
        fill_bytes(context, block.address + bytes, RED_ZONE_BYTE, margin)
        synchronize_core(context, context.default_core)
    return block


cdef int fill_bytes(Context context, uint64_t address, int value, size_t count) except -1:
    cdef int status = status_of_memset_8(
        context, address, value, count, context.default_core.handle
    )
    context.default_core.ticket += 1
    return check(context, status, "memset_8")


cdef int release_waiting(Context context) except -1:
    """In the direct modes, free the blocks whose work is done."""
    cdef Pool pool = context.pool
    cdef Block block
    cdef list waiting = pool.waiting
    if not waiting or context.captures:
        return 0
    # checking a red zone may run Python code (a warning's filter) that frees another buffer
    pool.waiting = []
    try:
        while waiting:
            block = <Block>waiting[-1]
            if drop_complete_stamps(context, block, True) > 0:
                pool.waiting.append(waiting.pop())
                continue
            if block.exported:
                settle_exported(context, block)
            if pool.mode == POOL_GUARD:
                check_red_zones(context, block)
            # The wait follows the poison: an earlier wait would hide work that still uses the
            # memory.
            settle_for_free(context)
            waiting.pop()
            driver_free(context, block.segment)
    finally:
        pool.waiting += waiting
    return 0


cdef int check_red_zones(Context context, Block block) except -1:
    """Warn when a kernel wrote outside the buffer; poison the freed memory."""
    cdef unsigned char zones[2 * RED_ZONE_BYTES]
    cdef int i, status
    cdef StreamCore core = context.default_core
    cdef void *previous = enter(context)
    status = context.table.copy_d2h(zones, block.segment.address, RED_ZONE_BYTES, core.handle)
    if status == 0:
        status = context.table.copy_d2h(
            zones + RED_ZONE_BYTES, block.address + block.bytes, RED_ZONE_BYTES, core.handle
        )
    leave(context, previous)
    check(context, status, "copy_d2h")
    core.ticket += 1
    synchronize_core(context, core)
    before = after = 0
    for i in range(RED_ZONE_BYTES):
        if zones[RED_ZONE_BYTES - 1 - i] != RED_ZONE_BYTE:
            before = i + 1
        if zones[RED_ZONE_BYTES + i] != RED_ZONE_BYTE:
            after = i + 1
    if before or after:
        warn_in_destructor(
            f"UHAL_POOL=guard: a buffer of {block.requested} bytes at 0x{block.address:x} was "
            f"overrun: the last changed byte lies {before} before its start, {after} past its end "
            "(0: none)"
        )
    fill_bytes(context, block.address, POISON_FREED_BYTE, block.bytes)
    return synchronize_core(context, core)
