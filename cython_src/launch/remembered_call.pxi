# Repeated operations on a framework's tensors run without Python. For few elements, finding the
# prepared launch costs as much as launching it.
#
# Arguments are compared by identity. A call site passes the same constant objects each time, and
# results have the layouts of their answers, so nothing need be hashed. An equal but different
# object goes through Python once more.

cdef enum:
    MOST_GIVEN = 6          # arguments of a call that is remembered
    MOST_OBJECTS = 14       # its key: the call, names, two objects for each argument
    MOST_PASSED = 16        # arguments passed to a launch
    WAYS = 4                # entries of a set: a call may be kept in any of them
    SETS = 256              # of the table

cdef object ZERO = 0
cdef list TUPLES = [object() for _ in range(MOST_GIVEN + 1)]    # in keys: tuples of that length
cdef PyObject *OUT_KEYWORD = own(_sys.intern("out"))
cdef PyObject *STREAM_KEYWORD = own(_sys.intern("stream"))


cdef struct RememberedAnswer:
    # The objects are borrowed from a tuple the table holds; a creation's key also has words.
    PyObject *objects[MOST_OBJECTS]
    Py_ssize_t count            # 0: an empty entry
    uint64_t tensors            # a bit for each object: whether it begins a tensor's two
    PyObject *answer


cdef struct GivenTensors:
    # A call's arguments, taken apart.
    PyObject *objects[MOST_OBJECTS]
    Py_ssize_t count
    uint64_t tensors
    PyObject *buffers[MOST_GIVEN]
    PyObject *layouts[MOST_GIVEN]
    Py_ssize_t buffer_count
    PyObject *first             # the first tensor
    bint has_starts             # a tensor does not begin with its buffer
    PyObject *executor
    PyObject *stream
    PyObject *out               # null: none
    Py_ssize_t named            # number of keyword arguments, without stream and out


@cython.final
@cython.no_gc_clear
cdef class CallTable:
    """CallTable()\n--\n
    The latest answers to each `RememberedCall`, by identity of its arguments.

    A framework keeps one table for each device, and replaces the table when its answers are no
    longer valid. The table has sets of four entries: a set's fifth call replaces the oldest entry.
    """

    cdef RememberedAnswer entries[SETS * WAYS]
    cdef list held

    def __cinit__(self):
        memset(self.entries, 0, sizeof(self.entries))
        self.held = [None] * (SETS * WAYS)

    def __len__(self):
        return sum([one is not None for one in self.held])


