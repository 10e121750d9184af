# Repeated creations of a framework's tensors run without Python: to find the device and the layout
# of a shape takes Python ten times as long as the memory's allocation.
#
# Ints and tuples of ints are compared by value, so that `zeros((n, m))` is found although each
# evaluation makes a new tuple. Other constants are compared by identity. Addresses of objects have
# no low bits, and words of ints and tuples have some. So both fit the keys of a `CallTable`.

@cython.final
@cython.no_gc_clear
cdef class Creation:
    """Creation(device, size, dtype, launch=None, arguments=(), *, layout, element, zeros=False, \
    copies=False)\n--\n
    A new tensor that a `RememberedCreation` makes at each call.

    The tensor has `layout` and the dtype `element`. Its new buffer has `size` elements of `dtype`
    on the device. `launch`, a `LaunchSequence`, is called as `launch(stream, buffer, *arguments)`.
    Without a launch the elements are `zeros`, or `copies` of the call's array, or undefined.
    """

    cdef Context context
    cdef Element stored
    cdef Py_ssize_t size
    cdef bint zeros, copies
    cdef LaunchSequence launch
    cdef tuple arguments
    cdef object layout, element

    def __init__(
        self, device not None, size, dtype, LaunchSequence launch=None,
        tuple arguments not None=(), *, layout, element, bint zeros=False,
        bint copies=False,
    ):
        if self.context is not None:
            raise RuntimeError("a Creation is initialised once")
        if FIRST_OPERAND + len(arguments) > MOST_PASSED:
            raise ValueError(f"arguments: expected up to {MOST_PASSED - FIRST_OPERAND}")
        if launch is not None and launch.steps is None:
            refuse_unmade()
        self.stored = element_of(dtype)
        self.size = element_count(size, self.stored)
        self.launch = launch
        self.arguments = arguments
        self.layout = layout
        self.element = element
        self.zeros = zeros
        self.copies = copies
        self.context = context_of(device)


@cython.final
@cython.no_gc_clear
cdef class RememberedCreation:
    """RememberedCreation(function, asks, kind, maker, settings, known, *, layouts, executors)\n--\n
    `function`, which makes tensors, with a table; known calls run no Python.

    Arguments are numbers, strings, dtypes, classes, None, tuples of ints, and objects of the class
    `shapes`, which are tuples of ints. The first argument may be a tensor of the class `kind`: its
    dtype and layout are part of the call, and its executor makes the new tensor. In other calls the
    executor is the current device's executor in `known`, a dictionary of `Context` and executor.
    The first argument may also be a contiguous array of numpy's: its dtype and shape are part of
    the call.

    If a call is new, `asks(executor, *arguments)` returns a `Creation` or None. `function` itself
    runs if there is no `Creation`, and for other arguments and keywords than `settings` and
    `stream`. It also runs without a current device, and while a recorder is set. `settings` names
    all parameters of `asks` after the executor.

    `maker` makes tensors from a buffer, a layout, a dtype and an executor. `layouts` is the class
    of layouts, the name of its slot for words, and the class of shapes. `executors` is the class of
    executors and the slot for a `CallTable` or None. Any thread may call it.
    """

    cdef uhal_vectorcall vectorcall
    cdef object function
    cdef object asks
    cdef SlotMaker maker
    cdef tuple settings
    cdef dict known
    cdef object kind, layouts, shapes, executors
    cdef Py_ssize_t words, table
    cdef dict __dict__
    cdef object __weakref__

    def __init__(
        self, function, asks, kind, SlotMaker maker not None,
        tuple settings not None, dict known not None, *, tuple layouts not None,
        tuple executors not None,
    ):
        if self.function is not None:
            raise RuntimeError("a RememberedCreation is initialised once")
        if maker.count != 4 or not (isinstance(kind, type) and issubclass(kind, maker.base)):
            raise ValueError(
                "kind, maker: expected a class of tensors with slots for buffer, layout, dtype and "
                "executor"
            )
        self.layouts, words, self.shapes = layouts
        self.executors, table = executors
        if not (isinstance(self.shapes, type) and issubclass(self.shapes, tuple)):
            raise ValueError(f"layouts: expected shapes that are tuples, got {self.shapes!r}")
        self.words = offset_of_slot(self.layouts, words)
        self.table = offset_of_slot(self.executors, table)
        self.asks = asks
        self.kind = kind
        self.maker = maker
        self.settings = settings
        self.known = known
        self.function = function
        self.vectorcall = <uhal_vectorcall>call_creation

    def __reduce__(self):
        if self.function is None:
            refuse_unmade()
        return self.function.__qualname__   # as pickle does with functions: found by its name

    def __repr__(self):
        return f"<RememberedCreation of {self.function!r}>"


