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
    RED_ZONE_BYTES = 256
    RED_ZONE_BYTE = 0xFD
    POISON_FRESH_BYTE = 0xCB
    POISON_FREED_BYTE = 0xDB
    SMALLEST_CLASS_LOG2 = 8           # 256 bytes, the alignment every driver gives
    CLASSES_PER_DOUBLING = 8          # so that rounding up wastes at most an eighth
    CLASS_COUNT = (64 - SMALLEST_CLASS_LOG2) * CLASSES_PER_DOUBLING
    SHARED_SEGMENT_BYTES = 2 << 20    # a driver's own granule: CUDA maps memory in 2 MiB pages
    LARGEST_SHARED_BLOCK = 256 << 10  # larger blocks have a segment of their own
    SCAN_LIMIT = 16                   # free blocks of a class looked at before growing

cdef struct Stamp:
    uint64_t stream_id
    uint64_t ticket


@cython.final
@cython.no_gc
cdef class Segment:
    """One driver allocation, cut into blocks from the front."""

    cdef uint64_t address
    cdef size_t bytes
    cdef size_t cut
    cdef Py_ssize_t blocks_in_use


@cython.final
@cython.no_gc
cdef class Block:
    """A piece of a segment as the pool hands it out."""

    cdef uint64_t address
    cdef size_t bytes           # capacity
    cdef size_t requested
    cdef int size_class         # -1: not cached
    cdef Segment segment
    cdef Stamp ready            # stream_id 0: at once
    cdef uint64_t waited        # id of the stream that already waits for `ready`
    cdef Stamp *stamps
    cdef int stamp_count
    cdef int stamp_capacity
    cdef Stamp first_stamps[2]
    cdef bint exported          # used where no stamp tells: wait for the whole device before reuse
    cdef Py_ssize_t exports     # DLPack consumers that still hold the memory
    cdef bint closed_by_user    # the buffer is closed; the last consumer gives the memory back
    cdef StreamCore native_stream   # set: from alloc_async, goes back by free_async
    cdef bint foreign           # somebody else's memory: no pool ever has it
    cdef object owner           # who that is

    def __cinit__(self):
        self.stamps = self.first_stamps
        self.stamp_capacity = 2
        self.size_class = -1

    def __dealloc__(self):
        if self.stamps != self.first_stamps:
            c_free(self.stamps)


@cython.final
@cython.no_gc
cdef class Pool:
    cdef int mode
    cdef list free_lists            # of Blocks, by size class; None where there never was one
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
        self.free_lists = [None] * CLASS_COUNT
        self.segments = []
        self.waiting = []


cdef int _pool_mode() except -1:
    value = _os.environ.get("UHAL_POOL", "") or "caching"
    modes = {"caching": POOL_CACHING, "direct": POOL_DIRECT, "guard": POOL_GUARD}
    if value not in modes:
        raise ValueError(f"UHAL_POOL: expected caching, direct or guard, got {value!r}")
    return modes[value]


# -- size classes ------------------------------------------------------------------------------------


cdef inline int size_class_of(size_t bytes) noexcept:
    """Index of the smallest class that holds `bytes` > 0: eight classes a doubling, from 256."""
    cdef int log2 = SMALLEST_CLASS_LOG2
    cdef size_t above
    if bytes <= <size_t>1 << SMALLEST_CLASS_LOG2:
        return 0
    while bytes > <size_t>2 << log2:
        log2 += 1
    above = bytes - (<size_t>1 << log2)
    return (
        (log2 - SMALLEST_CLASS_LOG2) * CLASSES_PER_DOUBLING
        + <int>((above + (<size_t>1 << (log2 - 3)) - 1) >> (log2 - 3))
    )


cdef inline size_t class_bytes(int size_class) noexcept:
    """Bytes of a class, rounded up to the alignment of 256."""
    cdef int log2 = SMALLEST_CLASS_LOG2 + size_class // CLASSES_PER_DOUBLING
    cdef size_t eighths = size_class % CLASSES_PER_DOUBLING
    cdef size_t bytes = (<size_t>1 << log2) + (eighths << (log2 - 3))
    return (bytes + 255) & ~<size_t>255


# -- stamps ------------------------------------------------------------------------------------------


cdef inline int stamp(Block block, uint64_t stream_id, uint64_t ticket) except -1:
    """Record that work `ticket` of a stream uses the block."""
    cdef int i
    for i in range(block.stamp_count):
        if block.stamps[i].stream_id == stream_id:
            block.stamps[i].ticket = ticket
            return 0
    return add_stamp(block, stream_id, ticket)


cdef int add_stamp(Block block, uint64_t stream_id, uint64_t ticket) except -1:
    cdef Stamp *grown
    if block.stamp_count == block.stamp_capacity:
        grown = <Stamp *>malloc(2 * block.stamp_capacity * sizeof(Stamp))
        if grown == NULL:
            raise MemoryError
        memcpy(grown, block.stamps, block.stamp_count * sizeof(Stamp))
        if block.stamps != block.first_stamps:
            c_free(block.stamps)
        block.stamps = grown
        block.stamp_capacity *= 2
    block.stamps[block.stamp_count].stream_id = stream_id
    block.stamps[block.stamp_count].ticket = ticket
    block.stamp_count += 1
    return 0


