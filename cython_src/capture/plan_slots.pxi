# The slots of a plan: declared during its capture, changed by replays.


cdef PlanSlot declare_slot(Plan plan, str name, object value):
    cdef PlanSlot slot
    cdef DeviceBuffer buffer
    refuse = capture_words().refuse_slot_name
    if plan.state != PLAN_RECORDING:
        refuse(plan, name, "slots are declared during the capture")
    recording_of(plan.core, "Plan.slot")
    if not name.isidentifier() or name == "stream":
        refuse(plan, name, "a slot's name is a keyword of replay(), other than 'stream'")
    if name in plan.slot_of_name:
        refuse(plan, name, "it is declared already; pass the slot itself again")
    slot = PlanSlot.__new__(PlanSlot)
    slot.name = name
    slot.value = value
    if isinstance(value, DeviceBuffer):
        buffer = <DeviceBuffer>value
        require_buffer(buffer)
        if buffer.context is not plan.context or not buffer.nbytes:
            refuse(plan, name, f"expected memory of {device_of(plan.context)!r}, got {value!r}")
        for other in plan.slot_of_name.values():
            if overlaps((<PlanSlot>other).buffer, buffer):
                refuse(plan, name, f"its memory overlaps that of slot {(<PlanSlot>other).name!r}")
        slot.buffer = buffer
        slot.least = buffer.size
        slot.block = hold(buffer)
        plan.slots_of_block.setdefault(buffer.block, []).append(slot)
    elif not isinstance(value, (int, float, _numpy.generic)):
        refuse(plan, name, f"expected a number or a DeviceBuffer, got {type(value).__name__}")
    plan.slot_of_name[name] = slot
    plan.slots.append(slot)
    return slot


cdef bint overlaps(DeviceBuffer one, DeviceBuffer other) noexcept:
    return (
        one is not None
        and one.address < other.address + other.nbytes
        and other.address < one.address + one.nbytes
    )


cdef PlanSlot slot_of(Plan plan, DeviceBuffer buffer):
    """The slot whose memory contains the buffer, or None."""
    cdef PlanSlot slot
    if not plan.slots_of_block:
        return None
    for slot in plan.slots_of_block.get(buffer.block, ()):
        if (
            slot.buffer.address <= buffer.address
            and buffer.address + buffer.nbytes <= slot.buffer.address + slot.buffer.nbytes
        ):
            return slot
    return None


cdef int require_slots(Plan plan) except -1:
    if plan.slot_of_name and len(plan.members) > 1:
        capture_words().refuse_capture(
            f"plan {plan.name!r} has slots, and then all its work is captured on one stream, got "
            f"{len(plan.members)}"
        )
    for slot in plan.slot_of_name.values():
        if not (<PlanSlot>slot).count:
            capture_words().refuse_slot_name(
                plan, (<PlanSlot>slot).name,
                "no launch uses it, so other values would change nothing; pass the slot, or the "
                "buffer it stands for, to a launch",
            )
    return 0


cdef int stage_slot(Plan plan, PlanSlot slot, object value) except -1:
    """Check a value against the slot's launches; keep it for `commit_slot`."""
    if slot.buffer is not None:
        return stage_buffer(plan, slot, value)
    return stage_number(plan, slot, value)


cdef int stage_buffer(Plan plan, PlanSlot slot, object value) except -1:
    cdef DeviceBuffer buffer
    cdef SlotUse *use = slot.uses
    cdef Py_ssize_t index
    cdef uint64_t address
    if isinstance(value, DeviceBuffer):
        buffer = <DeviceBuffer>value
        if (
            buffer.context is plan.context
            and not buffer_closed(buffer)
            and buffer.dtype is slot.buffer.dtype
            and buffer.size >= slot.least
            and not (buffer.readonly and slot.is_written)
        ):
            for index in range(slot.count):
                address = buffer.address + use[index].offset
                memcpy(use[index].staged, &address, sizeof(address))
            slot.staged = buffer
            return 0
    capture_words().refuse_buffer(
        plan, slot, value, plan.functions[use.launch], use.parameter
    )
    return -1


cdef int stage_number(Plan plan, PlanSlot slot, object value) except -1:
    cdef Packed packed
    cdef Function function
    cdef SlotUse *use
    cdef Py_ssize_t index
    if isinstance(value, DeviceBuffer) or value is None:
        # a launch would accept this value for an unknown parameter
        capture_words().refuse_slot_name(
            plan, slot.name, f"expected a number, got {type(value).__name__}"
        )
    memset(&packed, 0, sizeof(packed))
    for index in range(slot.count):
        use = &slot.uses[index]
        function = <Function>plan.functions[use.launch]
        if pack_common(
            function, &function.slots[use.parameter], <PyObject *>value, use.staged, &packed
        ):
            continue
        try:
            refuse_foreign_memory(plan.core, function, use.parameter, value)
            pack_other(function, use.parameter, <PyObject *>value, use.staged, &packed)
        except _errors.DeviceError as error:
            capture_words().tell_slot(plan, slot, error)
            raise
    return 0


cdef int commit_slot(Plan plan, PlanSlot slot, object value) except -1:
    """Put a staged value into the launches, and mark the changed launches."""
    cdef CapturedLaunch *launch
    cdef SlotUse *use
    cdef Py_ssize_t index
    cdef Block old
    cdef void *target
    for index in range(slot.count):
        use = &slot.uses[index]
        launch = &plan.recording.launches[use.launch]
        target = launch.pointers[use.parameter]
        if memcmp(target, use.staged, use.size) != 0:
            memcpy(target, use.staged, use.size)
            launch.changed = True
    slot.value = value
    if slot.buffer is not None and slot.staged.block is not slot.block:
        old = slot.block
        slot.block = hold(slot.staged)
        if old is not None:
            let_go(plan.context, old)
    slot.staged = None
    return 0