cdef object call_creation(object callee, PyObject **given, size_t flags, PyObject *keywords):
    cdef RememberedCreation call = <RememberedCreation>callee
    cdef Py_ssize_t count = PyVectorcall_NARGS(flags)
    cdef GivenTensors taken
    cdef PyObject *table
    cdef PyObject *found = NULL
    cdef size_t first, index
    cdef Creation creation
    if recorder == NULL and take_constants(call, given, count, keywords, &taken):
        table = slot_at(taken.executor, call.table)
        if table != NULL and Py_IS_TYPE(table, <PyTypeObject *>CallTable):
            first = set_of(&taken)
            for index in range(first, first + WAYS):
                found = found_at(&(<CallTable>table).entries[index], &taken)
                if found != NULL:
                    break
            # Counted: both may be released while memory is allocated.
            executor = <object>taken.executor
            if found != NULL:
                creation = <Creation>found
            else:
                creation = ask_creation(call, first, given, count, keywords, &taken)
            if creation is not None:
                return created(call, creation, executor, <object>taken.stream, given[0])
    return PyObject_Vectorcall(call.function, given, flags, keywords)


cdef bint take_constants(
    RememberedCreation call, PyObject **given, Py_ssize_t count, PyObject *keywords,
    GivenTensors *taken
) except -1:
    """Return whether the table may answer; `taken` borrows the call's key."""
    cdef Py_ssize_t named = 0 if keywords == NULL else PyTuple_GET_SIZE(<object>keywords)
    cdef Py_ssize_t index
    cdef PyObject *one
    cdef PyObject *words
    taken.objects[0] = <PyObject *>call
    taken.count = 1
    taken.tensors = 0
    taken.stream = Py_None
    if count == 0:
        return False
    if named and PyTuple_GET_ITEM(<object>keywords, named - 1) == STREAM_KEYWORD:
        taken.stream = given[count + named - 1]
        named -= 1
    taken.named = named
    if named:
        taken.objects[1] = keywords
        taken.count = 2
    one = given[0]
    index = 0
    if Py_IS_TYPE(one, <PyTypeObject *>call.kind):
        index = 1
        taken.executor = slot_at(one, call.maker.offsets[3])
        taken.objects[taken.count] = slot_at(one, call.maker.offsets[2])
        one = slot_at(one, call.maker.offsets[1])
        if (
            taken.objects[taken.count] == NULL or one == NULL
            or not Py_IS_TYPE(one, <PyTypeObject *>call.layouts)
        ):
            return False
        words = slot_at(one, call.words)
        if words == NULL:
            return False
        taken.objects[taken.count + 1] = words
        taken.tensors = <uint64_t>1 << taken.count
        taken.count += 2
    else:
        context = default_context if not were_entered else current_context()
        if context is None:
            return False
        taken.executor = PyDict_GetItemWithError(call.known, context)
        if _cnumpy.PyArray_CheckExact(<object>one):
            index = 1
            if not take_array(<object>one, taken):
                return False
    if taken.executor == NULL or not PyObject_TypeCheck(
        taken.executor, <PyTypeObject *>call.executors
    ):
        return False
    for index in range(index, count + named):
        if not take_constant(call, given[index], taken):
            return False
    return True


cdef bint take_array(_cnumpy.ndarray array, GivenTensors *taken):
    """Append an array's part of the key; return whether its memory can be copied as it is."""
    cdef int axis, axes = _cnumpy.PyArray_NDIM(array)
    if taken.count + 2 + axes > MOST_OBJECTS or not (
        _cnumpy.PyArray_IS_C_CONTIGUOUS(array) and _cnumpy.PyArray_ISNOTSWAPPED(array)
    ):
        return False
    # Axes are counted first, so that no other argument is taken for a length.
    taken.objects[taken.count] = <PyObject *>(<uint64_t>axes << 3 | TUPLE_WORD)
    taken.objects[taken.count + 1] = <PyObject *>_cnumpy.PyArray_DESCR(array)
    taken.count += 2
    for axis in range(axes):
        taken.objects[taken.count] = <PyObject *>(
            <uint64_t>_cnumpy.PyArray_DIM(array, axis) << 3 | INT_WORD
        )
        taken.count += 1
    return True


