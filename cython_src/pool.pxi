# The pool: stream-ordered reuse of device memory, one pool a device.
#
# A block carries `ready`, the work after which it may be touched, and a stamp (stream id, ticket)
# for every stream it was used on since it was handed out. A freed block whose stamps all name one
# stream is handed out again at once, `ready` being its last stamp: the same stream need not wait
# and another one does so on the device. A block with stamps of several streams waits in the free
# list until all but one of them are complete. Freeing never blocks.

cdef enum PoolMode:
    POOL_CACHING
    POOL_DIRECT     # UHAL_POOL=direct: one driver allocation a buffer
    POOL_GUARD      # UHAL_POOL=guard: direct, with red zones and poison

cdef enum:
    SHARED_SEGMENT_BYTES = 2 << 20    # a driver's own granule: CUDA maps memory in 2 MiB pages
    LARGEST_SHARED_BLOCK = 256 << 10  # larger blocks have a segment of their own
    SCAN_LIMIT = 16                   # free blocks of a class looked at before growing


cdef struct FreeList:
    # The free blocks of one size class, owned, the youngest last. It keeps the room it once needed:
    # a program that allocates and frees in turn would grow and shrink a Python list each time.
    PyObject **blocks
    Py_ssize_t count
    Py_ssize_t capacity
    uint64_t taken      # how often one was taken out: whoever walks the list sees it change


@cython.final
@cython.no_gc
cdef class Pool:
    cdef int mode
    cdef FreeList free_lists[CLASS_COUNT]
    cdef list segments
    cdef list waiting               # Blocks of the direct modes whose stamps are not complete
    cdef Segment shared_segment     # the one small blocks are being cut from
    cdef size_t bytes_in_use
    cdef size_t bytes_reserved
    cdef size_t peak_bytes_in_use
    cdef Py_ssize_t blocks_in_use
    cdef uint64_t driver_allocations
    cdef uint64_t reuses

    def __init__(self, int mode):
        self.mode = mode
        self.segments = []
        self.waiting = []

    def __dealloc__(self):
        cdef int size_class
        for size_class in range(CLASS_COUNT):
            drop_all(&self.free_lists[size_class])
            c_free(self.free_lists[size_class].blocks)


cdef int put_free(FreeList *free, Block block) except -1:
    cdef PyObject **grown
    if free.count == free.capacity:
        grown = <PyObject **>realloc(free.blocks, (2 * free.capacity + 8) * sizeof(PyObject *))
        if grown == NULL:
            raise MemoryError
        free.blocks = grown
        free.capacity = 2 * free.capacity + 8
    free.blocks[free.count] = own(block)
    free.count += 1
    return 0


cdef Block take_out(FreeList *free, Py_ssize_t index):
    block = <Block>free.blocks[index]
    free.count -= 1
    free.taken += 1
    memmove(
        free.blocks + index, free.blocks + index + 1, (free.count - index) * sizeof(PyObject *)
    )
    Py_DECREF(block)
    return block


cdef void drop_all(FreeList *free) noexcept:
    while free.count:
        free.count -= 1
        Py_XDECREF(free.blocks[free.count])


cdef int _pool_mode() except -1:
    value = _os.environ.get("UHAL_POOL", "") or "caching"
    modes = {"caching": POOL_CACHING, "direct": POOL_DIRECT, "guard": POOL_GUARD}
    if value not in modes:
        raise ValueError(f"UHAL_POOL: expected caching, direct or guard, got {value!r}")
    return modes[value]


# -- handing out -------------------------------------------------------------------------------------


cdef Block pool_alloc(Context context, size_t bytes, StreamCore core):
    """A block of at least `bytes` > 0. `core`, if given, is the stream it will be used on first."""
    if core is not None and core.state.word & UHAL_STATE_CAPTURING:
        return arena_block(context, bytes, core)
    return pool_block(context, bytes, core)


