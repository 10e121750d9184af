# Objects of Python classes with slots, made in one call. Every result is such an object. In Python
# the call, and a look-up and a store for each slot, would take longer than a small kernel.

cdef enum:
    MOST_SLOTS = 8


@cython.final
@cython.no_gc
cdef class SlotMaker:
    """SlotMaker(base, /, *names)\n--\n
    Makes objects of a class or a derived class, with slots set.

    `make(cls, *values)` returns a new object of `cls` whose slots, in the order they were named,
    hold the values. `__new__` and `__init__` are not called, so the class must not need them, nor
    inherit a C `__new__` other than `object`'s. Any thread may call it.
    """

    cdef uhal_vectorcall vectorcall
    cdef type base
    cdef Py_ssize_t offsets[MOST_SLOTS]
    cdef Py_ssize_t count

    def __init__(self, type base not None, *names):
        cdef Py_ssize_t index
        if self.base is not None:
            raise RuntimeError("a SlotMaker is initialised once")
        if not 0 < len(names) <= MOST_SLOTS:
            raise ValueError(f"names: expected 1 to {MOST_SLOTS} of slots, got {len(names)}")
        for index, name in enumerate(names):
            self.offsets[index] = uhal_slot_offset(getattr(base, name))
            if self.offsets[index] < 0:
                raise ValueError(f"{base.__name__}.{name} is no slot")
        self.count = len(names)
        self.base = base
        self.vectorcall = <uhal_vectorcall>make_with_slots

    def __getattr__(self, name):
        return signature_or_nothing(self, name, _called_to_make)


def _called_to_make(cls, /, *values):
    """How a SlotMaker is called; only its signature is used."""


cdef object make_with_slots(object callee, PyObject **given, size_t flags, PyObject *keywords):
    """`make(cls, *values)`."""
    cdef SlotMaker maker = <SlotMaker>callee
    cdef Py_ssize_t count = PyVectorcall_NARGS(flags)
    if count != maker.count + 1 or (keywords != NULL and PyTuple_GET_SIZE(<object>keywords)):
        raise TypeError(f"expected a class and {maker.count} values, and no keywords")
    if given[0] != <PyObject *>maker.base and not (
        isinstance(<object>given[0], type) and issubclass(<object>given[0], maker.base)
    ):
        raise TypeError(f"expected {maker.base.__name__} or a class derived from it")
    return uhal_make_with_slots(<object>given[0], given + 1, maker.offsets, maker.count)


cdef SlotMaker _maker_layout = SlotMaker.__new__(SlotMaker)
uhal_enable_vectorcall(
    SlotMaker, <char *>&_maker_layout.vectorcall - <char *><PyObject *>_maker_layout
)
