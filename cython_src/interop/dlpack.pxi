# DLPack without copying, versioned and unversioned: its terms, and the export.


cdef extern from "interop/dlpack.h":
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
        void (*deleter)(uhal_dl_managed *) noexcept nogil
    ctypedef struct uhal_dl_versioned:
        void *manager
        void (*deleter)(uhal_dl_versioned *) noexcept nogil
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
        # DLPack's type for OpenCL is for memory objects, but our memory has addresses.
        raise BufferError(
            f"DLPack has no device type for memory of {context.backend_name} that has addresses. "
            "Copy through the host, with to_numpy() and from_numpy()."
        )
    return (context.dl_device_type, context.dl_device_id)


# DLDataTypeCode of the specification
DLPACK_KIND_CODES = {"int": 0, "uint": 1, "float": 2, "bool": 6}
DLPACK_NAME_CODES = {"bf16": 4, "f8e4m3": 10}


cdef int dlpack_code(object dtype) except -1:
    return DLPACK_NAME_CODES.get(dtype.name, DLPACK_KIND_CODES[dtype.kind])


cdef extern from *:
    bint mul_wraps "__builtin_mul_overflow"(int64_t one, int64_t other, int64_t *product) nogil
    bint add_wraps "__builtin_add_overflow"(int64_t one, int64_t other, int64_t *total) nogil


cdef enum:
    DLPACK_CODES = 32
    DLPACK_MOST_AXES = 64   # as many as any library has

