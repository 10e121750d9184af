# Device memory as users hold it: DeviceBuffer and its views.


@cython.nonecheck(True)
@cython.no_gc_clear
@cython.freelist(64)
cdef class DeviceBuffer:
    """DeviceBuffer(*arguments, **keywords)\n--\n
    A typed, contiguous run of elements in one device's memory.

    Made by `from_numpy`, `from_slice`, `zeros`, `uninitialized`, `uninitialized_async`, and over
    foreign memory by `from_dlpack`, `from_cuda_array_interface`, `from_ipc_handle` and
    `from_raw`. A buffer owns its memory. Closing or garbage collection returns the memory to the
    device's pool at once and without waiting: the pool knows which launches still use the memory.
    `buffer[a:b]` is a view that holds its parent; closing the parent closes its views. Any thread
    may use a buffer; the caller orders data between streams.

    Raises InvalidHandleError after close, on a closed device, and in a forked child.
    """

    cdef Context context
    cdef Block block            # None: foreign memory, or no memory
    cdef uint64_t address
    cdef readonly Py_ssize_t size
    """The number of elements."""
    cdef readonly Py_ssize_t nbytes
    """Bytes the elements take."""
    cdef readonly object dtype
    """The element type, a `DType`."""
    cdef readonly bint readonly
    """Whether copies and kernels that write to the buffer are refused."""
    cdef bint is_closed
    cdef DeviceBuffer root      # of a view: the buffer that owns the memory
    cdef object owner           # keeps foreign memory alive
    cdef object __weakref__

    def __init__(self, *arguments, **keywords):
        raise TypeError(
            f"{type(self).__name__} is made by from_numpy, from_slice, zeros, uninitialized, "
            "uninitialized_async, from_dlpack or from_raw"
        )

    def __dealloc__(self):
        if self.context is None or self.root is not None or self.is_closed:
            return
        live.buffers -= 1
        if self.block is None or exiting or self.context.state.word & UHAL_STATE_FORKED:
            return
        if self.block.holds:
            self.block.abandoned = True  # a plan uses it
            return
        try:
            pool_free(self.context, self.block)
        except BaseException as failure:
            warn_of_failed_end(f"freeing {self.nbytes} bytes", failure)

    # -- making ------------------------------------------------------------------------------------

    @classmethod
    def from_numpy(cls, array, *, device=None, stream=None):
        """Copy an array to a new buffer in C order.

        The array may have any shape and strides.

        `array` may be changed as soon as this returns. Another stream's first launch on the buffer
        waits for the copy by itself. Raises ArgumentTypeError for a dtype no kernel has, and for
        masked elements.
        """
        cdef Context context = context_for(cls, device)
        cdef StreamCore core = core_for(context, stream)
        source = contiguous(array)
        cdef DeviceBuffer buffer = new_buffer(
            cls, context, source.size, element_of(source.dtype), core
        )
        upload(buffer, source, core)
        mark_ready(buffer, core)
        return buffer

    @classmethod
    def from_slice(cls, values, dtype=None, *, device=None, stream=None):
        """Copy a sequence of Python numbers to a new buffer of `dtype`.

        Float types round. Raises ArgumentTypeError for a value that is no number, and
        ArgumentRangeError (an OverflowError) for a value that the dtype does not hold: 1.5 as i32,
        2 as bool, 1e300 as f32.
        """
        return cls.from_numpy(
            host_values().elements(values, _as_dtype(dtype)), device=device, stream=stream
        )

    @classmethod
    def zeros(cls, size, dtype=None, *, device=None, stream=None):
        """Make a buffer of `size` elements, every byte 0."""
        cdef Context context = context_for(cls, device)
        cdef StreamCore core = core_for(context, stream)
        cdef DeviceBuffer buffer = new_buffer(cls, context, size, element_of(dtype), core)
        if buffer.nbytes:
            fill(buffer, 1, 0, core)
            mark_ready(buffer, core)
        return buffer

    @classmethod
    def uninitialized(cls, size, dtype=None, *, device=None):
        """Make a buffer of `size` elements with undefined contents."""
        cdef Context context = context_for(cls, device)
        return new_buffer(cls, context, size, element_of(dtype), None)

    @classmethod
    def uninitialized_async(cls, size, dtype, stream, *, bint native=False):
        """Make a buffer in the order of `stream`.

        It may reuse memory that the stream's earlier work still uses.

        `native=True` asks the driver's stream-ordered allocator instead of the pool;
        NotSupportedError where there is none.
        """
        cdef Context context = context_of_stream(cls, stream)
        cdef StreamCore core = core_for(context, stream)
        return new_buffer(cls, context, size, element_of(dtype), core, native)

    @classmethod
    def from_raw(cls, address, size, dtype, *, device=None, owner=None):
        """Make a buffer over memory with another owner; nothing is freed.

        `owner` is kept alive until the buffer and its views are gone and all work on the memory is
        done.
        """
        cdef Context context = context_for(cls, device)
        if not isinstance(address, DevicePointer):
            address = DevicePointer(address)
        if not (<DevicePointer>address).address and size:
            raise _errors.ArgumentValueError("address: expected a device address, got 0")
        return describe_foreign(
            cls, context, size, dtype, (<DevicePointer>address).address, False, owner, None
        )

    @classmethod
    def from_dlpack(cls, source, *, device=None, stream=None):
        """Make a buffer over another library's tensor, which is kept alive.

        Accepts DLPack 1.x and older capsules, and the C exchange of types that offer it. `stream`
        (by default the default stream) starts its later work after the producer's work. The first
        use on another stream waits, too. Raises BufferError for strided tensors and for memory of
        another device, ArgumentTypeError for dtypes no kernel has.
        """
        return import_dlpack(cls, source, device, stream)

    @classmethod
    def from_cuda_array_interface(cls, source, *, device=None, stream=None):
        """Make a buffer over an object with `__cuda_array_interface__`, which is kept alive.

        If the producer names a stream, `stream` (by default the default stream) waits for the
        producer's stream. The first use on another stream waits, too. Raises BufferError for masked
        or strided arrays and for memory of another device, ArgumentTypeError for dtypes no kernel
        has.
        """
        return import_array_interface(cls, source, device, stream)

    @classmethod
    def from_ipc_handle(cls, handle, *, device=None):
        """Make a buffer over another process's buffer from its `ipc_handle()`.

        The other process must keep its buffer until this process is done with the memory; the
        processes must order their accesses. NotSupportedError on a vendor without such handles.
        """
        return import_ipc(cls, handle, device)

    # -- facts -------------------------------------------------------------------------------------

    @property
    def device(self):
        """The device the memory is on."""
        return device_of(self.context)

    @property
    def base(self):
        """The allocated buffer that this is a view of, or itself.

        All views of an allocation have the same base object. Buffers made over the memory by DLPack
        or from a raw address have another base; `uhal.frameworks.shares_memory` compares addresses.
        """
        return self if self.root is None else self.root

    @property
    def byte_offset(self):
        """Bytes of `base` before the first element.

        It is 0 for an empty view. The offset is no address, so the pool knows every use.
        """
        if self.root is None or not self.nbytes:
            return 0
        return self.address - self.root.address

    @property
    def closed(self):
        """True once the buffer or its `base` is closed."""
        return self.context is None or buffer_closed(self)

    def as_device_ptr(self):
        """Return the address of the first element.

        Uses through the address are not tracked.
        """
        require_buffer(self)
        if self.context.state.word & UHAL_STATE_OBSERVED:
            tell_observer(self.context, None, ("address", self))
        note_untracked_use(self)
        return DevicePointer(self.address)

    def __len__(self):
        return self.size

    def __getitem__(self, elements):
        """Return a view of `start:stop` by numpy's rules; only step 1. An empty one is null."""
        require_buffer(self)
        if not isinstance(elements, slice):
            raise _errors.ArgumentTypeError(
                f"buffer[…]: expected a slice such as [2:8], got {type(elements).__name__}. Read "
                "elements with to_numpy(), or index ubridge.DeviceTensor(buffer)."
            )
        if elements.step is not None and elements.step != 1:
            raise _errors.ArgumentValueError(
                f"buffer[…]: expected step 1, got {elements.step}. Index "
                "ubridge.DeviceTensor(buffer) for other steps."
            )
        start, stop, _ = elements.indices(self.size)
        return make_view(self, start * self.dtype.itemsize, max(0, stop - start), self.dtype)

    def __setitem__(self, elements, value):
        refuse_assignment(elements)

    def __delitem__(self, elements):
        raise _errors.ArgumentTypeError(
            "del buffer[…]: the size of a DeviceBuffer is fixed. Use a view, buffer[a:b]."
        )

    def __add__(self, other):
        return refuse_operator("+", self, other)

    def __radd__(self, other):
        return refuse_operator("+", other, self)

    def __sub__(self, other):
        return refuse_operator("-", self, other)

    def __rsub__(self, other):
        return refuse_operator("-", other, self)

    def __mul__(self, other):
        return refuse_operator("*", self, other)

    def __rmul__(self, other):
        return refuse_operator("*", other, self)

    def __truediv__(self, other):
        return refuse_operator("/", self, other)

    def __rtruediv__(self, other):
        return refuse_operator("/", other, self)

    def __matmul__(self, other):
        return refuse_operator("@", self, other)

    def __rmatmul__(self, other):
        return refuse_operator("@", other, self)

    def __pow__(self, other, modulo):
        return refuse_operator("**", self, other)

    def __mod__(self, other):
        return refuse_operator("%", self, other)

    def __floordiv__(self, other):
        return refuse_operator("//", self, other)

    def __and__(self, other):
        return refuse_operator("&", self, other)

    def __or__(self, other):
        return refuse_operator("|", self, other)

    def __neg__(self):
        refuse_arithmetic("operator -", type(self).__name__)

    def __invert__(self):
        refuse_arithmetic("operator ~", type(self).__name__)

    def __abs__(self):
        refuse_arithmetic("abs", type(self).__name__)

    def __float__(self):
        refuse_number("float", self)

    def __int__(self):
        refuse_number("int", self)

    def __hash__(self):
        # By identity, so no two buffers have one hash: dicts and sets of buffers never compare two.
        return <Py_hash_t>(<uintptr_t><PyObject *>self >> 4)

    def __eq__(self, other):
        return refuse_equality("==", self, other)

    def __ne__(self, other):
        return refuse_equality("!=", self, other)

    def __lt__(self, other):
        return refuse_operator("<", self, other)

    def __le__(self, other):
        return refuse_operator("<=", self, other)

    def __gt__(self, other):
        return refuse_operator(">", self, other)

    def __ge__(self, other):
        return refuse_operator(">=", self, other)

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        """Refuse functions of numpy, and arrays of numpy beside an operator."""
        refuse_ufunc(ufunc)

    def view(self, dtype):
        """Return a view of the same bytes as elements of another dtype.

        Raises ArgumentValueError if the bytes are misaligned, or are not a whole number of
        elements.
        """
        require_buffer(self)
        target = _as_dtype(dtype)
        if self.nbytes % target.itemsize or self.address % target.itemsize:
            raise _errors.ArgumentValueError(
                f"view: expected an aligned whole number of {target.name} ({target.itemsize} bytes "
                f"each), got {self.nbytes} bytes at 0x{self.address:x}"
            )
        return make_view(self, 0, self.nbytes // target.itemsize, target)

    # -- copies ------------------------------------------------------------------------------------

    def to_numpy(self, *, stream=None):
        """Return the elements as a new one-dimensional array.

        Waits for the copy. Without a stream, the call also waits for all launches that use this
        buffer; with a stream, only for this stream's work. Raises faults that the kernels of these
        launches reported: `KernelAssertionError` for a failed `ASSERT`, `IndexError` for an id out
        of bounds.
        """
        require_buffer(self)
        array = _numpy.empty(self.size, self.dtype.dtype)
        copy_out(self, array, stream)
        return array

    def copy_from(self, source, *, stream=None):
        """Overwrite all elements from an array, bytes, HostBuffer or DeviceBuffer, and wait.

        Sizes must agree, and dtypes unless `source` is bytes. Without a stream, the copy also waits
        for all launches that use this buffer. Overlapping views copy as if through a temporary.
        """
        require_buffer(self)
        copy_in(self, source, stream)

    def copy_to(self, destination, *, stream=None):
        """Copy all elements into host memory or another buffer, and wait.

        The destination is writable host memory, a HostBuffer or a DeviceBuffer.

        Host memory is an array of any strides and byte order, or an object with a buffer, such as
        a bytearray, `array.array` or `mmap`. Sizes must agree, and dtypes unless the destination
        is a bytearray or memoryview. Raises as `to_numpy` does.
        """
        require_buffer(self)
        copy_out(self, destination, stream)

    def copy_from_async(self, source, stream not None):
        """Enqueue the copy from `source` and return.

        A pageable source may be changed at once. A HostBuffer is held, and must not be changed,
        until the stream has passed the copy.
        """
        require_buffer(self)
        copy_in_async(self, source, core_for(self.context, stream))

    def copy_to_async(self, destination, stream not None):
        """Enqueue the copy to `destination` and return.

        A copy to a HostBuffer or DeviceBuffer is asynchronous; a copy to pageable memory waits.
        """
        require_buffer(self)
        copy_out_async(self, destination, core_for(self.context, stream))

    def set_8(self, value, *, stream=None):
        """Set every byte to `value` (0…255), in the order of the stream."""
        require_buffer(self)
        set_pattern(self, 1, value, stream)

    def set_16(self, value, *, stream=None):
        """Set every 16-bit word to `value` (0…65535).

        Runs in the order of the stream.
        """
        require_buffer(self)
        set_pattern(self, 2, value, stream)

    def set_32(self, value, *, stream=None):
        """Set every 32-bit word to `value` (0…2**32-1).

        Runs in the order of the stream.
        """
        require_buffer(self)
        set_pattern(self, 4, value, stream)

    def copy_2d_from(self, source, shape=None, *, pitch=None, source_pitch=None, stream=None):
        """Overwrite rows from a 2-D array or another buffer, and wait.

        The source is an array, a HostBuffer or a DeviceBuffer.

        `shape` is (rows, columns) in elements; row r begins at element r * `pitch` of this buffer
        and at element r * `source_pitch` of the source. Both pitches are the number of columns by
        default; an array has its own shape and pitch. Elements between the rows are left alone.
        """
        require_buffer(self)
        copy_2d_in(self, source, shape, pitch, source_pitch, stream)

    def copy_2d_to(
        self, destination, shape=None, *, pitch=None, destination_pitch=None, stream=None
    ):
        """Copy rows into a 2-D array or another buffer, and wait.

        Takes the arguments of `copy_2d_from`, with source and destination exchanged.
        """
        require_buffer(self)
        copy_2d_out(self, destination, shape, pitch, destination_pitch, stream)

    # -- tracking ----------------------------------------------------------------------------------

    def record_stream(self, stream not None):
        """Report a use of the buffer in `stream` that uhal cannot see.

        The report covers the stream's current work.
        """
        require_buffer(self)
        cdef StreamCore core = core_for(self.context, stream)
        if core.state.word & UHAL_STATE_CAPTURING:
            use_captured(self, core, "DeviceBuffer.record_stream")
        elif self.block is not None:
            core.ticket += 1   # foreign work took no ticket of its own
            stamp(self.block, core.id, core.ticket)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Export the memory without copying; the capsule keeps the memory alive.

        `stream` is the consumer's stream, in CUDA's numbers: None and 1 are the legacy default
        stream, 2 is the thread's stream, -1 means no ordering, and other values are handles. The
        consumer's stream waits for every use that uhal knows.
        """
        require_buffer(self)
        return export_dlpack(
            self, self, (self.size,), (1,), 0, stream, max_version, dl_device, copy
        )

    def __dlpack_device__(self):
        """Return DLPack's (device type, device id)."""
        require_buffer(self)
        return dlpack_device(self.context)

    @property
    def __cuda_array_interface__(self):
        """CUDA's array protocol, version 3; AttributeError on other vendors."""
        return export_array_interface(self)

    def ipc_handle(self):
        """Return a handle for `from_ipc_handle` in another process.

        The handle can be pickled.

        The call waits for work on the buffer. The handle opens the pool's whole segment to the
        other process. NotSupportedError on a vendor without such handles.
        """
        require_buffer(self)
        return export_ipc(self)

    def close(self):
        """Give the memory back to the pool.

        DLPack consumers keep the memory until the last consumer is gone.

        Closing twice is fine; views of the buffer close with the buffer.
        """
        if self.root is not None:
            self.is_closed = True
            return
        if self.context is None or self.is_closed or self.context.state.word & UHAL_STATE_FORKED:
            return
        self.is_closed = True
        live.buffers -= 1
        cdef Block block = self.block
        self.block = None
        self.owner = None
        if block is not None and block.holds:
            block.abandoned = True
        elif block is not None:
            pool_free(self.context, block)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __reduce__(self):
        refuse_pickle(
            self,
            "memory",
            "Send to_numpy(), or ipc_handle() where the device has it; copy with copy_from.",
        )

    def __repr__(self):
        if self.context is None:
            return f"<{type(self).__name__}, not made>"
        state = ", closed" if buffer_closed(self) else ""
        return (
            f"<{type(self).__name__} {self.size} × {self.dtype.name} on "
            f"{self.context.backend_name}:{self.context.ordinal}{state}>"
        )


# -- state -----------------------------------------------------------------------------------------


cdef inline bint buffer_closed(DeviceBuffer buffer) noexcept:
    return buffer.is_closed or (buffer.root is not None and buffer.root.is_closed)


cdef inline int require_buffer(DeviceBuffer buffer) except -1:
    if buffer.context is None or buffer_closed(buffer):
        raise _errors.InvalidHandleError("the buffer is closed")
    return require_usable(buffer.context)


cdef int mark_ready(DeviceBuffer buffer, StreamCore core) except -1:
    """Order later uses of the new buffer behind the current work of `core`."""
    if buffer.block is not None and not core.state.word & UHAL_STATE_CAPTURING:
        buffer.block.ready.stream_id = core.id
        buffer.block.ready.ticket = core.ticket
        buffer.block.waited = 0
    return 0


cdef int note_exported(DeviceBuffer buffer) except -1:
    """Note that the memory has untracked uses from now on."""
    if buffer.block is not None:
        buffer.block.exported = True
    return 0


def address_for(DeviceBuffer buffer not None, stream):
    """Return the first element's address, for a library that enqueues work.

    The library must enqueue the work on `stream`.

    The stream waits on the device for earlier work on the memory. Call `record_stream` after the
    work is enqueued, so that the pool knows of the use.
    """
    require_buffer(buffer)
    if buffer.context.state.word & UHAL_STATE_OBSERVED:
        tell_observer(buffer.context, None, ("address", buffer))
    order_behind(buffer, core_for(buffer.context, stream))
    return buffer.address


def address_of(DeviceBuffer buffer not None):
    """Return the address of the first element, for comparisons with other addresses.

    Work at the address is neither ordered nor tracked: use `address_for` to enqueue work.
    """
    return buffer.address


def shares_memory(DeviceBuffer buffer not None, *others):
    """Return whether any buffer among `others` overlaps `buffer`, by addresses.

    Other objects in `others` do not count.
    """
    cdef PyObject *one
    cdef Py_ssize_t index
    for index in range(PyTuple_GET_SIZE(others)):
        one = PyTuple_GET_ITEM(others, index)
        if (
            PyObject_TypeCheck(one, <PyTypeObject *>DeviceBuffer)
            and have_common_bytes(<PyObject *>buffer, one)
            and buffer.nbytes and (<DeviceBuffer>one).nbytes
        ):
            return True
    return False


cdef inline bint have_common_bytes(PyObject *first, PyObject *second) noexcept:
    """Return whether two buffers that are not empty overlap."""
    return (
        (<DeviceBuffer>first).address
        < (<DeviceBuffer>second).address + <uint64_t>(<DeviceBuffer>second).nbytes
        and (<DeviceBuffer>second).address
        < (<DeviceBuffer>first).address + <uint64_t>(<DeviceBuffer>first).nbytes
    )


cdef int note_untracked_use(DeviceBuffer buffer) except -1:
    """Wait until the memory is usable, because uses of the address are unknown."""
    cdef Block block = buffer.block
    if block is None:
        return 0
    block.exported = True
    found = buffer.context.streams.get(block.ready.stream_id)
    if found is not None and not is_complete(
        buffer.context, block.ready.stream_id, block.ready.ticket, True
    ):
        synchronize_core(buffer.context, <StreamCore>found)
    return 0
