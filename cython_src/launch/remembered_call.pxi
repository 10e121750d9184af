# An operation of a framework's tensors that is answered without Python where it was before. For
# operations on few elements: looking up what is to be launched costs as much as launching it.

cdef object ZERO = 0


@cython.final
@cython.no_gc_clear
cdef class RememberedCall:
    """RememberedCall(fallback, operation, operands, maker, *, layouts, dtypes, answers)\n--\n
    `call(x)` or `call(x, y)` by what was prepared for such operands; else `fallback(...)`.

    Tensors are of the class that `maker` makes, whose slots hold a buffer, a layout, a dtype and an
    executor, in this order. `executor.known` is a dictionary: what it has for `(operation, code,
    words)`, with the words of a second operand behind them, is called as `launch(None, None,
    *buffers)`, and the tensor returned has the buffer that gives, and its `layout` and `dtype`.
    Where there is nothing, for operands of two dtypes or executors, layouts that do not start at 0,
    more arguments or keywords, it is `fallback` that is called. The other arguments are the slots
    meant: `words` and `start` of layouts, `code` of dtypes, `launch`, `layout` and `dtype` of what
    is known. Any thread may call it.
    """

    cdef uhal_vectorcall vectorcall
    cdef object fallback
    cdef object operation
    cdef SlotMaker maker
    cdef Py_ssize_t operands
    cdef Py_ssize_t words, start, code, launch, layout, dtype
    cdef type layouts, dtypes, answers
    cdef dict __dict__

    def __init__(
        self, fallback, operation, Py_ssize_t operands, SlotMaker maker not None, *,
        tuple layouts not None, tuple dtypes not None, tuple answers not None,
    ):
        if self.fallback is not None:
            raise RuntimeError("a RememberedCall is initialised once")
        if not 1 <= operands <= 2:
            raise ValueError(f"operands: expected 1 or 2, got {operands}")
        if maker.count != 4:
            raise ValueError("maker: expected slots for buffer, layout, dtype and executor")
        self.operation = operation
        self.operands = operands
        self.maker = maker
        self.layouts, words, start = layouts
        self.dtypes, code = dtypes
        self.answers, launch, layout, dtype = answers
        self.words = offset_of_slot(self.layouts, words)
        self.start = offset_of_slot(self.layouts, start)
        self.code = offset_of_slot(self.dtypes, code)
        self.launch = offset_of_slot(self.answers, launch)
        self.layout = offset_of_slot(self.answers, layout)
        self.dtype = offset_of_slot(self.answers, dtype)
        self.fallback = fallback
        self.vectorcall = <uhal_vectorcall>call_remembered

    def __repr__(self):
        return f"<RememberedCall of {self.operation!r}>"


cdef Py_ssize_t offset_of_slot(type owner, object name) except -1:
    cdef Py_ssize_t offset = uhal_slot_offset(getattr(owner, name))
    if offset < 0:
        raise ValueError(f"{owner.__name__}.{name} is no slot")
    return offset


cdef inline PyObject *slot_at(PyObject *owner, Py_ssize_t offset) noexcept:
    return (<PyObject **>(<char *>owner + offset))[0]


cdef object call_remembered(object callee, PyObject **given, size_t flags, PyObject *keywords):
    cdef RememberedCall call = <RememberedCall>callee
    cdef PyObject *arguments[4]
    cdef PyObject *values[4]
    if PyVectorcall_NARGS(flags) == call.operands and (
        keywords == NULL or not PyTuple_GET_SIZE(<object>keywords)
    ):
        answer = remembered_answer(call, given, arguments + 2)
        if answer is not None:
            arguments[0] = arguments[1] = Py_None
            launch = <object>slot_at(<PyObject *>answer, call.launch)
            if type(launch) is LaunchSequence:
                made = call_sequence(launch, arguments, 2 + call.operands, NULL)
            else:
                made = PyObject_Vectorcall(launch, arguments, 2 + call.operands, NULL)
            values[0] = <PyObject *>made
            values[1] = slot_at(<PyObject *>answer, call.layout)
            values[2] = slot_at(<PyObject *>answer, call.dtype)
            values[3] = slot_at(given[0], call.maker.offsets[3])
            return uhal_make_with_slots(
                type(<object>given[0]), values, call.maker.offsets, call.maker.count
            )
    return PyObject_Vectorcall(call.fallback, given, flags, keywords)


cdef object remembered_answer(RememberedCall call, PyObject **given, PyObject **buffers):
    """What is known for the operands, whose buffers are filled in; None where Python is to look."""
    cdef PyObject *words[2]
    cdef PyObject *layout
    cdef PyObject *dtype
    cdef PyObject *executor
    cdef PyObject *found
    cdef Py_ssize_t index
    cdef Py_ssize_t *at = call.maker.offsets
    if not PyObject_TypeCheck(given[0], <PyTypeObject *>call.maker.base):
        return None
    dtype, executor = slot_at(given[0], at[2]), slot_at(given[0], at[3])
    for index in range(call.operands):
        if index and type(<object>given[1]) is not type(<object>given[0]):
            return None
        layout = slot_at(given[index], at[1])
        buffers[index] = slot_at(given[index], at[0])
        if slot_at(given[index], at[2]) != dtype or slot_at(given[index], at[3]) != executor:
            return None
        if layout == NULL or dtype == NULL or executor == NULL or buffers[index] == NULL:
            return None
        if not Py_IS_TYPE(layout, <PyTypeObject *>call.layouts):
            return None
        if slot_at(layout, call.start) != <PyObject *>ZERO:
            return None
        words[index] = slot_at(layout, call.words)
    if not Py_IS_TYPE(dtype, <PyTypeObject *>call.dtypes):
        return None
    code = <object>slot_at(dtype, call.code)
    if call.operands == 1:
        key = (call.operation, code, <object>words[0])
    else:
        key = (call.operation, code, <object>words[0], <object>words[1])
    known = (<object>executor).known
    if type(known) is not dict:
        return None
    found = PyDict_GetItemWithError(known, key)
    if found == NULL or not Py_IS_TYPE(found, <PyTypeObject *>call.answers):
        return None
    return <object>found


cdef RememberedCall _remembered_layout = RememberedCall.__new__(RememberedCall)
uhal_enable_vectorcall(
    RememberedCall, <char *>&_remembered_layout.vectorcall - <char *><PyObject *>_remembered_layout
)
