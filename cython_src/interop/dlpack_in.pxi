# DLPack's way in: a consumed tensor as a buffer over its memory.


@cython.final
@cython.no_gc
cdef class _ForeignTensor:
    """Owns a consumed DLPack tensor: its deleter runs with the last buffer over it."""

    cdef uhal_dl_versioned *versioned
    cdef uhal_dl_managed *unversioned
    cdef uhal_dl_tensor *tensor   # in `versioned` or `unversioned`
    cdef bint is_immutable

    def __dealloc__(self):
        if self.versioned != NULL and self.versioned.deleter != NULL:
            self.versioned.deleter(self.versioned)
        if self.unversioned != NULL and self.unversioned.deleter != NULL:
            self.unversioned.deleter(self.unversioned)


cdef DeviceBuffer import_dlpack(object cls, object source, object device, object stream):
    cdef Context context = context_for(cls, device)
    cdef StreamCore core = core_for(context, stream)
    refuse_capturing(core, "DeviceBuffer.from_dlpack", "no other library")
    cdef _ForeignTensor foreign = consumed(context, core, source)
    require_memory_of(context, foreign.tensor)
    return buffer_over(cls, context, core, foreign, contiguous_elements_of(foreign.tensor))


cdef DeviceBuffer import_tensor(object cls, Context context, StreamCore core, object source):
    """A buffer over a contiguous tensor of a launch, ready in `core`."""
    cdef _ForeignTensor foreign = consumed(context, core, source)
    return buffer_over(cls, context, core, foreign, contiguous_elements_of(foreign.tensor))


def strided_dlpack(source, device=None, stream=None):
    """Take over a tensor of any positive strides.

    Returns (buffer, lengths, strides in elements).

    The buffer reaches from the tensor's first element to the tensor's last element.
    """
    cdef Context context = context_for(DeviceBuffer, device)
    cdef StreamCore core = core_for(context, stream)
    cdef _ForeignTensor foreign = consumed(context, core, source)
    cdef uhal_dl_tensor *tensor = foreign.tensor
    require_memory_of(context, tensor)
    cdef Py_ssize_t size = elements_of(tensor)
    cdef int64_t expected = 1
    cdef int64_t stride, step
    cdef int64_t extent = 1
    cdef bint wraps = False
    cdef int axis
    cdef list strides = []
    for axis in range(tensor.ndim - 1, -1, -1):
        stride = expected
        if tensor.strides != NULL and tensor.shape[axis] > 1:
            stride = tensor.strides[axis]
        if stride < 0:
            raise BufferError(
                f"expected strides of at least 0, got {stride} along axis {axis}; make the tensor "
                "contiguous with the exporter's contiguous() or copy()"
            )
        strides.append(stride)
        if size:
            wraps |= mul_wraps(tensor.shape[axis] - 1, stride, &step)
            wraps |= add_wraps(extent, step, &extent)
            expected *= tensor.shape[axis]
    if wraps:
        raise BufferError(f"expected strides within an address space, got {strides[::-1]}")
    buffer = buffer_over(DeviceBuffer, context, core, foreign, extent if size else 0)
    return buffer, lengths_of(tensor), tuple(strides[::-1])


cdef DeviceBuffer buffer_over(
    object cls, Context context, StreamCore core, _ForeignTensor foreign, Py_ssize_t size
):
    cdef uhal_dl_tensor *tensor = foreign.tensor
    return describe_foreign(
        cls,
        context,
        size,
        dtype_of(tensor),
        int(<uintptr_t>tensor.data) + tensor.byte_offset if size else 0,
        foreign.is_immutable
        or (foreign.versioned != NULL and foreign.versioned.flags & UHAL_DLPACK_READ_ONLY),
        foreign,
        core if context.dl_device_type == DL_CUDA else None,
    )


cdef _ForeignTensor consumed(Context context, StreamCore core, object source):
    """Take the tensor from its producer, whose work precedes our work in `core`."""
    cdef _Exchange kind = exchange_of(type(source))
    cdef uhal_dl_exchange *exchange = kind.table
    cdef _ForeignTensor foreign = _ForeignTensor.__new__(_ForeignTensor)
    require_signs(kind, source)
    require_no_gradients(kind, source)
    foreign.is_immutable = kind.is_immutable
    if exchange != NULL:
        try:
            exchange.take(<void *>source, &foreign.versioned)
        except RuntimeError as failure:
            # torch's message ends with its own C++ frames
            raise BufferError(str(failure).partition("\n")[0]) from None
        if context.dl_device_type == DL_CUDA:
            order_behind_handle(context, core, current_stream(context, exchange))
    else:
        take_capsule(foreign, context, core, source)
    if foreign.versioned != NULL:
        foreign.tensor = &foreign.versioned.tensor
    else:
        foreign.tensor = &foreign.unversioned.tensor
    require_device_of(context, kind, foreign.tensor)
    return foreign


cdef int take_capsule(
    _ForeignTensor foreign, Context context, StreamCore core, object source
) except -1:
    """Ask the producer for a capsule; the producer orders its work before ours in `core`."""
    cdef dict asked = {}
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        raise _errors.ArgumentTypeError(
            f"source: expected an object with __dlpack__, got {type(source).__name__}"
        )
    dlpack_device(context)
    given = read_pair("__dlpack_device__()", source.__dlpack_device__())
    if given[0] != context.dl_device_type or not 0 <= given[1] < 2**31:
        refuse_device(context, given[0], given[1])
    if context.dl_device_type == DL_CUDA:
        asked["stream"] = <uintptr_t>core.handle
        core.ticket += 1   # the wait the producer enqueues
    try:
        capsule = source.__dlpack__(max_version=(UHAL_DLPACK_MAJOR, UHAL_DLPACK_MINOR), **asked)
    except TypeError:
        capsule = source.__dlpack__(**asked)  # an exporter older than DLPack 1.0
    if PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        foreign.versioned = <uhal_dl_versioned *>PyCapsule_GetPointer(
            capsule, b"dltensor_versioned"
        )
        PyCapsule_SetName(capsule, b"used_dltensor_versioned")
        if uhal_dl_major(foreign.versioned) != UHAL_DLPACK_MAJOR:
            raise BufferError(
                f"expected DLPack {UHAL_DLPACK_MAJOR}.x, got {uhal_dl_major(foreign.versioned)}.x"
            )
    elif PyCapsule_IsValid(capsule, b"dltensor"):
        foreign.unversioned = <uhal_dl_managed *>PyCapsule_GetPointer(capsule, b"dltensor")
        PyCapsule_SetName(capsule, b"used_dltensor")
    else:
        raise BufferError("__dlpack__ did not return an unused DLPack capsule")
    return 0
