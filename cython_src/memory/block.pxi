# Blocks: pieces of device memory, their size classes, and the stamps of streams that use them.

cdef enum:
    SMALLEST_CLASS_LOG2 = 8           # 256 bytes, the alignment every driver gives
    CLASSES_PER_DOUBLING = 8          # so that rounding up wastes at most an eighth
    CLASS_COUNT = (64 - SMALLEST_CLASS_LOG2) * CLASSES_PER_DOUBLING

cdef struct Stamp:
    uint64_t stream_id
    uint64_t ticket


@cython.final
@cython.no_gc
cdef class Segment:
    """Segment()\n--\n
    One driver allocation, cut into blocks from the front."""

    cdef uint64_t address
    cdef size_t bytes
    cdef size_t cut
    cdef Py_ssize_t blocks_in_use


@cython.final
@cython.no_gc
cdef class Block:
    """Block()\n--\n
    A piece of a segment as the pool hands it out."""

    cdef uint64_t address
    cdef size_t bytes           # capacity
    cdef size_t requested
    cdef int size_class         # -1: not cached
    cdef Segment segment
    cdef OwnerLink owner_link
    cdef Stamp ready            # stream_id 0: at once
    cdef uint64_t waited        # id of the stream that already waits for `ready`
    cdef Stamp *stamps
    cdef int stamp_count
    cdef int stamp_capacity
    cdef Stamp first_stamps[2]
    cdef bint exported          # has untracked uses: wait for the whole device before reuse
    cdef Py_ssize_t holds       # DLPack consumers, and running native calls without the GIL
    cdef bint abandoned         # its buffer is closed: the last holder gives the memory back
    cdef StreamCore native_stream   # set: from alloc_async, goes back by free_async
    cdef bint foreign           # foreign memory, which no pool ever gets
    cdef object owner           # of foreign memory

    def __cinit__(self):
        self.stamps = self.first_stamps
        self.stamp_capacity = 2
        self.size_class = -1

    def __dealloc__(self):
        forget_owner(&self.owner_link)
        if self.stamps != self.first_stamps:
            c_free(self.stamps)


# -- size classes ----------------------------------------------------------------------------------


cdef inline int size_class_of(size_t bytes) noexcept:
    """Index of the smallest class that holds `bytes` > 0: eight classes per doubling, from 256."""
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


# -- stamps ----------------------------------------------------------------------------------------


cdef inline bint must_wait(void *block, uint64_t stream_id) noexcept:
    """Return whether work of the stream must wait until the block is usable."""
    return (
        (<Block>block).ready.stream_id != 0
        and (<Block>block).ready.stream_id != stream_id
        and (<Block>block).waited != stream_id
    )


cdef inline bint stamp_again(void *block, uint64_t stream_id, uint64_t ticket) noexcept:
    """`stamp` for a block that this stream used first, the usual case; False for another block."""
    if (<Block>block).stamp_count == 0 or (<Block>block).stamps.stream_id != stream_id:
        return False
    (<Block>block).stamps.ticket = ticket
    return True


cdef int stamp(Block block, uint64_t stream_id, uint64_t ticket) except -1:
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
    if must_wait(<void *>block, core.id):
        if is_complete(context, block.ready.stream_id, block.ready.ticket, True):
            block.ready.stream_id = 0
        else:
            wait_for(context, core, block.ready.stream_id, block.ready.ticket)
            block.waited = core.id
    return 0


cdef int wait_for_uses(Context context, Block block, StreamCore core) except -1:
    """Order the stream behind every recorded use of the block."""
    cdef int i
    cdef StreamCore used_by
    wait_until_ready(context, block, core)
    for i in range(block.stamp_count):
        used_by = context.streams.get(block.stamps[i].stream_id)
        if used_by is not None and used_by is not core and context.watches is not None:
            moment = moment_at(used_by, block.stamps[i].ticket)
            take_on_reports(core, used_by, moment, used_by.follows)
        wait_for(context, core, block.stamps[i].stream_id, block.stamps[i].ticket)
    return 0
