# Pinned host memory.


@cython.final
@cython.no_gc
cdef class PinnedYard:
    """PinnedYard()\n--\n
    Pinned memory without an owner, freed once no work is pending.

    Kernels may use the memory, or the driver would wait for the device when it frees the memory.
    """

    cdef list addresses

    def __cinit__(self):
        self.addresses = []


@cython.final
@cython.no_gc
cdef class PinnedBlock:
    """PinnedBlock()\n--\n
    A pinned allocation, which pending copies hold.

    A block holds no Context: the Context's streams list the block until the copies are done.
    """

    cdef uhal_hot_table *table
    cdef void *token_pointer
    cdef void *pointer          # null: freed by the HostMemory
    cdef unsigned int generation
    cdef Py_ssize_t pending     # copies that still read or write it
    cdef bint mapped            # kernels got its address
    cdef PinnedYard yard

    def __dealloc__(self):
        cdef void *previous = NULL
        if self.pointer == NULL or exiting or self.generation != uhal_fork_count:
            return
        if self.table.frees_wait or self.mapped:
            self.yard.addresses.append(<uintptr_t>self.pointer)
            return
        self.table.current(&previous)
        if previous != self.token_pointer:
            self.table.bind(self.token_pointer)
        self.table.host_free(self.pointer)
        if previous != self.token_pointer and previous != NULL:
            self.table.bind(previous)


@cython.final
@cython.no_gc_clear
cdef class HostMemory:
    """HostMemory()\n--\n
    Pinned memory that a HostBuffer and the arrays over the memory share."""

    cdef Context context
    cdef PinnedBlock block
    cdef void *pointer
    cdef Py_ssize_t nbytes

    def __dealloc__(self):
        if self.pointer == NULL:
            return
        live.host_buffers -= 1
        if self.block.pending:
            return  # freed when the last copy is done
        if exiting or self.context.state.word & (UHAL_STATE_FORKED | UHAL_STATE_LOST):
            self.block.pointer = NULL
            return
        try:
            if self.context.table.frees_wait or self.block.mapped:
                self.block = None
                clear_yard(self.context)
            else:
                self.block.pointer = NULL
                free_pinned(self.context, self.pointer)
        except BaseException as failure:
            warn_of_failed_end(f"freeing {self.nbytes} pinned bytes", failure)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.pointer, self.nbytes, 0, flags)


cdef int clear_yard(Context context) except -1:
    """Free the memory in the yard if no work is pending."""
    cdef StreamCore core
    if not context.yard.addresses:
        return 0
    for core in list(context.streams.values()):
        if core.state.word & UHAL_STATE_CAPTURING or not core_is_idle(context, core):
            return 0
    addresses, context.yard.addresses = context.yard.addresses, []
    for address in addresses:
        free_pinned(context, <void *><uintptr_t>address)
    return 0


cdef int free_pinned(Context context, void *pointer) except -1:
    return native_host_free_unlocked(context, pointer)


cdef class HostBuffer:
    """HostBuffer(size, dtype, *, device=None, mapped=False)\n--\n
    Pinned host memory of one device.

    Copies to and from this memory are asynchronous.

    With `mapped=True`, kernels can use the memory in place, through `device_ptr`.

    The memory is freed once the buffer is closed, no array over it is left and no copy still uses
    it. Any thread may use it.
    """

    cdef HostMemory memory
    cdef readonly Py_ssize_t size
    """The number of elements."""
    cdef readonly Py_ssize_t nbytes
    """Bytes the elements take."""
    cdef readonly object dtype
    """The element type, a `DType`."""
    cdef readonly bint mapped
    """Whether kernels may use the memory in place, through `device_ptr`."""
    cdef object __weakref__

    def __init__(self, size, dtype=None, *, device=None, bint mapped=False):
        cdef unsigned int flags = HOST_ALLOC_PORTABLE | (HOST_ALLOC_MAPPED if mapped else 0)
        cdef Context context = context_for(type(self), device)
        cdef Element element = element_of(dtype)
        cdef Py_ssize_t count = element_count(size, element)
        cdef HostMemory memory = HostMemory.__new__(HostMemory)
        memory.context = context
        memory.nbytes = count * element.itemsize
        cdef size_t bytes = max(memory.nbytes, 1)
        clear_yard(context)
        cdef int status = status_of_host_alloc_unlocked(context, &memory.pointer, bytes, flags)
        if status != 0:
            memory.pointer = NULL
            raise_native(context, status, "host_alloc")
        cdef PinnedBlock block = PinnedBlock.__new__(PinnedBlock)
        block.table = context.table
        block.token_pointer = context.token_pointer
        block.pointer = memory.pointer
        block.generation = uhal_fork_count
        block.yard = context.yard
        memory.block = block
        live.host_buffers += 1
        self.memory = memory
        self.size = count
        self.nbytes = memory.nbytes
        self.dtype = element.dtype
        self.mapped = mapped

    @property
    def device(self):
        """The device the memory is pinned for."""
        require_host_buffer(self)
        return device_of(self.memory.context)

    @property
    def closed(self):
        """True once closed."""
        return self.memory is None

    @property
    def address(self):
        """Address of the first byte in this process."""
        require_host_buffer(self)
        return <uintptr_t>self.memory.pointer

    @property
    def device_ptr(self):
        """The memory's address for kernels; requires `mapped=True`.

        Uses of the address are not tracked: after this call, the memory is freed only when nothing
        is pending on the device. NotSupportedError on a vendor whose devices cannot reach host
        memory.
        """
        require_host_buffer(self)
        if not self.mapped:
            raise _errors.ArgumentValueError(
                "device_ptr: expected a HostBuffer made with mapped=True, got mapped=False"
            )
        cdef Context context = self.memory.context
        cdef void *previous = enter(context)
        try:
            address = context.backend.host_device_pointer(<uintptr_t>self.memory.pointer)
        finally:
            leave(context, previous)
        self.memory.block.mapped = True
        return DevicePointer(address)

    @property
    def array(self):
        """The memory as a numpy array, which keeps the memory alive."""
        require_host_buffer(self)
        if not self.nbytes:
            return _numpy.empty(0, self.dtype.dtype)
        return _numpy.frombuffer(self.memory, _numpy.uint8).view(self.dtype.dtype)

    def __len__(self):
        return self.size

    def __getitem__(self, elements):
        refuse_array("buffer[…]")

    def __setitem__(self, elements, value):
        refuse_array("buffer[…]")

    def __add__(self, other):
        return refuse_array("operator +")

    def __sub__(self, other):
        return refuse_array("operator -")

    def __mul__(self, other):
        return refuse_array("operator *")

    def __hash__(self):
        # A type with comparisons inherits no hash.
        return <Py_hash_t>(<uintptr_t><PyObject *>self >> 4)

    def __eq__(self, other):
        return refuse_equality("==", self, other)

    def __ne__(self, other):
        return refuse_equality("!=", self, other)

    def __reduce__(self):
        refuse_pickle(
            self,
            "memory",
            "Send array.copy().",
        )

    def close(self):
        """Release the memory. Closing twice is fine."""
        self.memory = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __repr__(self):
        if self.dtype is None:
            return f"<{type(self).__name__}, not made>"
        state = ", closed" if self.memory is None else ""
        return f"<{type(self).__name__} {self.size} × {self.dtype.name}{state}>"


cdef inline int require_host_buffer(HostBuffer buffer) except -1:
    if buffer.memory is None:
        raise _errors.InvalidHandleError("the host buffer is closed")
    return require_usable(buffer.memory.context)
