# How a DeviceBuffer is made: its size counted, its context found, its memory taken from the pool.


cdef DeviceBuffer describe(object cls, Context context, object size, Element element):
    """A buffer without memory; `size` is checked."""
    return describe_counted(cls, context, element_count(size, element), element)


cdef inline DeviceBuffer describe_counted(
    object cls, Context context, Py_ssize_t count, Element element
):
    """A buffer without memory, of `count` elements; `element_count` returned `count`."""
    cdef DeviceBuffer buffer
    if cls is DeviceBuffer:
        buffer = DeviceBuffer.__new__(DeviceBuffer)
    else:
        buffer = cls.__new__(cls)
    buffer.size = count
    buffer.nbytes = count * element.itemsize
    buffer.dtype = element.dtype
    buffer.context = context
    return buffer


cdef Py_ssize_t element_count(object size, Element element) except -1:
    """`size` as a number of elements; refuses a size whose bytes are too many to count."""
    cdef int overflow = 0
    cdef long long count
    if not PyLong_CheckExact(size):
        if isinstance(size, bool):
            raise _errors.ArgumentTypeError("size: expected a number of elements, got bool")
        try:
            size = _operator.index(size)
        except TypeError:
            advice = (
                f". A buffer has one dimension: pass the product, or make a tensor with "
                f"ubridge.zeros({size})" if isinstance(size, (tuple, list)) else ""
            )
            raise _errors.ArgumentTypeError(
                f"size: expected a number of elements, got {type(size).__name__}{advice}"
            ) from None
    count = PyLong_AsLongLongAndOverflow(size, &overflow)
    if overflow or count < 0 or count > PY_SSIZE_T_MAX // element.itemsize:
        raise _errors.ArgumentValueError(f"size: expected 0 or more elements that fit, got {size}")
    return count


cdef DeviceBuffer new_buffer(
    object cls, Context context, object size, Element element, StreamCore core, bint native=False
):
    cdef DeviceBuffer buffer = describe(cls, context, size, element)
    if not native or not buffer.nbytes:
        return with_memory(buffer, core)
    live.buffers += 1
    buffer.block = native_block(context, buffer.nbytes, core)
    buffer.address = buffer.block.address
    return buffer


cdef inline DeviceBuffer with_memory(DeviceBuffer buffer, StreamCore core):
    """Give memory of the pool to a described buffer, and return the buffer."""
    live.buffers += 1
    if buffer.nbytes:
        buffer.block = pool_alloc(buffer.context, buffer.nbytes, core)
        buffer.address = buffer.block.address
    return buffer


cdef DeviceBuffer make_view(
    DeviceBuffer parent, Py_ssize_t byte_offset, Py_ssize_t size, object dtype
):
    cdef object cls = type(parent)
    cdef DeviceBuffer view = cls.__new__(cls)
    view.root = parent if parent.root is None else parent.root
    view.context = parent.context
    view.block = parent.block
    # A kernel that uses an empty view meets null, as with an empty buffer, and no neighbour.
    view.address = parent.address + byte_offset if size else 0
    view.size = size
    view.nbytes = size * dtype.itemsize
    view.dtype = dtype
    view.readonly = parent.readonly
    return view


cdef Context context_of_stream(object cls, object stream):
    cdef Context context
    if not isinstance(stream, Stream):
        context = context_for(cls, None)
        if foreign_core(context, stream) is not None:
            return context
        raise _errors.ArgumentTypeError(
            f"stream: expected a uhal.Stream, got {type(stream).__name__}"
        )
    return context_for(cls, device_of((<Stream>stream).context))