@cython.final
@cython.no_gc_clear
cdef class RememberedCall:
    """RememberedCall(function, asks, maker, settings=(), writes_over=False, changes=False, *, \
    layouts, executors, answers)\n--\n
    `function` with a table of answers; known calls run no Python.

    Tensors are objects of the class that `maker` makes. Their slots hold a buffer, a layout, a
    dtype and an executor, in this order. An argument may also be a tuple of tensors, and the first
    argument a list of tensors. A call looks in the table of the first tensor's executor for an
    equal earlier call. Without such a call, it calls `asks` with the function's arguments except
    `out` and `stream`; `asks` returns an answer or None.

    The answer is called as `launch(stream, None, *ahead, *buffers, *behind)`, with the buffers of
    all tensors from their first element on. The call returns a tensor of the launch's buffer with
    the answer's layout and dtype. `function` itself runs if there is no answer, for other keywords
    than `settings`, `out` and `stream`, and for tensors of two classes or executors. `settings`
    names the function's parameters after its first parameter; `asks` need not have these
    parameters.

    An `out` is written directly only for a function with `writes_over`. `out` and all operands must
    have exactly the result's layout. An operand may share memory with `out` only if both begin at
    one address and have elements of one size. Otherwise `function` runs.

    A function that `changes` its first argument, a tensor, returns this tensor. Its answer is
    called as `launch(stream, buffer, *ahead, *others, *behind)`, with the first tensor's buffer and
    the buffers of the other tensors. `function` runs if these share memory with the first.

    An answer depends only on dtypes, layouts and constant arguments: numbers, strings, classes,
    dtypes, None, and tuples of them. Calls with other arguments are not remembered.

    `layouts` is the class of layouts and the names of its slots for words and start. `executors` is
    the class of executors and the slot for a `CallTable` or None. `answers` is the class of answers
    and the slots for launch, layout, dtype, and the tuples passed ahead of the buffers and behind
    them. A RememberedCall that is an attribute of a class is a method. Any thread may call it.
    """

    cdef uhal_vectorcall vectorcall
    cdef object function
    cdef object asks
    cdef SlotMaker maker
    cdef tuple settings
    cdef bint writes_over, changes
    cdef Py_ssize_t words, start, table, launch, layout, dtype, ahead, behind
    cdef object layouts, executors, answers
    # Classes of the first tensor and executor: comparing a class is faster than isinstance.
    cdef type kind, executor_kind
    cdef dict __dict__
    cdef object __weakref__

    def __init__(
        self, function, asks, SlotMaker maker not None, tuple settings not None=(),
        bint writes_over=False, bint changes=False, *, tuple layouts not None,
        tuple executors not None, tuple answers not None,
    ):
        if self.function is not None:
            raise RuntimeError("a RememberedCall is initialised once")
        if maker.count != 4:
            raise ValueError("maker: expected slots for buffer, layout, dtype and executor")
        self.asks = asks
        self.maker = maker
        self.settings = settings
        self.writes_over = writes_over
        self.changes = changes
        self.layouts, words, start = layouts
        self.executors, table = executors
        self.answers, launch, layout, dtype, ahead, behind = answers
        self.words = offset_of_slot(self.layouts, words)
        self.start = offset_of_slot(self.layouts, start)
        self.table = offset_of_slot(self.executors, table)
        self.launch = offset_of_slot(self.answers, launch)
        self.layout = offset_of_slot(self.answers, layout)
        self.dtype = offset_of_slot(self.answers, dtype)
        self.ahead = offset_of_slot(self.answers, ahead)
        self.behind = offset_of_slot(self.answers, behind)
        self.function = function
        self.vectorcall = <uhal_vectorcall>call_remembered

    def __get__(self, instance, owner):
        return self if instance is None else PyMethod_New(self, instance)

    def __reduce__(self):
        if self.function is None:
            refuse_unmade()
        return self.function.__qualname__   # as pickle does with functions: found by its name

    def __repr__(self):
        return f"<RememberedCall of {self.function!r}>"


cdef Py_ssize_t offset_of_slot(object owner, object name) except -1:
    cdef Py_ssize_t offset = uhal_slot_offset(getattr(owner, name))
    if offset < 0:
        raise ValueError(f"{owner.__name__}.{name} is no slot")
    return offset


cdef inline PyObject *slot_at(PyObject *owner, Py_ssize_t offset) noexcept:
    return (<PyObject **>(<char *>owner + offset))[0]


cdef object call_remembered(object callee, PyObject **given, size_t flags, PyObject *keywords):
    cdef PyObject *call = <PyObject *>callee
    cdef PyObject *table
    cdef PyObject *found = NULL
    cdef PyObject *others[MOST_GIVEN]
    cdef PyObject **used = given
    cdef GivenTensors taken
    cdef size_t first, index
    cdef Py_ssize_t count = PyVectorcall_NARGS(flags)
    if count and Py_IS_TYPE(given[0], &PyList_Type):
        # A tuple, because another thread may change the list while its tensors are used.
        listed = with_tuple(given, count, keywords, others)
        if listed is not None:
            used = others
    if take_apart(call, used, count, keywords, &taken):
        table = slot_at(taken.executor, (<RememberedCall>call).table)
        if table != NULL and Py_IS_TYPE(table, <PyTypeObject *>CallTable):
            first = set_of(&taken)
            for index in range(first, first + WAYS):
                found = found_at(&(<CallTable>table).entries[index], &taken)
                if found != NULL:
                    break
            if found != NULL:
                # Counted: another thread may replace the table while the answer is launched.
                answer = <object>found
            else:
                answer = ask(<RememberedCall>call, used, count, keywords, &taken)
                if not is_as_before(call, used, count, keywords, &taken):
                    answer = None
                if answer is not None:
                    keep_answer(<RememberedCall>call, first, answer, count, &taken, used)
            if answer is not None and (
                taken.out == NULL or may_write(call, <PyObject *>answer, &taken)
            ):
                if taken.has_starts:
                    return launched_on_views(<RememberedCall>call, answer, &taken)
                return launched_answer(<RememberedCall>call, answer, &taken)
    return PyObject_Vectorcall((<RememberedCall>call).function, given, flags, keywords)


