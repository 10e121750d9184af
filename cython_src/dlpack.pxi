# DLPack in and out, without copying: the versioned exchange and the older one.


cdef extern from "dlpack.h":
    enum:
        UHAL_DLPACK_MAJOR
        UHAL_DLPACK_MINOR
        UHAL_DLPACK_READ_ONLY
        UHAL_DLPACK_COPIED
    ctypedef struct uhal_dl_device:
        int32_t device_type
        int32_t device_id
    ctypedef struct uhal_dl_dtype:
        uint8_t code
        uint8_t bits
        uint16_t lanes
    ctypedef struct uhal_dl_tensor:
        void *data
        uhal_dl_device device
        int32_t ndim
        uhal_dl_dtype dtype
        int64_t *shape
        int64_t *strides
        uint64_t byte_offset
    ctypedef struct uhal_dl_managed:
        uhal_dl_tensor tensor
        void *manager
        void (*deleter)(uhal_dl_managed *) noexcept
    ctypedef struct uhal_dl_versioned:
        void *manager
        void (*deleter)(uhal_dl_versioned *) noexcept
        uint64_t flags
        uhal_dl_tensor tensor
    ctypedef struct uhal_dl_exchange:
        uhal_dl_exchange *previous
        int (*take)(void *object, uhal_dl_versioned **out) except -1
        int (*look)(void *object, uhal_dl_tensor *out) except -1
        int (*current_stream)(int32_t type, int32_t id, void **out) except -1


cdef extern from *:
    """
    static void uhal_dl_set_version(uhal_dl_versioned *managed) {
        managed->version.major = UHAL_DLPACK_MAJOR;
        managed->version.minor = UHAL_DLPACK_MINOR;
    }
    static uint32_t uhal_dl_major(const uhal_dl_versioned *managed) {
        return managed->version.major;
    }
    static uhal_dl_exchange *uhal_dl_exchange_of_major(uhal_dl_exchange *exchange) {
        while (exchange != NULL && exchange->version.major != UHAL_DLPACK_MAJOR) {
            exchange = exchange->previous;
        }
        return exchange;
    }
    """
    void uhal_dl_set_version(uhal_dl_versioned *managed)
    uint32_t uhal_dl_major(const uhal_dl_versioned *managed)
    uhal_dl_exchange *uhal_dl_exchange_of_major(uhal_dl_exchange *exchange)


cdef tuple dlpack_device(Context context):
    if context.dl_device_type == 0:
        raise BufferError(f"DLPack has no device type for {context.backend_name}; use to_numpy()")
    return (context.dl_device_type, context.dl_device_id)


# DLDataTypeCode of the specification
DLPACK_KIND_CODES = {"int": 0, "uint": 1, "float": 2, "bool": 6}
DLPACK_NAME_CODES = {"bf16": 4, "f8e4m3": 10}


cdef int dlpack_code(object dtype) except -1:
    return DLPACK_NAME_CODES.get(dtype.name, DLPACK_KIND_CODES[dtype.kind])


cdef enum:
    DLPACK_CODES = 32

# By type code and bits: looked at for every tensor of every launch.
cdef list dlpack_dtypes = [None] * (DLPACK_CODES * 256)
for _dtype in _dtypes.ALL:
    dlpack_dtypes[dlpack_code(_dtype) * 256 + 8 * _dtype.itemsize] = _dtype


cdef object dtype_of(const uhal_dl_tensor *tensor):
    cdef object found = None
    if tensor.dtype.lanes != 1:
        raise BufferError(f"expected one lane, got {tensor.dtype.lanes}")
    if tensor.dtype.code < DLPACK_CODES:
        found = dlpack_dtypes[tensor.dtype.code * 256 + tensor.dtype.bits]
    if found is None:
        raise _errors.ArgumentTypeError(
            f"no kernel has DLPack's type code {tensor.dtype.code} with {tensor.dtype.bits} bits"
        )
    return found


cdef Py_ssize_t elements_of(const uhal_dl_tensor *tensor) except -1:
    """The number of elements of a tensor in C order; BufferError for one that is not."""
    cdef Py_ssize_t size = 1
    cdef int64_t expected = 1
    cdef int axis
    for axis in range(tensor.ndim):
        size *= tensor.shape[axis]
    for axis in range(tensor.ndim - 1, -1, -1):
        if tensor.strides != NULL and size > 0 and tensor.shape[axis] != 1:
            if tensor.strides[axis] != expected:
                refuse_strided()
        expected *= tensor.shape[axis]
    return size


