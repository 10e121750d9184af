# Repeated views of a framework's tensors run without Python: a slice in Python takes longer than
# the launch of a kernel that uses it.
#
# Arguments are compared by value, so that `x[1:]` is found although each evaluation makes a new
# slice. Layouts are compared by identity: results have the layouts that are kept here.

cdef enum:
    MOST_WORDS = 12         # of a view's arguments
    VIEW_WAYS = 4           # entries of a set: a view may be kept in any of them
    VIEW_SETS = 32

cdef enum:
    # The low bits of a word; ints, tuples and layouts of arguments have more bits above.
    INT_WORD = 1
    NONE_WORD = 2
    TUPLE_WORD = 3
    ELLIPSIS_WORD = 4
    SLICE_WORD = 5

cdef PyObject *ELLIPSIS = own(Ellipsis)


cdef struct KeptView:
    # The layouts are borrowed from a tuple that the call holds.
    uint64_t words[MOST_WORDS]
    Py_ssize_t count            # number of words; -1: an empty entry
    PyObject *layout
    PyObject *viewed


@cython.final
@cython.no_gc_clear
cdef class RememberedView:
    """RememberedView(function, maker, *, layouts)\n--\n
    `function`, which returns views of tensors, with a table of their layouts.

    Tensors are objects of the class that `maker` makes. Their slots hold a buffer, a layout, a
    dtype and an executor, in this order. A result of `function` is a view if it has the first
    argument's buffer, dtype and executor. The view's layout is kept: later calls with the same
    layout and equal arguments run no Python. Arguments may be ints, slices, `None`, `...` and
    tuples of them. `function` itself runs for other arguments, for keywords, and for results with
    other memory.

    The layout of a view must depend on the layout and the arguments only. `layouts` is the class of
    layouts, which must not change. A RememberedView that is an attribute of a class is a method.
    Any thread may call it.
    """

    cdef uhal_vectorcall vectorcall
    cdef object function
    cdef SlotMaker maker
    cdef object layouts
    cdef type kind              # of the first tensor: comparing a class is faster than isinstance
    cdef list held
    cdef KeptView entries[VIEW_SETS * VIEW_WAYS]
    cdef dict __dict__
    cdef object __weakref__

    def __init__(self, function, SlotMaker maker not None, *, type layouts not None):
        cdef Py_ssize_t index
        if self.function is not None:
            raise RuntimeError("a RememberedView is initialised once")
        if maker.count != 4:
            raise ValueError("maker: expected slots for buffer, layout, dtype and executor")
        for index in range(VIEW_SETS * VIEW_WAYS):
            self.entries[index].count = -1
        self.held = [None] * (VIEW_SETS * VIEW_WAYS)
        self.maker = maker
        self.layouts = layouts
        self.function = function
        self.vectorcall = <uhal_vectorcall>call_view

    def __get__(self, instance, owner):
        return self if instance is None else PyMethod_New(self, instance)

    def __reduce__(self):
        if self.function is None:
            refuse_unmade()
        return self.function.__qualname__   # as pickle does with functions: found by its name

    def __repr__(self):
        return f"<RememberedView of {self.function!r}>"


cdef object call_view(object callee, PyObject **given, size_t flags, PyObject *keywords):
    cdef RememberedView call = <RememberedView>callee
    cdef Py_ssize_t *at = call.maker.offsets
    cdef Py_ssize_t count = PyVectorcall_NARGS(flags)
    cdef Py_ssize_t index
    cdef size_t first
    cdef KeptView wanted
    cdef KeptView *entry
    cdef PyObject *parts[4]
    if (
        count == 0 or (keywords != NULL and PyTuple_GET_SIZE(<object>keywords))
        or not is_tensor(call, given[0])
    ):
        return PyObject_Vectorcall(call.function, given, flags, keywords)
    for index in range(4):
        parts[index] = slot_at(given[0], at[index])
        if parts[index] == NULL:
            return PyObject_Vectorcall(call.function, given, flags, keywords)
    wanted.count = 0
    wanted.layout = parts[1]
    for index in range(1, count):
        if not note_words(given[index], &wanted):
            return PyObject_Vectorcall(call.function, given, flags, keywords)
    first = view_set_of(&wanted)
    for index in range(VIEW_WAYS):
        entry = &call.entries[first + index]
        if (
            entry.count == wanted.count and entry.layout == wanted.layout
            and memcmp(entry.words, wanted.words, wanted.count * sizeof(uint64_t)) == 0
        ):
            parts[1] = entry.viewed
            return uhal_make_with_slots(type(<object>given[0]), parts, at, 4)
    layout = <object>parts[1]   # counted: Python runs meanwhile
    made = PyObject_Vectorcall(call.function, given, flags, keywords)
    if (
        layout is <object>slot_at(given[0], at[1]) and type(made) is type(<object>given[0])
        and slot_at(<PyObject *>made, at[0]) == slot_at(given[0], at[0])
        and slot_at(<PyObject *>made, at[2]) == slot_at(given[0], at[2])
        and slot_at(<PyObject *>made, at[3]) == slot_at(given[0], at[3])
    ):
        keep_view(call, first, &wanted, layout, <object>slot_at(<PyObject *>made, at[1]))
    return made


