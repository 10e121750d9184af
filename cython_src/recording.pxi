# What a plan launches: its kernels in the order of their capture, and the slots among their arguments.

cdef struct CapturedLaunch:
    void *function
    void *node                      # in the executable graph; null: not known
    Py_ssize_t count                # of parameters
    size_t packed_bytes
    unsigned char *bytes            # the parameters, packed; owned, `pointers` lie behind them
    void **pointers
    unsigned int geometry[6]
    unsigned int shared_bytes
    uhal_launch_config *extended    # owned; null: nothing but geometry
    int instruction_offset
    bint changed                    # since the executable graph was told


@cython.final
@cython.no_gc
cdef class Recording:
    """The launches of a plan. The ledger holds it too, so it holds no buffer and no module."""

    cdef readonly str name
    cdef CapturedLaunch *launches
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef list keys      # (name of the kernel, signature) of each
    cdef list codes     # the code object each was launched from, or None

    def __cinit__(self, str name):
        self.name = name
        self.keys = []
        self.codes = []

    def __dealloc__(self):
        cdef Py_ssize_t index
        for index in range(self.count):
            drop_launch(&self.launches[index])
        c_free(self.launches)


cdef void drop_launch(CapturedLaunch *launch) noexcept:
    c_free(launch.bytes)
    c_free(launch.extended)


cdef int prepare_launch(
    CapturedLaunch *launch, Function function, Py_ssize_t count, size_t packed_bytes
) except -1:
    """An empty launch with room for its parameters, which the caller owns."""
    memset(launch, 0, sizeof(CapturedLaunch))
    launch.function = function.handle_
    launch.count = count
    launch.packed_bytes = packed_bytes
    # a multiple of 8, so the pointers behind it are aligned
    launch.bytes = <unsigned char *>calloc(packed_bytes + max(count, 1) * sizeof(void *), 1)
    if launch.bytes == NULL:
        raise MemoryError
    launch.pointers = <void **>(launch.bytes + packed_bytes)
    return 0


cdef int add_launch(
    Recording recording, CapturedLaunch *launch, Function function, object code
) except -1:
    """Put a launch at the end; the recording owns its memory from then on."""
    cdef CapturedLaunch *grown
    if recording.count == recording.capacity:
        grown = <CapturedLaunch *>realloc(
            recording.launches, (2 * recording.capacity + 16) * sizeof(CapturedLaunch)
        )
        if grown == NULL:
            raise MemoryError
        recording.launches = grown
        recording.capacity = 2 * recording.capacity + 16
    recording.keys.append(function.ledger_key)
    recording.codes.append(code)
    recording.launches[recording.count] = launch[0]
    recording.count += 1
    return 0


cdef dict describe_launch(Recording recording, Py_ssize_t index):
    """One launch as the ledger tells of it, with what its parameters hold now."""
    cdef CapturedLaunch *launch = &recording.launches[index]
    cdef Py_ssize_t held = min(launch.packed_bytes, UHAL_LEDGER_BYTES)
    name, signature = recording.keys[index]
    return {
        "kernel": name,
        "signature": signature,
        "grid": tuple([launch.geometry[i] for i in range(3)]),
        "block": tuple([launch.geometry[i] for i in range(3, 6)]),
        "shared": launch.shared_bytes,
        "arguments": (<const char *>launch.bytes)[:held],
        "code": recording.codes[index],
        "instruction_offset": launch.instruction_offset,
        "plan": recording.name,
        "place": index,
    }


# -- slots -------------------------------------------------------------------------------------------


cdef enum:
    SLOT_BYTES = 8      # of the widest parameter a slot can be


cdef struct SlotUse:
    Py_ssize_t launch
    Py_ssize_t parameter
    uint32_t size
    uint64_t offset                     # of memory: from its start to what the launch was given
    unsigned char staged[SLOT_BYTES]    # the value the next replay shall have


@cython.final
@cython.no_gc_clear
cdef class PlanSlot:
    """A value of a plan that every replay can give anew; made by `plan.slot(name, value)`.

    A number is passed to launches as this object. Memory is passed as it is, or as this object: every
    launch that is given the buffer, or a view that lies within it, follows the slot.
    """

    cdef readonly str name
    cdef readonly object value      # what the last replay gave, or the capture
    cdef SlotUse *uses
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef bint is_written            # some kernel may write through it
    cdef DeviceBuffer buffer        # `value` when it is memory, else None
    cdef DeviceBuffer staged        # the buffer the next replay shall have
    cdef Py_ssize_t least           # elements a buffer in its place must have
    cdef Block block                # held

    def __dealloc__(self):
        c_free(self.uses)

    def __repr__(self):
        return f"<PlanSlot {self.name} = {self.value!r}>"


cdef int add_use(
    PlanSlot slot, Py_ssize_t launch, Py_ssize_t parameter, uint32_t size, uint64_t offset
) except -1:
    cdef SlotUse *grown
    if slot.count == slot.capacity:
        grown = <SlotUse *>realloc(slot.uses, (2 * slot.capacity + 4) * sizeof(SlotUse))
        if grown == NULL:
            raise MemoryError
        slot.uses = grown
        slot.capacity = 2 * slot.capacity + 4
    grown = &slot.uses[slot.count]
    memset(grown, 0, sizeof(SlotUse))
    grown.launch = launch
    grown.parameter = parameter
    grown.size = size
    grown.offset = offset
    slot.count += 1
    return 0
