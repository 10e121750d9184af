# Single elements of a framework's tensors as Python numbers. Making a numpy array for one element
# takes ten times as long as the copy.

cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030B0000
    #define uhal_unpack_half(bytes) PyFloat_Unpack2(bytes, 1)
    #else
    #define uhal_unpack_half(bytes) _PyFloat_Unpack2((const unsigned char *)(bytes), 1)
    #endif
    """
    double uhal_unpack_half(const char *bytes) except? -1


cdef union ElementBits:
    char bytes[8]
    int8_t i8
    uint8_t u8
    int16_t i16
    uint16_t u16
    int32_t i32
    uint32_t u32
    int64_t i64
    uint64_t u64
    float f32
    double f64


@cython.final
@cython.no_gc_clear
cdef class NumberReader:
    """NumberReader(function, maker, kind=None, codes="?bBhHiIqQegfd", *, layouts)\n--\n
    `function`, which returns a tensor's only element, without Python.

    Tensors are objects of the class that `maker` makes. Their slots hold a buffer, a layout, a
    dtype and an executor, in this order. A call with a tensor of one element waits for the work
    that uses the buffer, copies the element and returns it as `kind`: `int`, `float`, `bool`, or
    None for the element's own kind. `function` itself runs for other arguments, other numbers of
    elements, and element types whose `DType.code` is not among `codes`.

    `layouts` is the class of layouts and the names of its slots for size and start. A NumberReader
    that is an attribute of a class is a method. Any thread may call it.
    """

    cdef uhal_vectorcall vectorcall
    cdef object function
    cdef SlotMaker maker
    cdef object kind
    cdef str codes
    cdef object layouts
    cdef Py_ssize_t size, start
    cdef dict __dict__
    cdef object __weakref__

    def __init__(
        self, function, SlotMaker maker not None, kind=None, str codes not None="?bBhHiIqQegfd", *,
        tuple layouts not None,
    ):
        if self.function is not None:
            raise RuntimeError("a NumberReader is initialised once")
        if maker.count != 4:
            raise ValueError("maker: expected slots for buffer, layout, dtype and executor")
        if not (kind is None or kind is int or kind is float or kind is bool):
            raise ValueError(f"kind: expected int, float, bool or None, got {kind!r}")
        self.layouts, size, start = layouts
        self.size = offset_of_slot(self.layouts, size)
        self.start = offset_of_slot(self.layouts, start)
        self.maker = maker
        self.kind = kind
        self.codes = codes
        self.function = function
        self.vectorcall = <uhal_vectorcall>call_reader

    def __get__(self, instance, owner):
        return self if instance is None else PyMethod_New(self, instance)

    def __reduce__(self):
        if self.function is None:
            refuse_unmade()
        return self.function.__qualname__   # as pickle does with functions: found by its name

    def __repr__(self):
        return f"<NumberReader of {self.function!r}>"


cdef object call_reader(object callee, PyObject **given, size_t flags, PyObject *keywords):
    cdef NumberReader call = <NumberReader>callee
    cdef Py_ssize_t *at = call.maker.offsets
    cdef PyObject *buffer
    cdef PyObject *layout
    cdef PyObject *dtype
    cdef ElementBits bits
    cdef Py_ssize_t start
    cdef Py_UCS4 code
    if (
        PyVectorcall_NARGS(flags) == 1
        and (keywords == NULL or not PyTuple_GET_SIZE(<object>keywords))
        and PyObject_TypeCheck(given[0], <PyTypeObject *>call.maker.base)
    ):
        buffer, layout = slot_at(given[0], at[0]), slot_at(given[0], at[1])
        dtype = slot_at(given[0], at[2])
        if (
            buffer != NULL and Py_IS_TYPE(buffer, <PyTypeObject *>DeviceBuffer)
            and layout != NULL and Py_IS_TYPE(layout, <PyTypeObject *>call.layouts)
            and dtype != NULL and Py_IS_TYPE(dtype, <PyTypeObject *>_dtypes.DType)
            and index_in_slot(layout, call.size) == 1
        ):
            start = index_in_slot(layout, call.start)
            code = ord((<object>dtype).code)
            if (
                0 <= start < (<DeviceBuffer>buffer).size and code in call.codes
                and (<object>dtype).itemsize == (<DeviceBuffer>buffer).dtype.itemsize
            ):
                copy_element(<DeviceBuffer>buffer, start, &bits)
                return as_kind(element_as_number(&bits, code), call.kind)
    return PyObject_Vectorcall(call.function, given, flags, keywords)


cdef inline Py_ssize_t index_in_slot(PyObject *owner, Py_ssize_t offset) noexcept:
    """The number in a slot; -1 for other objects and large numbers."""
    cdef PyObject *found = slot_at(owner, offset)
    cdef long long value
    if found != NULL and Py_IS_TYPE(found, &PyLong_Type) and uhal_compact_int(found, &value):
        return <Py_ssize_t>value
    return -1


cdef int copy_element(DeviceBuffer buffer, Py_ssize_t start, ElementBits *bits) except -1:
    """Wait for the work that uses the buffer, and copy one element."""
    require_buffer(buffer)
    cdef StreamCore core = core_for(buffer.context, None)
    refuse_capturing(core, "a copy that waits", "no waiting copies")
    if buffer.block is not None:
        wait_for_uses(buffer.context, buffer.block, core)
    cdef DeviceBuffer one = make_view(buffer, start * buffer.dtype.itemsize, 1, buffer.dtype)
    copy_d2h(one, bits, core, True)
    synchronize_core(buffer.context, core)
    return check_reports(buffer.context, core)


cdef inline object element_as_number(ElementBits *bits, Py_UCS4 code):
    if code == u"f":
        return <double>bits.f32
    if code == u"q":
        return bits.i64
    if code == u"?":
        return bits.u8 != 0
    if code == u"i":
        return bits.i32
    if code == u"d":
        return bits.f64
    if code == u"I":
        return bits.u32
    if code == u"B":
        return bits.u8
    if code == u"e":
        return uhal_unpack_half(bits.bytes)
    if code == u"g":
        bits.u32 = <uint32_t>bits.u16 << 16
        return <double>bits.f32
    if code == u"h":
        return bits.i16
    if code == u"H":
        return bits.u16
    if code == u"b":
        return bits.i8
    return bits.u64


cdef inline object as_kind(object number, object kind):
    if kind is None:
        return number
    if kind is float:
        return float(number)
    if kind is int:
        return int(number)
    return bool(number)


cdef NumberReader _reader_layout = NumberReader.__new__(NumberReader)
uhal_enable_vectorcall(
    NumberReader, <char *>&_reader_layout.vectorcall - <char *><PyObject *>_reader_layout
)
uhal_make_methods(NumberReader)