cdef tuple with_tuple(
    PyObject **given, Py_ssize_t count, PyObject *keywords, PyObject **others
):
    """Write the arguments to `others`, the list at the front as the returned tuple."""
    cdef Py_ssize_t index, named = 0 if keywords == NULL else PyTuple_GET_SIZE(<object>keywords)
    if count + named > MOST_GIVEN:
        return None
    listed = tuple(<list>given[0])
    others[0] = <PyObject *>listed
    for index in range(1, count + named):
        others[index] = given[index]
    return listed


cdef inline bint take_apart(
    PyObject *callee, PyObject **given, Py_ssize_t count, PyObject *keywords, GivenTensors *taken
) noexcept:
    """Return whether the table may answer; `taken` borrows the call's key."""
    # Pointers instead of objects: this runs at every call, and objects would count references.
    cdef Py_ssize_t named = 0 if keywords == NULL else PyTuple_GET_SIZE(<object>keywords)
    cdef PyTypeObject *kind
    cdef Py_ssize_t index
    cdef PyObject *executor
    cdef PyObject *one
    taken.objects[0] = callee
    taken.count = 1
    taken.tensors = 0
    taken.buffer_count = 0
    taken.stream = Py_None
    taken.out = NULL
    taken.has_starts = False
    if count == 0 or count + named > MOST_GIVEN:
        return False
    taken.first = given[0]
    if Py_TYPE(given[0]) != <PyTypeObject *>(<RememberedCall>callee).kind:
        taken.first = first_tensor(callee, given, count)
        if taken.first == NULL:
            return False
    kind = Py_TYPE(taken.first)
    taken.executor = executor = slot_at(taken.first, (<RememberedCall>callee).maker.offsets[3])
    if executor == NULL:
        return False
    if Py_TYPE(executor) != <PyTypeObject *>(<RememberedCall>callee).executor_kind:
        if not PyObject_TypeCheck(executor, <PyTypeObject *>(<RememberedCall>callee).executors):
            return False
        if (<RememberedCall>callee).executor_kind is None:
            (<RememberedCall>callee).executor_kind = <type><PyObject *>Py_TYPE(executor)
    while named:
        one = PyTuple_GET_ITEM(<object>keywords, named - 1)
        if one == OUT_KEYWORD:
            taken.out = given[count + named - 1]
        elif one == STREAM_KEYWORD:
            taken.stream = given[count + named - 1]
        else:
            # `out` and `stream` do not change the answer: only other names are part of the key.
            taken.objects[1] = keywords
            taken.count = 2
            break
        named -= 1
    if taken.out == Py_None:
        taken.out = NULL
    elif taken.out != NULL and not (<RememberedCall>callee).writes_over:
        return False
    taken.named = named
    if (<RememberedCall>callee).changes:
        taken.out = given[0]
        if not Py_IS_TYPE(given[0], kind):
            return False
    for index in range(count + named):
        one = given[index]
        if Py_IS_TYPE(one, kind):
            if not take_tensor(callee, one, taken):
                return False
        elif Py_IS_TYPE(one, &PyTuple_Type):
            if not take_tuple(callee, one, taken):
                return False
        elif taken.count == MOST_OBJECTS:
            return False
        else:
            taken.objects[taken.count] = one
            taken.count += 1
    return True


cdef PyObject *first_tensor(PyObject *callee, PyObject **given, Py_ssize_t count) noexcept:
    """The first tensor among the arguments and in tuples of tensors; null: none."""
    cdef PyTypeObject *base = <PyTypeObject *>(<RememberedCall>callee).maker.base
    cdef PyObject *one
    cdef Py_ssize_t index
    for index in range(count):
        one = first_of(given[index])
        if one != NULL and PyType_IsSubtype(Py_TYPE(one), base):
            if (<RememberedCall>callee).kind is None:
                (<RememberedCall>callee).kind = <type><PyObject *>Py_TYPE(one)
            return one
    return NULL