cdef int require_place(Context context, int device_type, int device_id) except -1:
    """BufferError unless this device's kernels can use memory of that DLPack device."""
    if device_type == context.dl_device_type and device_id == context.dl_device_id:
        return 0
    own = dlpack_device(context)
    given = (device_type, device_id)
    if device_type == DL_CUDA_MANAGED:
        raise BufferError(
            f"the tensor is in managed memory {given}, which moves between host and device behind "
            "the back of streams; copy it into ordinary device memory"
        )
    if device_type == DL_CUDA_HOST:
        raise BufferError(
            f"the tensor is in pinned host memory {given}; copy it: DeviceBuffer.from_numpy"
        )
    raise BufferError(
        f"the tensor is on DLPack device {given}, {context.backend_name}:{context.ordinal} is "
        f"{own}; DeviceBuffer.from_numpy copies from the host"
    )


# -- out ---------------------------------------------------------------------------------------------


cdef object export_dlpack(
    DeviceBuffer buffer, object stream, object max_version, object dl_device, object copy
):
    cdef DeviceBuffer exported = buffer
    cdef uint64_t flags = 0
    own = dlpack_device(buffer.context)
    if dl_device is not None and tuple(dl_device) != own:
        if tuple(dl_device) != (DL_CPU, 0) or copy is False:
            raise BufferError(f"the buffer is on DLPack device {own}, not {tuple(dl_device)}")
        array = buffer.to_numpy()
        return array.__dlpack__(max_version=max_version) if max_version else array.__dlpack__()
    if own[0] == DL_CPU and stream is not None:
        raise BufferError(f"a CPU tensor has no stream, got stream={stream!r}")
    if copy:
        exported = new_buffer(
            DeviceBuffer,
            buffer.context,
            buffer.size,
            element_of(buffer.dtype),
            buffer.context.default_core,
        )
        copy_in(exported, buffer, None)
        flags = UHAL_DLPACK_COPIED
    # The consumer's accesses are not stamped: ours come before it begins, and the pool waits for
    # the device before it hands the memory out again.
    if own[0] == DL_CUDA:
        order_consumer(exported, stream)
    elif stream != -1:
        settle(exported)
    note_exported(exported)
    if buffer.readonly and not copy:
        flags |= UHAL_DLPACK_READ_ONLY
    if max_version is not None and max_version[0] >= 1:
        return versioned_capsule(exported, own, flags)
    if buffer.readonly and not copy:
        raise BufferError("read-only memory needs DLPack 1.0: the consumer must pass max_version")
    return unversioned_capsule(exported, own)


cdef int order_consumer(DeviceBuffer buffer, object stream) except -1:
    """`stream` in DLPack's numbers for CUDA."""
    if stream is None:
        stream = 1
    if isinstance(stream, bool) or not isinstance(stream, int) or stream < -1:
        raise BufferError(f"stream: expected None, -1, 1, 2 or a handle, got {stream!r}")
    if stream == 0:
        raise BufferError("stream: 0 is ambiguous and not allowed; 1 is the legacy default stream")
    if stream != -1:
        order_foreign_behind(buffer, stream)
    return 0


cdef int fill_tensor(uhal_dl_tensor *tensor, DeviceBuffer buffer, tuple device, int64_t *shape) except -1:
    shape[0] = buffer.size
    tensor.data = <void *><uintptr_t>buffer.address
    tensor.device.device_type = device[0]
    tensor.device.device_id = device[1]
    tensor.ndim = 1
    tensor.dtype.code = dlpack_code(buffer.dtype)
    tensor.dtype.bits = 8 * buffer.dtype.itemsize
    tensor.dtype.lanes = 1
    tensor.shape = shape
    # Some consumers before 1.2 do not read null as C order, and all accept strides.
    shape[1] = 1
    tensor.strides = shape + 1
    tensor.byte_offset = 0
    return 0


@cython.final
@cython.no_gc
cdef class _Export:
    """What a consumer holds: the memory stays where it is until the last of these has gone."""

    cdef Context context
    cdef Block block
    cdef object owner

    def __dealloc__(self):
        if self.block is None:
            return
        if exiting or self.context.state.word & UHAL_STATE_FORKED:
            return
        try:
            let_go(self.context, self.block)
        except BaseException as failure:
            warn_in_destructor(f"freeing {self.block.requested} bytes: {failure}")


cdef _Export hold_memory(DeviceBuffer buffer):
    cdef _Export held = _Export.__new__(_Export)
    cdef DeviceBuffer root = buffer if buffer.root is None else buffer.root
    held.context = buffer.context
    if buffer.block is None or buffer.block.foreign:
        held.owner = root.owner
        return held
    held.owner = root
    held.block = buffer.block
    held.block.holds += 1
    return held


cdef struct VersionedExport:
    uhal_dl_versioned managed
    int64_t shape[2]


cdef struct UnversionedExport:
    uhal_dl_managed managed
    int64_t shape[2]


