# The pool: stream-ordered reuse of device memory, one pool per device.
#
# A block carries `ready`, the work after which it may be touched. It also carries a stamp (stream
# id, ticket) for every stream that used it since its allocation. A freed block with stamps of one
# stream is reused at once, with its last stamp as `ready`. The same stream need not wait, and
# another stream waits on the device. A block with stamps of several streams waits in the free list
# until all streams but one are complete. Freeing never blocks.

cdef enum PoolMode:
    POOL_CACHING
    POOL_DIRECT     # UHAL_POOL=direct: one driver allocation a buffer
    POOL_GUARD      # UHAL_POOL=guard: direct, with red zones and poison
    POOL_WATCHED    # any mode, while a profile records allocations and releases

cdef enum:
    SHARED_SEGMENT_BYTES = 2 << 20    # a driver's own granule: CUDA maps memory in 2 MiB pages
    LARGEST_SHARED_BLOCK = 256 << 10  # larger blocks have a segment of their own
    SCAN_LIMIT = 16                   # free blocks of a class looked at before growing


@cython.final
@cython.no_gc
cdef class Pool:
    """Pool(mode, limit)\n--\n
    The allocator of a device's memory."""

    cdef int mode
    cdef int path                   # the mode, or POOL_WATCHED
    cdef FreeList free_lists[CLASS_COUNT]
    cdef list segments
    cdef list waiting               # Blocks of the direct modes whose stamps are not complete
    cdef Segment shared_segment     # the segment that small blocks are cut from
    cdef OwnerLink owners           # the head of the blocks in use
    cdef size_t limit               # of bytes_reserved
    cdef size_t bytes_in_use
    cdef size_t bytes_reserved
    cdef size_t peak_bytes_in_use
    cdef size_t peak_bytes_reserved
    cdef Py_ssize_t blocks_in_use
    cdef Py_ssize_t lent            # blocks that streams of other devices hold
    cdef uint64_t driver_allocations
    cdef uint64_t driver_frees
    cdef uint64_t fresh_blocks      # handed out for the first time
    cdef uint64_t reuses
    cdef uint64_t retries           # allocations that had to empty the cache first
    cdef uint64_t out_of_memory

    def __cinit__(self):
        self.owners.previous = self.owners.next = &self.owners

    def __init__(self, int mode, limit):
        self.mode = self.path = mode
        self.limit = NO_LIMIT if limit is None else limit
        self.segments = []
        self.waiting = []

    def __dealloc__(self):
        cdef int size_class
        forget_owners(self)
        for size_class in range(CLASS_COUNT):
            drop_all(&self.free_lists[size_class])
            c_free(self.free_lists[size_class].blocks)


cdef int _pool_mode() except -1:
    # Checked kernels know the bounds of allocations, but not of buffers within an allocation.
    usual = "direct" if _environment.read("UHAL_HOST_CHECK") == "1" else "caching"
    modes = {"caching": POOL_CACHING, "direct": POOL_DIRECT, "guard": POOL_GUARD}
    return modes[_environment.read("UHAL_POOL") or usual]


# -- handing out -----------------------------------------------------------------------------------


cdef Block pool_alloc(Context context, size_t bytes, StreamCore core):
    """Return a block of at least `bytes` > 0, first for `core`."""
    if core is not None and core.state.word & UHAL_STATE_CAPTURING:
        return arena_block(context, bytes, core)
    return pool_block(context, bytes, core)


cdef Block pool_block(Context context, size_t bytes, StreamCore core):
    cdef Pool pool = context.pool
    cdef Block block
    cdef int size_class
    cdef int64_t begun = 0      # when, if it is watched
    if pool.path != POOL_CACHING:
        if pool.mode != POOL_CACHING:
            return uncached_block(context, bytes)
        begun = uhal_profile_now()
    size_class = size_class_of(bytes)
    block = take_free(context, size_class, core, False)
    if block is None:
        block = take_free(context, size_class, core, True)
    if block is None and pool.lent:
        reclaim_lent(context, False)
        block = take_free(context, size_class, core, False)
    if block is None:
        block = cut_block(context, size_class)
        pool.fresh_blocks += 1
    else:
        pool.reuses += 1
    block.segment.blocks_in_use += 1
    block.requested = bytes
    count_in(pool, block)
    if begun:
        watch_memory(context, block, UHAL_PROFILE_ALLOCATE, begun)
    return block


cdef Block uncached_block(Context context, size_t bytes):
    """Make a block in one of the direct modes."""
    cdef int64_t begun = uhal_profile_now()
    cdef Block block
    release_waiting(context)
    block = direct_block(context, bytes)
    context.pool.fresh_blocks += 1
    block.requested = bytes
    count_in(context.pool, block)
    if context.pool.path == POOL_WATCHED:
        watch_memory(context, block, UHAL_PROFILE_ALLOCATE, begun)
    return block


cdef inline void count_in(Pool pool, Block block) noexcept:
    pool.bytes_in_use += block.bytes
    pool.peak_bytes_in_use = max(pool.peak_bytes_in_use, pool.bytes_in_use)
    pool.blocks_in_use += 1
    note_owner(pool, block)