cdef inline bint take_tensor(PyObject *callee, PyObject *one, GivenTensors *taken) noexcept:
    """Append a tensor's part of the key; return whether it belongs to a remembered call."""
    # Locals: the compiler would reload fields of `taken`.
    cdef Py_ssize_t *at = (<RememberedCall>callee).maker.offsets
    cdef Py_ssize_t number = taken.count, buffers = taken.buffer_count
    cdef PyObject *buffer = slot_at(one, at[0])
    cdef PyObject *layout = slot_at(one, at[1])
    cdef PyObject *dtype = slot_at(one, at[2])
    cdef PyObject *words
    cdef PyObject *start
    if (
        slot_at(one, at[3]) != taken.executor or layout == NULL or buffer == NULL or dtype == NULL
        or not Py_IS_TYPE(layout, <PyTypeObject *>(<RememberedCall>callee).layouts)
        or number + 2 > MOST_OBJECTS or buffers == MOST_GIVEN
    ):
        return False
    words = slot_at(layout, (<RememberedCall>callee).words)
    start = slot_at(layout, (<RememberedCall>callee).start)
    if words == NULL or start == NULL:
        return False
    taken.objects[number] = dtype
    taken.objects[number + 1] = words
    taken.buffers[buffers] = buffer
    taken.layouts[buffers] = layout
    if start != <PyObject *>ZERO:
        taken.has_starts = True
    taken.tensors |= <uint64_t>1 << number
    taken.buffer_count = buffers + 1
    taken.count = number + 2
    return True


cdef bint take_tuple(PyObject *callee, PyObject *one, GivenTensors *taken) noexcept:
    """Append a tuple: a constant, or tensors and nothing else."""
    cdef Py_ssize_t index, length = PyTuple_GET_SIZE(<object>one)
    cdef PyObject *item
    if taken.count == MOST_OBJECTS:
        return False
    if not length or not Py_IS_TYPE(PyTuple_GET_ITEM(<object>one, 0), Py_TYPE(taken.first)):
        taken.objects[taken.count] = one
        taken.count += 1
        return True
    if length > MOST_GIVEN:
        return False
    taken.objects[taken.count] = PyList_GET_ITEM(TUPLES, length)
    taken.count += 1
    for index in range(length):
        item = PyTuple_GET_ITEM(<object>one, index)
        if not Py_IS_TYPE(item, Py_TYPE(taken.first)) or not take_tensor(callee, item, taken):
            return False
    return True


cdef inline PyObject *first_of(PyObject *one) noexcept:
    """The first item of a tuple, or another object itself; null for an empty tuple."""
    if not Py_IS_TYPE(one, &PyTuple_Type):
        return one
    return PyTuple_GET_ITEM(<object>one, 0) if PyTuple_GET_SIZE(<object>one) else NULL


cdef bint is_as_before(
    PyObject *callee, PyObject **given, Py_ssize_t count, PyObject *keywords, GivenTensors *taken
) noexcept:
    """Return whether the tensors still have the same parts: Python ran meanwhile."""
    cdef GivenTensors before = taken[0]
    return (
        take_apart(callee, given, count, keywords, taken)
        and taken.count == before.count and taken.executor == before.executor
        and memcmp(taken.objects, before.objects, taken.count * sizeof(PyObject *)) == 0
    )


cdef inline size_t set_of(GivenTensors *taken) noexcept:
    """The first entry of the set that a call belongs to."""
    cdef uint64_t mixed = 0
    cdef Py_ssize_t index
    for index in range(taken.count):
        # the multiplier is 2**64 divided by the golden ratio (Knuth)
        mixed = (mixed ^ <uint64_t>taken.objects[index]) * <uint64_t>0x9E3779B97F4A7C15
    return <size_t>(mixed >> 40) % SETS * WAYS


cdef inline PyObject *found_at(RememberedAnswer *entry, GivenTensors *taken) noexcept:
    cdef Py_ssize_t index
    if entry.count != taken.count or entry.tensors != taken.tensors:
        return NULL
    for index in range(taken.count):
        if entry.objects[index] != taken.objects[index]:
            return NULL
    return entry.answer


cdef object ask(
    RememberedCall call, PyObject **given, Py_ssize_t count, PyObject *keywords,
    GivenTensors *taken
):
    """The answer to launch; None if the function has to be called."""
    cdef Py_ssize_t index
    names = (<tuple>keywords)[:taken.named] if taken.named else ()
    # The function itself refuses unknown arguments.
    if count > len(call.settings) + 1 or not set(names).issubset(call.settings[count - 1:]):
        return None
    for index in range(count + taken.named):
        if is_other_tensor(call, given[index], taken):
            return None
    answer = PyObject_Vectorcall(call.asks, given, count, <PyObject *>names if names else NULL)
    if answer is None or is_launchable(call, answer):
        return answer
    raise TypeError(f"{call!r}: expected an answer or None, got {answer!r}")


