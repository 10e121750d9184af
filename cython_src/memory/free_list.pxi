# Free lists: the unused blocks of one size class, and all free lists of a pool.

cdef struct FreeList:
    # The free blocks of one size class, owned, the youngest last. The capacity never shrinks: a
    # program that allocates and frees in turn would resize a Python list each time.
    PyObject **blocks
    Py_ssize_t count
    Py_ssize_t capacity
    uint64_t taken      # number of removals: a loop over the list detects changes by it


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


cdef list free_blocks(Pool pool):
    """All blocks, copied: checking a block may run Python code, which changes the lists."""
    cdef int size_class
    cdef Py_ssize_t index
    return [
        <Block>pool.free_lists[size_class].blocks[index]
        for size_class in range(CLASS_COUNT)
        for index in range(pool.free_lists[size_class].count)
    ]
