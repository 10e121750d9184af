# Owners of the pool's memory: the blocks in use, each with the Python line that asked for it.
#
# Each block is in a linked list while in use, at the cost of two pointers. Its line is stored like
# a launch's in the ledger: a code object and an instruction offset, no frame. The list is only read
# for reports and when memory runs out.

cdef struct OwnerLink:
    OwnerLink *previous     # null: in no list
    OwnerLink *next
    PyObject *block         # borrowed: a block that goes leaves the list first
    PyObject *code          # owned, may be null
    int instruction_offset


cdef inline void note_owner(Pool pool, Block block) noexcept:
    """Add a block that is being handed out."""
    cdef OwnerLink *link = &block.owner_link
    cdef PyObject *code = uhal_callsite(&link.instruction_offset)
    link.code = own(<object>code) if code != NULL else NULL
    link.block = <PyObject *>block
    link.previous = &pool.owners
    link.next = pool.owners.next
    link.next.previous = link
    pool.owners.next = link


cdef inline void forget_owner(OwnerLink *link) noexcept:
    """Remove a block from the list, if it is in one."""
    cdef PyObject *code = link.code
    if link.previous == NULL:
        return
    link.previous.next = link.next
    link.next.previous = link.previous
    link.previous = NULL
    link.code = NULL
    # last: freeing a code object may run Python code
    Py_XDECREF(code)


cdef void forget_owners(Pool pool) noexcept:
    while pool.owners.next != &pool.owners:
        forget_owner(pool.owners.next)


cdef list pool_owners(Context context):
    """(bytes taken, bytes asked for, code object or None, instruction offset) of blocks in use."""
    cdef Pool pool = context.pool
    cdef OwnerLink *link = pool.owners.next
    cdef Block block
    cdef list found = []
    while link != &pool.owners:
        block = <Block>link.block
        found.append((
            block.bytes,
            block.requested,
            <object>link.code if link.code != NULL else None,
            link.instruction_offset,
        ))
        link = link.next
    return found