cdef inline bint is_tensor(RememberedView call, PyObject *given) noexcept:
    cdef PyTypeObject *kind = Py_TYPE(given)
    if kind == <PyTypeObject *>call.kind:
        return True
    if not PyType_IsSubtype(kind, <PyTypeObject *>call.maker.base):
        return False
    if call.kind is None:
        call.kind = <type><PyObject *>kind
    return True


cdef bint note_words(PyObject *given, KeptView *wanted) noexcept:
    """Append an argument's words; return whether the argument can be compared by value."""
    cdef long long value
    cdef Py_ssize_t index
    cdef uint64_t word
    if Py_IS_TYPE(given, &PyLong_Type):
        if not uhal_compact_int(given, &value):
            return False
        word = <uint64_t>value << 3 | INT_WORD
    elif given == Py_None:
        word = NONE_WORD
    elif given == ELLIPSIS:
        word = ELLIPSIS_WORD
    elif Py_IS_TYPE(given, &PySlice_Type):
        word = SLICE_WORD
    elif Py_IS_TYPE(given, &PyTuple_Type):
        word = <uint64_t>PyTuple_GET_SIZE(<object>given) << 3 | TUPLE_WORD
    else:
        return False
    if wanted.count == MOST_WORDS:
        return False
    wanted.words[wanted.count] = word
    wanted.count += 1
    if word == SLICE_WORD:
        return (
            note_words((<PySliceObject *>given).start, wanted)
            and note_words((<PySliceObject *>given).stop, wanted)
            and note_words((<PySliceObject *>given).step, wanted)
        )
    if word & 7 == TUPLE_WORD:
        for index in range(PyTuple_GET_SIZE(<object>given)):
            if not note_words(PyTuple_GET_ITEM(<object>given, index), wanted):
                return False
    return True


cdef inline size_t view_set_of(KeptView *wanted) noexcept:
    """The first entry of the set that a view belongs to."""
    cdef uint64_t mixed = <uint64_t>wanted.layout
    cdef Py_ssize_t index
    for index in range(wanted.count):
        # the multiplier is 2**64 divided by the golden ratio (Knuth)
        mixed = (mixed ^ wanted.words[index]) * <uint64_t>0x9E3779B97F4A7C15
    mixed *= <uint64_t>0x9E3779B97F4A7C15
    return <size_t>(mixed >> 40) % VIEW_SETS * VIEW_WAYS


cdef int keep_view(
    RememberedView call, size_t first, KeptView *wanted, object layout, object viewed
) except -1:
    """Keep a view's layout in place of the set's oldest layout."""
    cdef KeptView *entry = &call.entries[first]
    if type(layout) is not call.layouts or type(viewed) is not call.layouts:
        return 0
    held = (layout, viewed)
    # Releasing an object may run Python code, so it comes last.
    gone = call.held[first + VIEW_WAYS - 1]
    memmove(entry + 1, entry, (VIEW_WAYS - 1) * sizeof(KeptView))
    call.held[first + 1:first + VIEW_WAYS] = call.held[first:first + VIEW_WAYS - 1]
    entry[0] = wanted[0]
    entry.viewed = <PyObject *>viewed
    call.held[first] = held
    return 0


cdef RememberedView _view_layout = RememberedView.__new__(RememberedView)
uhal_enable_vectorcall(
    RememberedView, <char *>&_view_layout.vectorcall - <char *><PyObject *>_view_layout
)
uhal_make_methods(RememberedView)