cdef int drop_complete_stamps(Context context, Block block, bint ask) except -1:
    """Forget stamps whose work is done; returns how many are left."""
    cdef int i = 0
    while i < block.stamp_count:
        if is_complete(context, block.stamps[i].stream_id, block.stamps[i].ticket, ask):
            block.stamp_count -= 1
            block.stamps[i] = block.stamps[block.stamp_count]
        else:
            i += 1
    return block.stamp_count


cdef inline int wait_until_ready(Context context, Block block, StreamCore core) except -1:
    """Order the stream behind the work that made the block usable."""
    if block.ready.stream_id != 0 and block.ready.stream_id != core.id and block.waited != core.id:
        if is_complete(context, block.ready.stream_id, block.ready.ticket, True):
            block.ready.stream_id = 0
        else:
            wait_for(context, core, block.ready.stream_id, block.ready.ticket)
            block.waited = core.id
    return 0


cdef int wait_for_uses(Context context, Block block, StreamCore core) except -1:
    """Order the stream behind every recorded use of the block."""
    cdef int i
    wait_until_ready(context, block, core)
    for i in range(block.stamp_count):
        wait_for(context, core, block.stamps[i].stream_id, block.stamps[i].ticket)
    return 0


# -- handing out -------------------------------------------------------------------------------------


cdef Block pool_alloc(Context context, size_t bytes, StreamCore core):
    """A block of at least `bytes` > 0. `core`, if given, is the stream it will be used on first."""
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
    """The youngest free block of the class that may be handed out now, or None."""
    cdef list blocks = context.pool.free_lists[size_class]
    cdef Block block
    cdef Py_ssize_t index, last
    cdef int left
    if blocks is None or not blocks:
        return None
    index = len(blocks) - 1
    last = max(0, index - SCAN_LIMIT)
    while index >= last:
        block = <Block>blocks[index]
        left = drop_complete_stamps(context, block, ask)
        if block.exported and ask:
            # other threads run while this one waits: they must not find the block
            blocks.pop(index)
            try:
                settle_exported(context, block)
            except BaseException:
                blocks.append(block)
                raise
            return hand_out(block)
        if not block.exported and left <= 1:
            blocks.pop(index)
            return hand_out(block)
        index -= 1
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
        context.synchronize()
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
    cdef list blocks
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
    blocks = pool.free_lists[block.size_class]
    if blocks is None:
        blocks = pool.free_lists[block.size_class] = []
    blocks.append(block)
    return 0


cdef int driver_free(Context context, Segment segment) except -1:
    cdef void *previous = enter(context)
    cdef int status = context.table.free(segment.address)
    leave(context, previous)
    context.pool.bytes_reserved -= segment.bytes
    return check(context, status, "free")


cdef Py_ssize_t pool_empty_cache(Context context) except? -1:
    """Give segments without a block in use back to the driver; returns the bytes."""
    cdef Pool pool = context.pool
    cdef Segment segment
    cdef Block block
    cdef list kept
    cdef Py_ssize_t freed = 0
    release_waiting(context)
    settle_all_exported(context)
    busy = set()
    for blocks in pool.free_lists:
        for block in blocks or ():
            if drop_complete_stamps(context, block, True) > 0:
                busy.add(block.segment)
    unused = {
        segment for segment in pool.segments
        if (<Segment>segment).blocks_in_use == 0 and segment not in busy
    }
    if not unused:
        return 0
    for index in range(CLASS_COUNT):
        if pool.free_lists[index]:
            kept = [b for b in pool.free_lists[index] if (<Block>b).segment not in unused]
            pool.free_lists[index] = kept
    if pool.shared_segment in unused:
        pool.shared_segment = None
    for segment in unused:
        # taken off the list one by one: what is left after a failure is freed at the end
        pool.segments.remove(segment)
        driver_free(context, segment)
        freed += segment.bytes
    return freed


cdef int settle_all_exported(Context context) except -1:
    """Make the free blocks that were used out of our sight ordinary ones."""
    cdef Block block
    cdef list blocks
    cdef list exported = []
    for blocks in context.pool.free_lists:
        if blocks:
            exported += [block for block in blocks if (<Block>block).exported]
            blocks[:] = [block for block in blocks if not (<Block>block).exported]
    try:
        for block in exported:
            settle_exported(context, block)
    finally:
        for block in exported:
            (<list>context.pool.free_lists[block.size_class]).append(block)
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
    context.synchronize()
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
    if context.table.alloc_async == NULL or context.table.free_async == NULL:
        raise _errors.NotSupportedError(
            f"{context.backend_name} has no stream-ordered allocation of its own; leave out "
            "native=True to use the pool",
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


# -- UHAL_POOL=direct and guard ----------------------------------------------------------------------


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
    cdef void *previous = enter(context)
    cdef int status = context.table.memset_8(address, value, count, context.default_core.handle)
    leave(context, previous)
    context.default_core.ticket += 1
    return check(context, status, "memset_8")


cdef int release_waiting(Context context) except -1:
    """Free blocks of the direct modes whose work is done."""
    cdef Pool pool = context.pool
    cdef Block block
    cdef list waiting = pool.waiting
    if not waiting:
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
            waiting.pop()
            driver_free(context, block.segment)
    finally:
        pool.waiting += waiting
    return 0


cdef int check_red_zones(Context context, Block block) except -1:
    """Warn when a kernel wrote outside the buffer; poison what it leaves behind."""
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