cdef inline void count_out(Pool pool, Block block) noexcept:
    pool.bytes_in_use -= block.bytes
    pool.blocks_in_use -= 1
    forget_owner(&block.owner_link)


cdef Block take_free(Context context, int size_class, StreamCore core, bint ask):
    """A free block of the class that may be handed out now, or None.

    Prefers the youngest block that `core` need not wait for, else the youngest.
    """
    cdef FreeList *free = &context.pool.free_lists[size_class]
    cdef Block block
    cdef Py_ssize_t index = free.count - 1
    cdef Py_ssize_t last = max(0, index - SCAN_LIMIT)
    cdef Py_ssize_t other = -1      # a block whose next user waits for another stream
    cdef uint64_t taken = free.taken
    cdef int left
    while index >= last:
        block = <Block>free.blocks[index]
        left = drop_complete_stamps(context, block, ask)
        if free.taken != taken:
            # completed work released an object whose destructor allocated here
            return take_free(context, size_class, core, ask)
        if block.exported and ask and not context.captures:
            # other threads run while this one waits: they must not find the block
            take_out(free, index)
            try:
                settle_exported(context, block)
            except BaseException:
                put_free(free, block)
                raise
            return hand_out(block)
        if not block.exported and left <= 1:
            if left == 0 or core is None or block.stamps[0].stream_id == core.id:
                return hand_out(take_out(free, index))
            if other < 0:
                other = index
        index -= 1
    if other >= 0:
        return hand_out(take_out(free, other))
    return None


cdef Block hand_out(Block block):
    """Return a block with at most one stamp, moved to `ready`."""
    block.waited = 0
    block.ready.stream_id = 0
    if block.stamp_count == 1:
        block.ready = block.stamps[0]
        block.stamp_count = 0
    return block


cdef Block cut_block(Context context, int size_class):
    cdef Pool pool = context.pool
    cdef size_t bytes = class_bytes(size_class)
    cdef Segment segment = pool.shared_segment
    cdef Block block = Block.__new__(Block)
    if bytes > LARGEST_SHARED_BLOCK:
        segment = new_segment(context, bytes)
    elif segment is None or segment.bytes - segment.cut < bytes:
        segment = new_segment(context, SHARED_SEGMENT_BYTES)
        pool.shared_segment = segment
    block.address = segment.address + segment.cut
    block.bytes = bytes
    block.size_class = size_class
    block.segment = segment
    segment.cut += bytes
    return block


# -- taking back -----------------------------------------------------------------------------------


cdef int pool_free(Context context, Block block) except -1:
    """Take a block back; it is reused when its work allows. Never blocks."""
    cdef Pool pool = context.pool
    cdef int i
    if block.foreign:
        return release_foreign(context, block)
    count_out(pool, block)
    if context.state.word & UHAL_STATE_LOST:
        return 0
    if block.native_stream is not None:
        if pool.path == POOL_WATCHED:
            watch_memory(context, block, UHAL_PROFILE_FREE, 0)
        return free_native(context, block)
    if drop_complete_stamps(context, block, False) == 0 and block.ready.stream_id != 0:
        # the block was handed out and never used: its next user must still wait
        add_stamp(block, block.ready.stream_id, block.ready.ticket)
    if block.stamp_count > 1:
        for i in range(block.stamp_count):
            if not is_complete(context, block.stamps[i].stream_id, block.stamps[i].ticket, False):
                marker_for(
                    context,
                    <StreamCore>context.streams[block.stamps[i].stream_id],
                    block.stamps[i].ticket,
                )
    if pool.path != POOL_CACHING:
        if pool.path == POOL_WATCHED:
            watch_memory(context, block, UHAL_PROFILE_FREE, 0)
        if pool.mode != POOL_CACHING:
            pool.waiting.append(block)
            release_waiting(context)
            return 0
    block.segment.blocks_in_use -= 1
    return put_free(&pool.free_lists[block.size_class], block)


cdef inline int let_go(Context context, Block block) except -1:
    """End a hold; give the memory back when its buffer was closed meanwhile."""
    block.holds -= 1
    if block.abandoned and block.holds == 0:
        block.abandoned = False
        return pool_free(context, block)
    return 0


cdef dict pool_statistics(Context context):
    cdef Pool pool = context.pool
    return {
        "bytes_in_use": pool.bytes_in_use,
        "peak_bytes_in_use": pool.peak_bytes_in_use,
        "bytes_reserved": pool.bytes_reserved,
        "peak_bytes_reserved": pool.peak_bytes_reserved,
        "blocks_in_use": pool.blocks_in_use,
        "segments": len(pool.segments),
        "allocations": pool.fresh_blocks + pool.reuses,
        "reuses": pool.reuses,
        "driver_allocations": pool.driver_allocations,
        "driver_frees": pool.driver_frees,
        "retries": pool.retries,
        "out_of_memory": pool.out_of_memory,
    }
