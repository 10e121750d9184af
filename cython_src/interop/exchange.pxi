# Tensors of other libraries as arguments of a launch.
#
# The protocols of a lasting type are looked up once. The C exchange of DLPack gives an
# address without a Python call; other types become a DeviceBuffer for the length of the launch.
# In both cases the launch comes after the producer's work, and the tensor is kept until the launch
# is done.

cdef extern from *:
    """
    /* A method of a C type that takes no arguments, called without a tuple; else null. */
    static PyCFunction uhal_method_without_arguments(PyObject *kind, PyObject *method) {
        PyMethodDescrObject *found = (PyMethodDescrObject *)method;
        if (!PyObject_TypeCheck(method, &PyMethodDescr_Type) ||
            !PyType_IsSubtype((PyTypeObject *)kind, PyDescr_TYPE(method)) ||
            found->d_method->ml_flags != METH_NOARGS)
            return NULL;
        return found->d_method->ml_meth;
    }

    /* An attribute that a C type computes, to be read without a look-up; else null. */
    static PyGetSetDef *uhal_computed_attribute(PyObject *kind, PyObject *attribute) {
        if (Py_TYPE(attribute) != &PyGetSetDescr_Type ||
            !PyType_IsSubtype((PyTypeObject *)kind, PyDescr_TYPE(attribute)))
            return NULL;
        return ((PyGetSetDescrObject *)attribute)->d_getset;
    }
    """
    ctypedef struct PyGetSetDef:
        PyObject *(*get)(PyObject *, void *)
        void *closure
    PyCFunction uhal_method_without_arguments(PyObject *kind, PyObject *method)
    PyGetSetDef *uhal_computed_attribute(PyObject *kind, PyObject *attribute)


cdef enum Offer:
    OFFERS_NOTHING
    OFFERS_DLPACK
    OFFERS_ARRAY_INTERFACE
    OFFERS_RAW_MEMORY   # cuda.core's Buffer: bytes without a type


@cython.final
@cython.no_gc
cdef class _Exchange:
    """How to get the memory of one type's objects."""

    cdef Offer offer
    cdef uhal_dl_exchange *table   # null: by Python calls
    cdef object is_negated         # torch's test for lazily negated memory, or None
    cdef PyCFunction test_signs    # the same in C, for a method without arguments; or null
    cdef bint has_gradients        # torch: an object may require gradients
    cdef PyGetSetDef *gradients    # whether it does, computed in C; or null
    cdef bint is_immutable         # JAX: read-only memory, which DLPack does not report
    cdef uint64_t numbered         # a bit for each device whose number the driver has confirmed


cdef dict exchanges = {}
# The entry of `exchanges` that was used last: tensors of a launch mostly have one type.
cdef PyObject *last_kind = NULL
cdef _Exchange last_exchange = None


cdef inline _Exchange exchange_of(object kind):
    return last_exchange if <PyObject *>kind == last_kind else other_exchange_of(kind)


cdef _Exchange other_exchange_of(object kind):
    global last_kind, last_exchange
    found = exchanges.get(kind)
    if found is None:
        found = find_exchange(kind)
        if not is_lasting(kind):
            return <_Exchange>found
        exchanges[kind] = found
    last_kind, last_exchange = <PyObject *>kind, <_Exchange>found
    return <_Exchange>found


cdef _Exchange find_exchange(object kind):
    cdef _Exchange found = _Exchange.__new__(_Exchange)
    if issubclass(kind, (_numpy.ndarray, _numpy.generic, DeviceBuffer)):
        # A numpy array is host memory on every device, so its protocols are not used.
        return found
    offered = getattr(kind, "__dlpack_c_exchange_api__", None)
    if offered is not None and PyCapsule_IsValid(offered, b"dlpack_exchange_api"):
        found.table = uhal_dl_exchange_of_major(
            <uhal_dl_exchange *>PyCapsule_GetPointer(offered, b"dlpack_exchange_api")
        )
    found.is_negated = getattr(kind, "is_neg", None)
    found.test_signs = uhal_method_without_arguments(
        <PyObject *>kind, <PyObject *>found.is_negated
    )
    gradients = getattr(kind, "requires_grad", None)
    found.has_gradients = gradients is not None
    found.gradients = uhal_computed_attribute(<PyObject *>kind, <PyObject *>gradients)
    found.is_immutable = str(kind.__module__).partition(".")[0] in ("jax", "jaxlib")
    if str(kind.__module__).startswith("cuda.core") and hasattr(kind, "memory_resource"):
        found.offer = OFFERS_RAW_MEMORY
    elif found.table != NULL or hasattr(kind, "__dlpack__"):
        found.offer = OFFERS_DLPACK
    elif hasattr(kind, "__cuda_array_interface__"):
        found.offer = OFFERS_ARRAY_INTERFACE
    return found


cdef inline int require_signs(_Exchange exchange, object value) except -1:
    """BufferError for a tensor with lazily negated memory, as torch's views may have."""
    cdef PyObject *negated
    if exchange.test_signs != NULL:
        negated = exchange.test_signs(<PyObject *>value, NULL)
        if negated == Py_False:
            Py_DECREF(<object>negated)
            return 0
        if negated == NULL:
            return -1
        Py_DECREF(<object>negated)
    elif exchange.is_negated is None or not exchange.is_negated(value):
        return 0
    return refuse_signs()


