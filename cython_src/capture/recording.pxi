# The content of a plan: its launches, copies and fills in the order of capture, and the slots among
# the launches' arguments.

cdef struct CapturedLaunch:
    void *function
    void *node                      # in the executable graph; null: not known
    Py_ssize_t count                # of parameters
    size_t packed_bytes
    unsigned char *bytes            # the parameters, packed; owned, `pointers` lie behind them
    void **pointers
    unsigned int geometry[6]
    unsigned int shared_bytes
    size_t buffer_bytes             # of the buffers it was given
    uhal_launch_config *extended    # owned; null: nothing but geometry
    int instruction_offset
    bint changed                    # since the executable graph was updated


cdef enum OperationKind:
    OPERATION_LAUNCH
    OPERATION_H2D
    OPERATION_D2H
    OPERATION_D2D
    OPERATION_SET_8
    OPERATION_SET_16
    OPERATION_SET_32


cdef struct CapturedOperation:
    OperationKind kind
    Py_ssize_t launch       # its index among the launches
    uint64_t destination
    uint64_t source
    size_t count            # bytes, or elements to be set
    unsigned int value


@cython.final
@cython.no_gc
cdef class Recording:
    """Recording(name)\n--\n
    The work of a plan.

    A recording holds no buffer and no module, because the ledger keeps recordings, too.
    """

    cdef readonly str name
    """The name of the plan."""
    cdef CapturedOperation *operations
    cdef Py_ssize_t operation_count
    cdef Py_ssize_t operation_capacity
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
        c_free(self.operations)


cdef int reserve_operation(Recording recording) except -1:
    """Reserve memory for one more operation, before the driver call."""
    cdef CapturedOperation *grown
    if recording.operation_count == recording.operation_capacity:
        grown = <CapturedOperation *>realloc(
            recording.operations,
            (2 * recording.operation_capacity + 16) * sizeof(CapturedOperation),
        )
        if grown == NULL:
            raise MemoryError
        recording.operations = grown
        recording.operation_capacity = 2 * recording.operation_capacity + 16
    return 0


cdef void add_operation(
    Recording recording, OperationKind kind, uint64_t destination, uint64_t source, size_t count,
    unsigned int value
) noexcept:
    """Append an operation in reserved memory; a launch uses the newest CapturedLaunch."""
    cdef CapturedOperation *grown = &recording.operations[recording.operation_count]
    grown.kind = kind
    grown.launch = recording.count - 1
    grown.destination = destination
    grown.source = source
    grown.count = count
    grown.value = value
    recording.operation_count += 1


cdef int run_operation(
    uhal_hot_table *table, Recording recording, Py_ssize_t index, void *stream
) noexcept nogil:
    """Enqueue one operation by itself; return its status."""
    cdef CapturedOperation *one = &recording.operations[index]
    cdef CapturedLaunch *launch
    cdef unsigned int *geometry
    cdef uhal_launch_config extended
    if one.kind == OPERATION_LAUNCH:
        launch = &recording.launches[one.launch]
        if launch.extended != NULL:
            extended = launch.extended[0]
            extended.stream = stream
            return table.launch_ex(&extended, launch.function, launch.pointers, NULL)
        geometry = launch.geometry
        return table.launch(
            launch.function, geometry[0], geometry[1], geometry[2], geometry[3], geometry[4],
            geometry[5], launch.shared_bytes, stream, launch.pointers, NULL,
        )
    if one.kind == OPERATION_H2D:
        return table.copy_h2d(
            one.destination, <const void *><uintptr_t>one.source, one.count, stream
        )
    if one.kind == OPERATION_D2H:
        return table.copy_d2h(<void *><uintptr_t>one.destination, one.source, one.count, stream)
    if one.kind == OPERATION_D2D:
        return table.copy_d2d(one.destination, one.source, one.count, stream)
    if one.kind == OPERATION_SET_8:
        return table.memset_8(one.destination, <unsigned char>one.value, one.count, stream)
    if one.kind == OPERATION_SET_16:
        return table.memset_16(one.destination, <unsigned short>one.value, one.count, stream)
    return table.memset_32(one.destination, one.value, one.count, stream)


cdef void drop_launch(CapturedLaunch *launch) noexcept:
    c_free(launch.bytes)
    c_free(launch.extended)


cdef int prepare_launch(
    CapturedLaunch *launch, Function function, Py_ssize_t count, size_t packed_bytes
) except -1:
    """Prepare an empty launch; the caller owns the memory for its parameters."""
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


cdef int reserve_launch(Recording recording, Function function, object code) except -1:
    """Reserve memory for one more launch, before the driver call."""
    cdef CapturedLaunch *grown
    reserve_operation(recording)
    if recording.count == recording.capacity:
        grown = <CapturedLaunch *>realloc(
            recording.launches, (2 * recording.capacity + 16) * sizeof(CapturedLaunch)
        )
        if grown == NULL:
            raise MemoryError
        recording.launches = grown
        recording.capacity = 2 * recording.capacity + 16
    # Free the remains of an earlier launch that failed after this point.
    del recording.keys[recording.count:], recording.codes[recording.count:]
    recording.keys.append(function.ledger_key)
    recording.codes.append(code)
    return 0


cdef void add_launch(Recording recording, CapturedLaunch *launch) noexcept:
    """Append a launch in reserved memory; the recording then owns the launch's memory."""
    recording.launches[recording.count] = launch[0]
    recording.count += 1
    add_operation(recording, OPERATION_LAUNCH, 0, 0, 0, 0)


cdef dict describe_launch(Recording recording, Py_ssize_t index):
    """A ledger entry for one launch, with the current values of its parameters."""
    cdef CapturedLaunch *launch = &recording.launches[index]
    cdef size_t held = min(launch.packed_bytes, <size_t>UHAL_LEDGER_BYTES)
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
        "index": index,
    }


# -- slots -----------------------------------------------------------------------------------------


cdef enum:
    SLOT_BYTES = 8      # of the widest parameter a slot can be


cdef struct SlotUse:
    Py_ssize_t launch
    Py_ssize_t parameter
    uint32_t size
    uint64_t offset                     # of memory: offset of the launch's argument from its start
    unsigned char staged[SLOT_BYTES]    # the value the next replay shall have


@cython.final
@cython.no_gc_clear
cdef class PlanSlot:
    """PlanSlot()\n--\n
    A value of a plan that every replay can change.

    Made by `plan.slot(name, value)`.

    Pass a number to launches as this object. Pass memory as the buffer or as this object: every
    launch of the buffer, or of a view of the buffer, follows the slot.
    """

    cdef readonly str name
    """The keyword of `Plan.replay` for a new value."""
    cdef readonly object value
    """The value from the last replay, or from the capture."""
    cdef SlotUse *uses
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef bint is_written            # some kernel may write through it
    cdef DeviceBuffer buffer        # `value` when it is memory, else None
    cdef DeviceBuffer staged        # the buffer the next replay shall have
    cdef Py_ssize_t least           # elements another buffer for it must have
    cdef Block block                # held

    def __dealloc__(self):
        c_free(self.uses)

    def __reduce__(self):
        refuse_pickle(
            self,
            "recorded work",
            "Capture it there.",
        )

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