cdef Block pool_block(Context context, size_t bytes, StreamCore core):
    cdef Pool pool = context.pool
    cdef Block block
    cdef int size_class
    if pool.mode == POOL_CACHING:
        size_class = size_class_of(bytes)
        block = take_free(context, size_class, core, False)
        if block is None:
            block = take_free(context, size_class, core, True)
        if block is None:
            block = cut_block(context, size_class)
        else:
            pool.reuses += 1
        block.segment.blocks_in_use += 1
    else:
        release_waiting(context)
        block = direct_block(context, bytes)
    block.requested = bytes
    pool.bytes_in_use += block.bytes
    pool.peak_bytes_in_use = max(pool.peak_bytes_in_use, pool.bytes_in_use)
    pool.blocks_in_use += 1
    return block


cdef Block take_free(Context context, int size_class, StreamCore core, bint ask):
    """A free block of the class that may be handed out now, or None.

    The youngest for which `core` has nothing to wait for, else the youngest there is.
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
            # what completed let go of an object whose destructor allocated from here
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
    """A block with at most one stamp left, which becomes what its next user waits for."""
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


cdef Segment new_segment(Context context, size_t bytes):
    cdef Segment segment = Segment.__new__(Segment)
    segment.address = driver_alloc(context, bytes)
    segment.bytes = bytes
    context.pool.segments.append(segment)
    return segment


cdef int try_alloc(Context context, size_t bytes, uint64_t *address) except? -1:
    cdef void *previous = enter(context)
    cdef int status
    with nogil:
        status = context.table.alloc(address, bytes)
    leave(context, previous)
    return status


cdef uint64_t driver_alloc(Context context, size_t bytes) except? 0:
    """Memory from the driver; when it has none, after giving back what lies unused here."""
    cdef Pool pool = context.pool
    cdef uint64_t address = 0
    cdef int status = try_alloc(context, bytes, &address)
    if status == context.table.out_of_memory:
        synchronize_streams(context)
        pool_empty_cache(context)
        status = try_alloc(context, bytes, &address)
    if status == context.table.out_of_memory:
        raise _errors.from_code(
            context.backend,
            context.hot_table.names.get("alloc", "alloc"),
            status,
            f"Asked for {bytes} bytes; {pool.blocks_in_use} live buffers hold "
            f"{pool.bytes_in_use} bytes and {pool.bytes_reserved - pool.bytes_in_use} more are "
            "reserved by the pool",
        )
    check(context, status, "alloc")
    pool.driver_allocations += 1
    pool.bytes_reserved += bytes
    return address


# -- taking back -------------------------------------------------------------------------------------


cdef int pool_free(Context context, Block block) except -1:
    """Take a block back; it is reused when its work allows. Never blocks."""
    cdef Pool pool = context.pool
    cdef int i
    if block.foreign:
        return release_foreign(context, block)
    pool.blocks_in_use -= 1
    pool.bytes_in_use -= block.bytes
    if context.state.word & UHAL_STATE_LOST:
        return 0
    if block.native_stream is not None:
        return free_native(context, block)
    if drop_complete_stamps(context, block, False) == 0 and block.ready.stream_id != 0:
        # handed out and never used: whoever gets it next must still wait
        add_stamp(block, block.ready.stream_id, block.ready.ticket)
    if block.stamp_count > 1:
        for i in range(block.stamp_count):
            if not is_complete(context, block.stamps[i].stream_id, block.stamps[i].ticket, False):
                marker_for(
                    context,
                    <StreamCore>context.streams[block.stamps[i].stream_id],
                    block.stamps[i].ticket,
                )
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


cdef int driver_free(Context context, Segment segment) except -1:
    cdef void *previous = enter(context)
    cdef int status
    with nogil:  # drivers wait for the whole device here
        status = context.table.free(segment.address)
    leave(context, previous)
    context.pool.bytes_reserved -= segment.bytes
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
    release_waiting(context)
    settle_all_exported(context)
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
        # taken off the list one by one: what is left after a failure is freed at the end
        pool.segments.remove(segment)
        driver_free(context, segment)
        freed += segment.bytes
    return freed


cdef list free_blocks(Pool pool):
    """All of them: asking about one may run Python code, which changes the lists."""
    cdef int size_class
    cdef Py_ssize_t index
    return [
        <Block>pool.free_lists[size_class].blocks[index]
        for size_class in range(CLASS_COUNT)
        for index in range(pool.free_lists[size_class].count)
    ]


cdef int settle_all_exported(Context context) except -1:
    """Make the free blocks that were used out of our sight ordinary ones."""
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
    """Wait for the whole device: a use that no stamp tells may be in anybody's stream."""
    synchronize_everything(context)
    block.exported = False
    block.stamp_count = 0
    return 0