cdef inline bint holds_tensors(PyObject *one, GivenTensors *taken) noexcept:
    """Return whether an argument is a tensor of the call's class, or a tuple of them."""
    one = first_of(one)
    return one != NULL and Py_IS_TYPE(one, Py_TYPE(taken.first))


cdef inline bint is_other_tensor(
    RememberedCall call, PyObject *one, GivenTensors *taken
) except -1:
    """Return whether an argument is, or begins with, a tensor of another class."""
    one = first_of(one)
    return (
        one != NULL and not Py_IS_TYPE(one, Py_TYPE(taken.first))
        and isinstance(<object>one, call.maker.base)
    )


cdef bint is_launchable(RememberedCall call, object answer) except -1:
    """Whether an answer has all its parts, and no more arguments than a call passes."""
    cdef Py_ssize_t offset
    cdef PyObject *given = <PyObject *>answer
    if type(answer) is not call.answers:
        return False
    for offset in (call.launch, call.layout, call.dtype, call.ahead, call.behind):
        if slot_at(given, offset) == NULL:
            return False
    ahead, behind = <object>slot_at(given, call.ahead), <object>slot_at(given, call.behind)
    return (
        type(ahead) is tuple and type(behind) is tuple
        and FIRST_OPERAND + len(ahead) + MOST_GIVEN + len(behind) <= MOST_PASSED
    )


cdef int keep_answer(
    RememberedCall call, size_t first, object answer, Py_ssize_t count, GivenTensors *taken,
    PyObject **given
) except -1:
    """Keep an answer, unless an argument may have another meaning the next time."""
    cdef Py_ssize_t index
    cdef PyObject *current = slot_at(taken.executor, call.table)
    # Calling `asks` may have replaced the table.
    if current == NULL or not Py_IS_TYPE(current, <PyTypeObject *>CallTable):
        return 0
    for index in range(count + taken.named):
        if not holds_tensors(given[index], taken) and not means_the_same(<object>given[index]):
            return 0
    held = (answer, [<object>taken.objects[index] for index in range(taken.count)])
    return keep_entry(<CallTable>current, first, held, <PyObject *>answer, taken)


cdef int keep_entry(
    CallTable table, size_t first, tuple held, PyObject *answer, GivenTensors *taken
) except -1:
    """Keep an answer in place of the set's oldest; `held` keeps it and the key's objects alive."""
    cdef RememberedAnswer *entry = &table.entries[first]
    # Releasing an object may run Python code, so it comes last.
    gone = table.held[first + WAYS - 1]
    memmove(entry + 1, entry, (WAYS - 1) * sizeof(RememberedAnswer))
    table.held[first + 1:first + WAYS] = table.held[first:first + WAYS - 1]
    memcpy(entry.objects, taken.objects, sizeof(entry.objects))
    entry.count = taken.count
    entry.tensors = taken.tensors
    entry.answer = answer
    table.held[first] = held
    return 0


cdef bint means_the_same(object given) except -1:
    """Return whether the object has the same meaning in every call."""
    cdef type kind = type(given)
    if kind is tuple:
        return all([means_the_same(one) for one in <tuple>given])
    return (
        given is None
        or kind in (int, float, bool, str, _dtypes.DType)
        or isinstance(given, type)
    )


cdef inline bint may_write(PyObject *callee, PyObject *answer, GivenTensors *taken) noexcept:
    """Whether `out` has the answer's layout, and overlapping operands have `out`'s address."""
    cdef Py_ssize_t *at = (<RememberedCall>callee).maker.offsets
    cdef PyObject *layout = slot_at(answer, (<RememberedCall>callee).layout)
    cdef PyObject *out = taken.out
    cdef PyObject *buffer
    cdef PyObject *operand
    cdef uint64_t end, nbytes
    cdef Py_ssize_t index
    if (<RememberedCall>callee).changes:
        return is_apart(taken)
    if (
        not Py_IS_TYPE(out, Py_TYPE(taken.first))
        or taken.has_starts
        or slot_at(out, at[1]) != layout
        or slot_at(out, at[2]) != slot_at(answer, (<RememberedCall>callee).dtype)
        or slot_at(out, at[3]) != taken.executor
    ):
        return False
    buffer = slot_at(out, at[0])
    if buffer == NULL or not Py_IS_TYPE(buffer, <PyTypeObject *>DeviceBuffer):
        return False
    nbytes = <uint64_t>(<DeviceBuffer>buffer).nbytes
    end = (<DeviceBuffer>buffer).address + nbytes
    for index in range(taken.buffer_count):
        if taken.layouts[index] != layout:
            return False
        operand = taken.buffers[index]
        if operand == buffer:
            continue
        if Py_TYPE(operand) != Py_TYPE(buffer):
            return False
        # Unsigned, so one comparison checks both conditions: the operand begins before the end of
        # `out` and ends behind the beginning of `out`.
        if (
            end - (<DeviceBuffer>operand).address - 1
            < nbytes + <uint64_t>(<DeviceBuffer>operand).nbytes - 1
            and not begin_together(operand, buffer)
        ):
            return False
    return True