cdef int refuse_signs() except -1:
    raise BufferError(
        "its memory has the opposite signs (torch's negative bit); give tensor.resolve_neg()"
    )


cdef inline int require_no_gradients(_Exchange exchange, object value) except -1:
    """BufferError for a tensor with gradients, as of torch's own export."""
    cdef PyObject *required
    if exchange.gradients != NULL:
        required = exchange.gradients.get(<PyObject *>value, exchange.gradients.closure)
        if required == NULL:
            return -1
        Py_DECREF(<object>required)
        if required == Py_False:
            return 0
    elif not exchange.has_gradients or not value.requires_grad:
        return 0
    return refuse_gradients()


cdef int refuse_gradients() except -1:
    raise BufferError(
        "it requires gradients, which would miss what is computed here; give tensor.detach()"
    )


cdef uintptr_t current_stream(Context context, uhal_dl_exchange *exchange) except? 0:
    """The stream the producer works in now on this device."""
    cdef void *stream = NULL
    exchange.current_stream(context.dl_device_type, context.dl_device_id, &stream)
    return explicit_handle(context, <uintptr_t>stream)


cdef int take_foreign(
    Function function, Py_ssize_t index, PyObject *argument, Slot *slot, unsigned char *out,
    Packed *packed
) except -1:
    """Return 1 after packing another library's memory; return 0 for any other argument.

    `slot` is null for a kernel without a signature.
    """
    cdef object value = <object>argument
    cdef _Exchange exchange = exchange_of(type(value))
    if exchange.offer == OFFERS_NOTHING:
        return 0
    try:
        if exchange.table != NULL and exchange.table.look != NULL:
            look_at_tensor(function, exchange, value, slot, out, packed)
        else:
            pack_described(function, exchange, value, slot, out, packed)
    except (BufferError, TypeError, ValueError, RuntimeError) as failure:
        words().refuse_foreign(function, index, value, str(failure))
    return 1


cdef int look_at_tensor(
    Function function, _Exchange exchange, object value, Slot *slot, unsigned char *out,
    Packed *packed
) except -1:
    cdef Context context = function.context
    cdef uhal_dl_tensor tensor
    exchange.table.look(<void *>value, &tensor)
    require_signs(exchange, value)
    require_no_gradients(exchange, value)
    require_device_of(context, exchange, &tensor)
    require_element(slot, dtype_of(&tensor))
    contiguous_elements_of(&tensor)
    (<uint64_t *>out)[0] = <uint64_t><uintptr_t>tensor.data + tensor.byte_offset
    remember(packed, value)
    if context.dl_device_type == DL_CUDA:
        note_producer(context, packed, current_stream(context, exchange.table))
    return 0


cdef int pack_described(
    Function function, _Exchange exchange, object value, Slot *slot, unsigned char *out,
    Packed *packed
) except -1:
    cdef Context context = function.context
    cdef StreamCore core = <StreamCore>packed.core
    cdef DeviceBuffer buffer
    if exchange.offer == OFFERS_ARRAY_INTERFACE:
        buffer = import_array_interface_on(DeviceBuffer, context, core, value)
    else:
        buffer = import_tensor(DeviceBuffer, context, core, value)
    if exchange.offer != OFFERS_RAW_MEMORY:
        require_element(slot, buffer.dtype)
    if buffer.readonly and (slot == NULL or not slot.is_const):
        raise BufferError("it is read-only, and the kernel may write through this parameter")
    (<uint64_t *>out)[0] = buffer.address
    note_block(packed, <PyObject *>buffer.block)
    remember(packed, buffer)
    return 0


cdef int require_element(Slot *slot, object dtype) except -1:
    if slot != NULL and slot.dtype != NULL and slot.dtype != <PyObject *>dtype:
        raise TypeError(f"its elements are {dtype}")
    return 0


cdef int remember(Packed *packed, object value) except -1:
    """Note a value the launch must keep."""
    if packed.foreign == NULL:
        packed.has_producer = False
        packed.foreign = own([value])
    else:
        (<list>packed.foreign).append(value)
    return 0


cdef int note_producer(Context context, Packed *packed, uintptr_t stream) except -1:
    """Note a stream that the launch must wait for. Usually all tensors are of one stream."""
    if packed.has_producer and packed.producer != stream:
        order_behind_producer(context, packed)
    packed.producer, packed.has_producer = stream, True
    return 0


cdef int order_behind_producer(Context context, Packed *packed) except -1:
    return order_behind_handle(context, <StreamCore>packed.core, packed.producer)


cdef int keep_foreign(Context context, StreamCore core, Packed *packed) except -1:
    cdef list foreign = <list>packed.foreign
    for value in foreign:
        if isinstance(value, DeviceBuffer):
            # The buffer's destructor keeps the tensor's owner, so the buffer itself is not kept: a
            # kept buffer would keep the device open.
            foreign = [kept for kept in foreign if not isinstance(kept, DeviceBuffer)]
            break
    if foreign:
        keep(context, core, foreign)
    return 0