cdef int synchronize_everything(Context context) except -1:
    """Wait for the device, and for those whose kernels may use its memory."""
    cdef Context other
    synchronize_device(context)
    for other in list(contexts):
        if context.ordinal in other.peers and other.backend_name == context.backend_name:
            if not other.state.word & UHAL_STATE_REFUSES:
                synchronize_device(other)
    return 0


cdef int synchronize_device(Context context) except -1:
    """Wait for our streams, and for others' where the vendor has a call for it."""
    cdef void *previous
    synchronize_streams(context)
    previous = enter(context)
    try:
        context.backend.synchronize_device(context.ordinal)
    except NotImplementedError:
        pass  # then what others put into their own streams is theirs to wait for
    finally:
        leave(context, previous)
    return 0


cdef int pool_free_segments(Context context) except? -1:
    """At the end of a context everything goes, whatever the free lists say. The first failure."""
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


cdef dict pool_statistics(Context context):
    cdef Pool pool = context.pool
    return {
        "bytes_in_use": pool.bytes_in_use,
        "peak_bytes_in_use": pool.peak_bytes_in_use,
        "bytes_reserved": pool.bytes_reserved,
        "blocks_in_use": pool.blocks_in_use,
        "driver_allocations": pool.driver_allocations,
        "reuses": pool.reuses,
    }


# -- stream-ordered allocation by the driver ---------------------------------------------------------


cdef Block native_block(Context context, size_t bytes, StreamCore core):
    cdef Block block = Block.__new__(Block)
    cdef Pool pool = context.pool
    refuse_capturing(core, "DeviceBuffer.uninitialized_async(native=True)", ONLY_THE_ARENA)
    if context.table.alloc_async == NULL or context.table.free_async == NULL:
        slot = "alloc_async" if context.table.alloc_async == NULL else "free_async"
        raise _errors.NotSupportedError(
            f"{context.backend_name} has no stream-ordered allocation of its own"
            f"{lacking(context, slot)}; leave out native=True to use the pool",
            backend=context.backend_name,
        )
    cdef void *previous = enter(context)
    cdef int status = context.table.alloc_async(&block.address, bytes, core.handle)
    leave(context, previous)
    check(context, status, "alloc_async")
    core.ticket += 1
    block.bytes = block.requested = bytes
    block.native_stream = core
    block.ready.stream_id = core.id
    block.ready.ticket = core.ticket
    pool.blocks_in_use += 1
    pool.bytes_in_use += bytes
    return block


cdef int free_native(Context context, Block block) except -1:
    """Free in the order of the stream it came from, behind every recorded use."""
    cdef StreamCore core = block.native_stream
    cdef int i, status
    cdef void *previous
    if core.state.word & UHAL_STATE_CAPTURING:
        keep_for_plan(core.capture, block)
        return 0
    if core.closed:
        core = context.default_core
        wait_for(context, core, block.ready.stream_id, block.ready.ticket)
    for i in range(block.stamp_count):
        wait_for(context, core, block.stamps[i].stream_id, block.stamps[i].ticket)
    previous = enter(context)
    status = context.table.free_async(block.address, core.handle)
    leave(context, previous)
    core.ticket += 1
    return check(context, status, "free_async")