cdef bint is_apart(GivenTensors *taken) noexcept:
    """Return whether the first tensor's buffer shares no memory with the others."""
    cdef PyObject *buffer = taken.buffers[0]
    cdef Py_ssize_t index
    for index in range(taken.buffer_count):
        if not Py_IS_TYPE(taken.buffers[index], <PyTypeObject *>DeviceBuffer):
            return False
        if index and have_common_bytes(buffer, taken.buffers[index]):
            return False
    return True


cdef bint begin_together(PyObject *operand, PyObject *out) noexcept:
    """Return whether two buffers have one address and elements of one size."""
    return (
        (<DeviceBuffer>operand).address == (<DeviceBuffer>out).address
        and (<DeviceBuffer>operand).dtype.itemsize == (<DeviceBuffer>out).dtype.itemsize
    )


cdef inline object launched_answer(RememberedCall call, object answer, GivenTensors *taken):
    """The tensor that an answer makes of the given arguments."""
    cdef PyObject *passed[MOST_PASSED]
    cdef PyObject *values[4]
    cdef PyObject *extra
    cdef Py_ssize_t index, count = FIRST_OPERAND, changed = 0
    passed[0], passed[1] = taken.stream, Py_None
    if call.changes:
        passed[1] = taken.buffers[0]
        changed = 1
    elif taken.out != NULL:
        passed[1] = slot_at(taken.out, call.maker.offsets[0])
    extra = slot_at(<PyObject *>answer, call.ahead)
    for index in range(PyTuple_GET_SIZE(<object>extra)):
        passed[count] = PyTuple_GET_ITEM(<object>extra, index)
        count += 1
    for index in range(changed, taken.buffer_count):
        passed[count] = taken.buffers[index]
        count += 1
    extra = slot_at(<PyObject *>answer, call.behind)
    for index in range(PyTuple_GET_SIZE(<object>extra)):
        passed[count] = PyTuple_GET_ITEM(<object>extra, index)
        count += 1
    extra = slot_at(<PyObject *>answer, call.launch)
    if Py_IS_TYPE(extra, <PyTypeObject *>LaunchSequence):
        made = call_sequence(<object>extra, passed, count, NULL)
    else:
        made = PyObject_Vectorcall(<object>extra, passed, count, NULL)
    if taken.out != NULL:
        return <object>taken.out
    values[0] = <PyObject *>made
    values[1] = slot_at(<PyObject *>answer, call.layout)
    values[2] = slot_at(<PyObject *>answer, call.dtype)
    values[3] = taken.executor
    return uhal_make_with_slots(
        type(<object>taken.first), values, call.maker.offsets, call.maker.count
    )


cdef object launched_on_views(RememberedCall call, object answer, GivenTensors *taken):
    """`launched_answer` with buffers that begin at their tensors' first elements."""
    cdef Py_ssize_t index
    cdef list views = []
    for index in range(taken.buffer_count):
        start = <object>slot_at(taken.layouts[index], call.start)
        if start is not ZERO:
            buffer = <object>taken.buffers[index]
            views.append(buffer[start:])
            taken.buffers[index] = PyList_GET_ITEM(views, len(views) - 1)
    return launched_answer(call, answer, taken)


cdef RememberedCall _remembered_layout = RememberedCall.__new__(RememberedCall)
uhal_enable_vectorcall(
    RememberedCall, <char *>&_remembered_layout.vectorcall - <char *><PyObject *>_remembered_layout
)
uhal_make_methods(RememberedCall)