# Dtypes by type code and bits; a list, because every tensor of every launch looks up its dtype.
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
    """The number of elements of a tensor; BufferError for an invalid shape."""
    cdef int64_t size = 1
    cdef bint wraps = False
    cdef int axis
    if tensor.ndim < 0 or tensor.ndim > DLPACK_MOST_AXES:
        raise BufferError(f"expected 0 to {DLPACK_MOST_AXES} axes, got {tensor.ndim}")
    if tensor.ndim and tensor.shape == NULL:
        raise BufferError(f"expected the lengths of {tensor.ndim} axes, got none")
    for axis in range(tensor.ndim):
        if tensor.shape[axis] < 0:
            raise BufferError(
                f"expected lengths of 0 or more, got {tensor.shape[axis]} along axis {axis}"
            )
        if tensor.shape[axis] == 0:
            size = 0
    for axis in range(tensor.ndim if size else 0):
        wraps |= mul_wraps(size, tensor.shape[axis], &size)
    if wraps or size > PY_SSIZE_T_MAX // max(1, tensor.dtype.bits // 8):
        raise BufferError(f"expected elements that fit an address space, got {lengths_of(tensor)}")
    if size and tensor.data == NULL:
        raise BufferError(f"expected the address of {size} elements, got 0")
    if tensor.byte_offset > <uint64_t>PY_SSIZE_T_MAX:
        raise BufferError(f"expected an offset within an address space, got {tensor.byte_offset}")
    if size and tensor.dtype.bits > 8:
        require_aligned(<uintptr_t>tensor.data + tensor.byte_offset, tensor.dtype.bits // 8)
    return size


cdef inline int require_aligned(uint64_t address, uint64_t itemsize) except -1:
    """BufferError for elements that GPUs cannot load: such a load loses the device."""
    if address & (itemsize - 1):
        raise BufferError(
            f"expected elements at a multiple of {itemsize} bytes, got {address:#x}; copy them"
        )
    return 0


cdef tuple lengths_of(const uhal_dl_tensor *tensor):
    return tuple([tensor.shape[axis] for axis in range(tensor.ndim)])


cdef Py_ssize_t contiguous_elements_of(const uhal_dl_tensor *tensor) except -1:
    """The number of elements of a tensor; BufferError unless it is in C order."""
    cdef Py_ssize_t size = elements_of(tensor)
    cdef int64_t expected = 1
    cdef int axis
    if tensor.strides == NULL or size == 0:
        return size
    for axis in range(tensor.ndim - 1, -1, -1):
        if tensor.shape[axis] != 1 and tensor.strides[axis] != expected:
            refuse_strided()
        expected *= tensor.shape[axis]
    return size


cdef inline int require_device_of(
    Context context, _Exchange exchange, const uhal_dl_tensor *tensor
) except -1:
    """BufferError unless this device's kernels can use the tensor's memory.

    A library numbers devices once. So the driver is asked about a number only for the first tensor
    of a type.
    """
    if (
        tensor.device.device_type == context.dl_device_type
        and tensor.device.device_id == context.dl_device_id
    ):
        if exchange.numbered & context.numbered_bit == context.numbered_bit:
            return 0
        if tensor.data == NULL:
            return 0
        require_memory_of(context, tensor)
        exchange.numbered |= context.numbered_bit
        return 0
    return require_memory_of(context, tensor)


cdef int require_memory_of(Context context, const uhal_dl_tensor *tensor) except -1:
    """Like `require_device_of`, but ask the driver which device owns the memory.

    Two libraries in one process may number devices differently: each reads `HIP_VISIBLE_DEVICES`
    when it starts.
    """
    cdef object where = None
    if tensor.device.device_type == context.dl_device_type and tensor.data != NULL:
        where = context.backend.pointer_device(<uintptr_t>tensor.data)
    if where == context.ordinal:
        return 0
    if where is None:
        given = tensor.device.device_type, tensor.device.device_id
        return 0 if given == dlpack_device(context) else refuse_device(context, given[0], given[1])
    raise BufferError(
        f"the memory is on {context.backend_name}:{where} (its library says device "
        f"{tensor.device.device_id}), expected {context.backend_name}:{context.ordinal}"
    )


cdef int refuse_device(Context context, object device_type, object device_id) except -1:
    own = dlpack_device(context)
    given = (device_type, device_id)
    if device_type == DL_CUDA_MANAGED:
        raise BufferError(
            f"expected device memory, got managed memory {given}, which the driver moves between "
            "host and device in no stream's order. Copy it into ordinary device memory."
        )
    if device_type == DL_CUDA_HOST:
        raise BufferError(
            f"the tensor is in pinned host memory {given}; copy it: DeviceBuffer.from_numpy"
        )
    raise BufferError(
        f"the tensor is on DLPack device {given}, {context.backend_name}:{context.ordinal} is "
        f"{own}; DeviceBuffer.from_numpy copies from the host"
    )


# -- out -------------------------------------------------------------------------------------------


cdef object export_dlpack(
    object source, DeviceBuffer buffer, tuple shape, tuple strides, uint64_t flags,
    object stream, object max_version, object dl_device, object copy,
):
    """A capsule of a tensor that begins with the buffer; `source` is the tensor's owner."""
    cdef DeviceBuffer exported = buffer
    own = dlpack_device(buffer.context)
    if max_version is not None:
        max_version = read_pair("max_version", max_version)
    if dl_device is not None:
        dl_device = read_pair("dl_device", dl_device)
    if dl_device is not None and dl_device != own:
        if dl_device != (DL_CPU, 0) or copy is False:
            raise BufferError(f"the buffer is on DLPack device {own}, not {dl_device}")
        array = source.to_numpy()
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
    # The consumer's accesses are not stamped. Our work precedes these accesses, and the pool waits
    # for the device before the memory is reused.
    if own[0] == DL_CUDA:
        order_consumer(exported, stream)
    elif stream != -1:
        settle(exported)
    note_exported(exported)
    if buffer.readonly and not copy:
        flags |= UHAL_DLPACK_READ_ONLY
    if max_version is not None and max_version[0] >= 1:
        return versioned_capsule(exported, shape, strides, own, flags)
    if buffer.readonly and not copy:
        raise BufferError("read-only memory needs DLPack 1.0: the consumer must pass max_version")
    return unversioned_capsule(exported, shape, strides, own)


cdef tuple read_pair(str role, object given):
    """Two numbers, as DLPack names devices and versions."""
    if not isinstance(given, (tuple, list)) or len(given) != 2 or not (
        isinstance(given[0], int) and isinstance(given[1], int)
    ):
        raise BufferError(f"{role}: expected a pair of ints, got {given!r}")
    return int(given[0]), int(given[1])


def dlpack_of(
    source, DeviceBuffer buffer not None, tuple shape not None, tuple strides not None,
    *, copied=False, stream=None, max_version=None, dl_device=None,
):
    """Export a strided tensor that begins with a buffer, by DLPack.

    `shape` and `strides` are in elements.

    Lengths and strides are not checked against the buffer's size. A consumer on the host gets
    `source.to_numpy()`.
    """
    require_buffer(buffer)
    if len(shape) != len(strides) or len(shape) > DLPACK_MOST_AXES:
        raise _errors.ArgumentValueError(
            f"shape, strides: expected as many of both, at most {DLPACK_MOST_AXES}, got "
            f"{len(shape)} and {len(strides)}"
        )
    flags = UHAL_DLPACK_COPIED if copied else 0
    return export_dlpack(
        source, buffer, shape, strides, flags, stream, max_version, dl_device, None
    )


cdef int order_consumer(DeviceBuffer buffer, object stream) except -1:
    """`stream` in DLPack's numbers for CUDA."""
    if stream is None:
        stream = 1
    if isinstance(stream, bool) or not isinstance(stream, int) or not -1 <= stream < 2**64:
        raise BufferError(f"stream: expected None, -1, 1, 2 or a handle, got {stream!r}")
    if stream == 0:
        raise BufferError("stream: 0 is ambiguous and not allowed; 1 is the legacy default stream")
    if stream != -1:
        order_foreign_behind(buffer, stream)
    return 0


cdef int fill_tensor(
    uhal_dl_tensor *tensor, DeviceBuffer buffer, tuple shape, tuple strides, tuple device,
    int64_t *numbers,
) except -1:
    """Fill `numbers` with one length and one stride for each axis."""
    cdef Py_ssize_t axes = len(shape)
    cdef Py_ssize_t axis
    try:
        for axis in range(axes):
            numbers[axis] = shape[axis]
            numbers[axes + axis] = strides[axis]
    except (OverflowError, TypeError) as failure:
        raise _errors.ArgumentValueError(
            f"shape, strides: expected ints of 64 bits, got {shape} and {strides}"
        ) from failure
    tensor.data = <void *><uintptr_t>buffer.address
    tensor.device.device_type = device[0]
    tensor.device.device_id = device[1]
    tensor.ndim = <int32_t>axes
    tensor.dtype.code = dlpack_code(buffer.dtype)
    tensor.dtype.bits = 8 * buffer.dtype.itemsize
    tensor.dtype.lanes = 1
    tensor.shape = numbers
    # Some consumers before version 1.2 do not read null as C order; all consumers accept strides.
    tensor.strides = numbers + axes
    tensor.byte_offset = 0
    return 0


cdef void *room_for(size_t bytes, tuple shape) except NULL:
    """Memory for a structure, followed by the lengths and strides of its axes."""
    cdef void *room = calloc(1, bytes + 2 * len(shape) * sizeof(int64_t))
    if room == NULL:
        raise MemoryError
    return room


cdef object versioned_capsule(
    DeviceBuffer buffer, tuple shape, tuple strides, tuple device, uint64_t flags
):
    cdef HeldMemory held = hold_memory(buffer)
    cdef uhal_dl_versioned *out = <uhal_dl_versioned *>room_for(sizeof(uhal_dl_versioned), shape)
    uhal_dl_set_version(out)
    try:
        fill_tensor(&out.tensor, buffer, shape, strides, device, <int64_t *>(out + 1))
    except BaseException:
        c_free(out)
        raise
    out.flags = flags
    out.manager = <void *>held
    out.deleter = delete_versioned
    Py_INCREF(held)
    return PyCapsule_New(out, b"dltensor_versioned", drop_versioned)


cdef object unversioned_capsule(DeviceBuffer buffer, tuple shape, tuple strides, tuple device):
    cdef HeldMemory held = hold_memory(buffer)
    cdef uhal_dl_managed *out = <uhal_dl_managed *>room_for(sizeof(uhal_dl_managed), shape)
    try:
        fill_tensor(&out.tensor, buffer, shape, strides, device, <int64_t *>(out + 1))
    except BaseException:
        c_free(out)
        raise
    out.manager = <void *>held
    out.deleter = delete_unversioned
    Py_INCREF(held)
    return PyCapsule_New(out, b"dltensor", drop_unversioned)


# A consumer may call the deleter from a thread without the GIL, even after Python ended. Then the
# process ends too, and nothing need be freed.
cdef void delete_versioned(uhal_dl_versioned *managed) noexcept nogil:
    if Py_IsInitialized():
        let_go_export(managed.manager)
        c_free(managed)


cdef void delete_unversioned(uhal_dl_managed *managed) noexcept nogil:
    if Py_IsInitialized():
        let_go_export(managed.manager)
        c_free(managed)


cdef void let_go_export(void *held) noexcept with gil:
    Py_DECREF(<object>held)


# An unconsumed capsule still has its first name.
cdef void drop_versioned(object capsule) noexcept:
    if PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        delete_versioned(<uhal_dl_versioned *>PyCapsule_GetPointer(capsule, b"dltensor_versioned"))


cdef void drop_unversioned(object capsule) noexcept:
    if PyCapsule_IsValid(capsule, b"dltensor"):
        delete_unversioned(<uhal_dl_managed *>PyCapsule_GetPointer(capsule, b"dltensor"))