cdef inline bint take_constant(
    RememberedCreation call, PyObject *one, GivenTensors *taken
) except -1:
    """Append an argument's part of the key; return whether the argument is a constant."""
    cdef Py_ssize_t index
    cdef uint64_t word
    cdef long long value
    if taken.count == MOST_OBJECTS:
        return False
    if Py_IS_TYPE(one, &PyLong_Type) and uhal_compact_int(one, &value):
        word = <uint64_t>value << 3 | INT_WORD
    elif Py_IS_TYPE(one, &PyTuple_Type) or Py_IS_TYPE(one, <PyTypeObject *>call.shapes):
        word = <uint64_t>PyTuple_GET_SIZE(<object>one) << 3 | TUPLE_WORD
    else:
        taken.objects[taken.count] = one
        taken.count += 1
        return means_the_same(<object>one)
    taken.objects[taken.count] = <PyObject *>word
    taken.count += 1
    if word & 7 == TUPLE_WORD:
        for index in range(PyTuple_GET_SIZE(<object>one)):
            if not Py_IS_TYPE(PyTuple_GET_ITEM(<object>one, index), &PyLong_Type):
                return False
            if not take_constant(call, PyTuple_GET_ITEM(<object>one, index), taken):
                return False
    return True


cdef Creation ask_creation(
    RememberedCreation call, size_t first, PyObject **given, Py_ssize_t count, PyObject *keywords,
    GivenTensors *taken
):
    """The creation to repeat, which is kept; None if the function has to be called."""
    cdef GivenTensors before = taken[0]
    cdef Py_ssize_t index
    cdef PyObject *table
    cdef Creation creation
    cdef list passed = [<object>taken.executor]
    cdef list key = [
        <object>taken.objects[index]
        for index in range(taken.count) if not <uint64_t>taken.objects[index] & 7
    ]
    names = (<tuple>keywords)[:taken.named] if taken.named else ()
    # The function itself refuses unknown arguments.
    if count > len(call.settings) or not set(names).issubset(call.settings[count:]):
        return None
    for index in range(count):
        passed.append(<object>given[index])
    found = call.asks(
        *passed, **{name: <object>given[count + index] for index, name in enumerate(names)}
    )
    if found is None:
        return None
    if type(found) is not Creation:
        raise TypeError(f"{call!r}: expected a Creation or None, got {found!r}")
    creation = <Creation>found
    if creation.context is None:
        refuse_unmade()
    # Python ran meanwhile: another thread may have changed the tensor or replaced the table.
    if not (
        take_constants(call, given, count, keywords, taken)
        and taken.count == before.count and taken.executor == before.executor
        and memcmp(taken.objects, before.objects, taken.count * sizeof(PyObject *)) == 0
    ):
        return None
    table = slot_at(taken.executor, call.table)
    if table != NULL and Py_IS_TYPE(table, <PyTypeObject *>CallTable):
        keep_entry(<CallTable>table, first, (creation, key), <PyObject *>creation, taken)
    return creation


cdef object created(
    RememberedCreation call, Creation creation, object executor, object stream, PyObject *first
):
    """The tensor of a creation, for a call with this first argument."""
    cdef Context context = creation.context
    cdef StreamCore core = None
    cdef DeviceBuffer buffer
    cdef PyObject *passed[MOST_PASSED]
    cdef PyObject *values[4]
    cdef Py_ssize_t index, count = FIRST_OPERAND
    require_usable(context)
    if stream is not None or creation.zeros or creation.copies:
        core = core_for(context, stream)
    buffer = with_memory(
        describe_counted(DeviceBuffer, context, creation.size, creation.stored), core
    )
    if creation.launch is not None:
        passed[0], passed[1] = <PyObject *>stream, <PyObject *>buffer
        for index in range(PyTuple_GET_SIZE(creation.arguments)):
            passed[count] = PyTuple_GET_ITEM(creation.arguments, index)
            count += 1
        call_sequence(creation.launch, passed, count, NULL)
    elif creation.zeros and buffer.nbytes:
        fill(buffer, 1, 0, core)
        mark_ready(buffer, core)
    elif creation.copies:
        upload(buffer, <object>first, core)
        mark_ready(buffer, core)
    values[0] = <PyObject *>buffer
    values[1] = <PyObject *>creation.layout
    values[2] = <PyObject *>creation.element
    values[3] = <PyObject *>executor
    return uhal_make_with_slots(call.kind, values, call.maker.offsets, call.maker.count)


cdef RememberedCreation _creation_layout = RememberedCreation.__new__(RememberedCreation)
uhal_enable_vectorcall(
    RememberedCreation,
    <char *>&_creation_layout.vectorcall - <char *><PyObject *>_creation_layout,
)