cdef object versioned_capsule(DeviceBuffer buffer, tuple device, uint64_t flags):
    cdef VersionedExport *out = <VersionedExport *>calloc(1, sizeof(VersionedExport))
    if out == NULL:
        raise MemoryError
    cdef _Export held = hold_memory(buffer)
    uhal_dl_set_version(&out.managed)
    fill_tensor(&out.managed.tensor, buffer, device, out.shape)
    out.managed.flags = flags
    out.managed.manager = <void *>held
    out.managed.deleter = delete_versioned
    Py_INCREF(held)
    return PyCapsule_New(out, b"dltensor_versioned", drop_versioned)


cdef object unversioned_capsule(DeviceBuffer buffer, tuple device):
    cdef UnversionedExport *out = <UnversionedExport *>calloc(1, sizeof(UnversionedExport))
    if out == NULL:
        raise MemoryError
    cdef _Export held = hold_memory(buffer)
    fill_tensor(&out.managed.tensor, buffer, device, out.shape)
    out.managed.manager = <void *>held
    out.managed.deleter = delete_unversioned
    Py_INCREF(held)
    return PyCapsule_New(out, b"dltensor", drop_unversioned)


# A consumer may call the deleter from a thread that does not hold the GIL.
cdef void delete_versioned(uhal_dl_versioned *managed) noexcept with gil:
    Py_DECREF(<object>managed.manager)
    c_free(managed)


cdef void delete_unversioned(uhal_dl_managed *managed) noexcept with gil:
    Py_DECREF(<object>managed.manager)
    c_free(managed)


# A capsule nobody consumed still has its first name.
cdef void drop_versioned(object capsule) noexcept:
    if PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        delete_versioned(<uhal_dl_versioned *>PyCapsule_GetPointer(capsule, b"dltensor_versioned"))


cdef void drop_unversioned(object capsule) noexcept:
    if PyCapsule_IsValid(capsule, b"dltensor"):
        delete_unversioned(<uhal_dl_managed *>PyCapsule_GetPointer(capsule, b"dltensor"))


# -- in ----------------------------------------------------------------------------------------------


@cython.final
@cython.no_gc
cdef class _ForeignTensor:
    """Owns a consumed DLPack tensor: its deleter runs with the last buffer over it."""

    cdef uhal_dl_versioned *versioned
    cdef uhal_dl_managed *unversioned

    def __dealloc__(self):
        if self.versioned != NULL and self.versioned.deleter != NULL:
            self.versioned.deleter(self.versioned)
        if self.unversioned != NULL and self.unversioned.deleter != NULL:
            self.unversioned.deleter(self.unversioned)


cdef DeviceBuffer import_dlpack(object cls, object source, object device, object stream):
    cdef Context context = context_for(cls, device)
    return import_tensor(cls, context, core_for(context, stream), source)


cdef DeviceBuffer import_tensor(object cls, Context context, StreamCore core, object source):
    """A buffer over a tensor, ready in `core`."""
    cdef uhal_dl_exchange *exchange = exchange_of(type(source)).table
    cdef _ForeignTensor foreign = _ForeignTensor.__new__(_ForeignTensor)
    cdef uhal_dl_tensor *tensor
    cdef bint readonly = False
    cdef bint ordered = context.dl_device_type == DL_CUDA
    if exchange != NULL:
        exchange.take(<void *>source, &foreign.versioned)
        require_place(
            context,
            foreign.versioned.tensor.device.device_type,
            foreign.versioned.tensor.device.device_id,
        )
        if ordered:
            order_behind_handle(context, core, current_stream(context, exchange))
    else:
        take_capsule(foreign, context, core, source)
    if foreign.versioned != NULL:
        tensor = &foreign.versioned.tensor
        readonly = foreign.versioned.flags & UHAL_DLPACK_READ_ONLY
    else:
        tensor = &foreign.unversioned.tensor
    size = elements_of(tensor)
    return describe_foreign(
        cls,
        context,
        size,
        dtype_of(tensor),
        <uint64_t><uintptr_t>tensor.data + tensor.byte_offset,
        readonly,
        foreign,
        core if ordered else None,
    )


cdef int take_capsule(
    _ForeignTensor foreign, Context context, StreamCore core, object source
) except -1:
    """Ask the producer for a capsule; it puts its own work before ours in `core`."""
    cdef dict asked = {}
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        raise _errors.ArgumentTypeError(
            f"source: expected an object with __dlpack__, got {type(source).__name__}"
        )
    dlpack_device(context)
    given = source.__dlpack_device__()
    require_place(context, int(given[0]), int(given[1]))
    if context.dl_device_type == DL_CUDA:
        asked["stream"] = <uintptr_t>core.handle
        core.ticket += 1   # the wait the producer enqueues
    try:
        capsule = source.__dlpack__(max_version=(UHAL_DLPACK_MAJOR, UHAL_DLPACK_MINOR), **asked)
    except TypeError:
        capsule = source.__dlpack__(**asked)  # an exporter from before DLPack 1.0
    if PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        foreign.versioned = <uhal_dl_versioned *>PyCapsule_GetPointer(capsule, b"dltensor_versioned")
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
