# The functions of one backend, as the lane calls them.


@cython.final
cdef class HotTable:
    """HotTable(slots, *, not_ready, out_of_memory, sticky=(), names=None, \
    frees_wait=True, staged_bytes=65536)\n--\n
    A backend's C function pointers and constants. Immutable.

    Raises ValueError for an unknown slot, a required slot without an address, or too many sticky
    codes. `names` gives the vendor's function for a slot, for error messages. With `frees_wait`,
    freeing memory waits for everything pending. `staged_bytes` is the size of the largest pageable
    source that a copy reads at once, also behind pending work.
    """

    # Never freed: the last object of a backend may be torn down after the table's Python object.
    cdef uhal_hot_table *table
    cdef readonly bint runs_python
    """Whether a launch, copy or wait may call a Python function."""
    cdef readonly dict slots
    """Maps a slot's name to its address; 0 for a missing function."""
    cdef readonly dict names
    """Maps a slot's name to the vendor's function, for error messages."""

    def __cinit__(
        self, slots, *, int not_ready, int out_of_memory, sticky=(), names=None,
        bint frees_wait=True, size_t staged_bytes=65536,
    ):
        cdef int index
        cdef uintptr_t address
        known = [uhal_slot_rows[i].name.decode() for i in range(UHAL_SLOT_COUNT)]
        unknown = sorted(set(slots) - set(known))
        if unknown:
            raise ValueError(f"no slot of the hot table is called {', '.join(unknown)}")
        if len(sticky) > UHAL_MAX_STICKY_CODES:
            raise ValueError(f"at most {UHAL_MAX_STICKY_CODES} sticky codes, got {len(sticky)}")
        cdef uhal_hot_table *table = <uhal_hot_table *>calloc(1, sizeof(uhal_hot_table))
        if table == NULL:
            raise MemoryError
        cdef void **entries = <void **>table
        for index, name in enumerate(known):
            address = slots.get(name) or 0
            if address == 0 and uhal_slot_rows[index].need == b"required":
                c_free(table)
                raise ValueError(f"slot '{name}' of the hot table is required and has no address")
            entries[index] = <void *>address
        table.not_ready = not_ready
        table.out_of_memory = out_of_memory
        table.frees_wait = frees_wait
        table.staged_bytes = staged_bytes
        table.sticky_count = len(sticky)
        for index, code in enumerate(sticky):
            table.sticky[index] = code
        self.table = table
        self.runs_python = any(
            slots.get(name) in python_slots for name in known if name not in SLOTS_OF_MODULES
        )
        self.slots = {name: slots.get(name) or 0 for name in known}
        self.names = dict(names or {})


# Addresses through which C calls Python functions.
cdef set python_slots = set()
# No launch, copy or wait calls these slots, so Python functions in them cost no launch a hold.
cdef frozenset SLOTS_OF_MODULES = frozenset(("get_function", "module_unload"))


def note_python_slots(addresses):
    """Register addresses of Python functions, before a hot table has them."""
    python_slots.update(addresses)


def slot_prototypes():
    """Maps a slot's name to (`required` or `optional`, C parameters) as hot_table.h states."""
    return {
        uhal_slot_rows[i].name.decode(): (
            uhal_slot_rows[i].need.decode(),
            uhal_slot_rows[i].prototype.decode(),
        )
        for i in range(UHAL_SLOT_COUNT)
    }
