# A capture's recording: the memory it uses, its launches, and the objects they need.


cdef int hold_block(Plan plan, StreamCore core, Block block) except -1:
    """Keep memory as long as the plan, and note that the stream's latest operation uses it."""
    cdef dict uses = plan.held.get(block)
    if uses is None:
        plan.held[block] = uses = {}
        block.holds += 1
    uses[core.id] = plan.clocks[core.id][core.id]
    return 0


cdef int keep_for_plan(Plan plan, Block block) except -1:
    """Keep the driver's memory until the plan ends: a capture cannot record the release."""
    plan.held[block] = {}
    block.holds += 1
    block.abandoned = True
    count_in(plan.context.pool, block)
    return 0


cdef int use_captured(DeviceBuffer buffer, StreamCore core, str call) except -1:
    """Note that a copy or fill being captured uses the buffer."""
    cdef Plan plan = recording_of(core, call)
    cdef PlanSlot slot = slot_of(plan, buffer)
    if slot is not None:
        capture_words().refuse_slot_name(
            plan, slot.name,
            f"{call} uses its memory, and a copy or fill of a graph cannot be changed; copy with a "
            "kernel, or use other memory",
        )
    tick(plan, core)
    if buffer.block is not None:
        hold_block(plan, core, buffer.block)
    return 0


cdef Block arena_block(Context context, size_t bytes, StreamCore core):
    """Memory for captured work: memory that the capture has freed, or new memory."""
    cdef Plan plan = recording_of(core, "an allocation")
    cdef Block block
    cdef int size_class
    if context.pool.mode == POOL_CACHING:
        size_class = size_class_of(bytes)
        for block in reversed(plan.arena.get(size_class, ())):
            if is_let_go(context, plan, block, core):
                block.abandoned = False
                block.requested = bytes
                return block
    block = pool_block(context, bytes, core)
    hold_block(plan, core, block)
    plan.arena.setdefault(block.size_class, []).append(block)
    return block


cdef bint is_let_go(Context context, Plan plan, Block block, StreamCore core) except -1:
    """Whether the buffer is gone and the stream follows all captured uses."""
    cdef dict clock
    if not block.abandoned or block.holds != 1 or block.exported:
        return False
    if drop_complete_stamps(context, block, False):
        return False  # used outside the capture too
    clock = plan.clocks[core.id]
    for number, used in plan.held[block].items():
        if clock.get(number, 0) < used:
            return False
    return True


# -- launches --------------------------------------------------------------------------------------


cdef bint divert(
    Function function, StreamCore core, const unsigned int *geometry, unsigned int shared_bytes,
    PyObject **arguments, Py_ssize_t given, const uhal_launch_config *extended, Packed *packed
) except -1:
    """Handle a diverted launch; return False for an ordinary launch."""
    if function.module.closed or core.state.word & UHAL_STATE_REFUSES:
        refuse_closed(function, core)
    if core.state.word & UHAL_STATE_CAPTURING:
        capture_launch(function, core, geometry, shared_bytes, arguments, given, extended)
        return True
    if core.state.word & UHAL_STATE_OBSERVED:
        launch_teller(function, core, geometry, shared_bytes, arguments, given, extended)
    if core.state.word & UHAL_STATE_BARRED:
        refuse_barred(function.context, core, f"launch of {function.name}")
    if core.state.word & UHAL_STATE_PROFILED:
        watch_launch(packed, function, core, geometry, shared_bytes, arguments, given)
    if core.state.word & UHAL_STATE_PYTHON:
        packed.needs |= NEEDS_HOLDING
        packed.memory = &NO_MEMORY
        packed.held = NULL
    return False


cdef int capture_launch(
    Function function, StreamCore core, const unsigned int *geometry, unsigned int shared_bytes,
    PyObject **arguments, Py_ssize_t given, const uhal_launch_config *extended
) except -1:
    """Check and pack the arguments as for a launch, and record it."""
    cdef Plan plan = recording_of(core, f"launch of {function.name}")
    cdef CapturedLaunch launch
    cdef Packed packed
    cdef Py_ssize_t index
    cdef bint kept = False
    cdef size_t buffer_bytes = 0
    cdef list values = [<object>arguments[index] for index in range(given)]
    cdef list followed = []     # (slot, parameter, offset)
    cdef list loose = None      # of a kernel without a signature: the bytes of each argument
    if function.count >= 0 and given != function.count:
        words().refuse_count(function, given)
    for index in range(given):
        values[index] = follow(plan, function, index, values[index], followed)
        refuse_foreign_memory(core, function, index, values[index])
        if isinstance(values[index], DeviceBuffer):
            buffer_bytes += (<DeviceBuffer>values[index]).nbytes
    memset(&packed, 0, sizeof(packed))
    packed.core = <PyObject *>core
    if function.count < 0:
        loose = [pack_untyped(function, index, values[index], &packed) for index in range(given)]
        prepare_launch(&launch, function, given, sum([len(part) + 7 & ~7 for part in loose]))
    else:
        prepare_launch(&launch, function, given, function.packed_bytes)
    try:
        packed.bytes = launch.bytes
        packed.pointers = launch.pointers
        packed.blocks = <void **>malloc(max(given, 1) * sizeof(void *))
        if packed.blocks == NULL:
            raise MemoryError
        if loose is not None:
            place_loose(&launch, loose)
        else:
            pack_captured(function, values, &packed)
        if packed.ran_python:
            refuse_closed_meanwhile(function, core, <PyObject **>tuple_items(tuple(values)), given)
            recording_of(core, f"launch of {function.name}")
        memcpy(launch.geometry, geometry, sizeof(launch.geometry))
        launch.shared_bytes = shared_bytes
        launch.buffer_bytes = buffer_bytes
        if extended != NULL:
            launch.extended = <uhal_launch_config *>malloc(sizeof(uhal_launch_config))
            if launch.extended == NULL:
                raise MemoryError
            launch.extended[0] = extended[0]
        packed.extended = launch.extended
        code = uhal_callsite(&launch.instruction_offset)
        reserve_launch(plan.recording, function, <object>code if code != NULL else None)
        if not plan.noted:
            give_to_driver(function, core, &launch, &packed)
        add_launch(plan.recording, &launch)
        kept = True
    finally:
        c_free(packed.blocks)
        Py_XDECREF(packed.foreign)
        if not kept:
            drop_launch(&launch)
    plan.functions.append(function)
    plan.needs |= function.module.needs
    tick(plan, core)
    for slot, parameter, offset in followed:
        use_slot(<PlanSlot>slot, plan.recording.count - 1, function, parameter, offset)
    for value in values:
        if not isinstance(value, DeviceBuffer) or (<DeviceBuffer>value).block is None:
            continue
        if (<DeviceBuffer>value).context is not plan.context:
            plan.memory.append(lent_memory(<DeviceBuffer>value))
        elif slot_of(plan, <DeviceBuffer>value) is None:
            hold_block(plan, core, (<DeviceBuffer>value).block)
    return 0


cdef object follow(
    Plan plan, Function function, Py_ssize_t index, object value, list followed
):
    """Return an argument, or its slot's value; note the slot in `followed`."""
    cdef PlanSlot slot = None
    cdef uint64_t offset = 0
    if isinstance(value, PlanSlot):
        slot = <PlanSlot>value
        if plan.slot_of_name.get(slot.name) is not slot:
            capture_words().refuse_slot_name(plan, slot.name, "it is a slot of another plan")
        value = slot.value
    elif isinstance(value, DeviceBuffer):
        slot = slot_of(plan, <DeviceBuffer>value)
        if slot is not None:
            offset = (<DeviceBuffer>value).address - slot.buffer.address
    if slot is not None:
        if function.count < 0:
            capture_words().refuse_slot_name(
                plan, slot.name,
                f"{function.name} has no signature, so later values could not be checked; pass one "
                "to get_function",
            )
        if function.slots[index].size > SLOT_BYTES:
            capture_words().refuse_slot_name(
                plan, slot.name, f"a slot has at most {SLOT_BYTES} bytes, and argument {index} of "
                f"{function.name} has {function.slots[index].size}",
            )
        followed.append((slot, index, offset))
    return value


cdef int use_slot(
    PlanSlot slot, Py_ssize_t launch, Function function, Py_ssize_t parameter, uint64_t offset
) except -1:
    if not function.slots[parameter].is_const:
        slot.is_written = True
    return add_use(slot, launch, parameter, function.slots[parameter].size, offset)


cdef int refuse_foreign_memory(
    StreamCore core, Function function, Py_ssize_t index, object value
) except -1:
    """Refuse memory of another library: a plan cannot wait for that library's streams."""
    if value is None or isinstance(value, (DeviceBuffer, int, float)):
        return 0
    if exchange_of(type(value)).offer != OFFERS_NOTHING:
        refuse_in_capture(
            core, f"launch of {function.name}, argument {index}, a {type(value).__name__}",
            "no other library",
        )
    return 0


cdef int pack_captured(Function function, list values, Packed *packed) except -1:
    cdef Py_ssize_t index
    cdef unsigned char *out
    cdef PyObject *value
    for index in range(function.count):
        out = packed.bytes + function.slots[index].offset
        packed.pointers[index] = out
        value = <PyObject *>values[index]
        if not pack_common(function, &function.slots[index], value, out, packed):
            pack_other(function, index, value, out, packed)
    return 0


cdef int place_loose(CapturedLaunch *launch, list loose) except -1:
    """Copy arguments that have their own sizes into the captured launch's memory."""
    cdef Py_ssize_t index
    cdef unsigned char *out = launch.bytes
    for index, part in enumerate(loose):
        memcpy(out, <const char *>(<bytes>part), len(part))
        launch.pointers[index] = out
        out += len(part) + 7 & ~7
    return 0


cdef int give_to_driver(
    Function function, StreamCore core, CapturedLaunch *launch, Packed *packed
) except -1:
    cdef Context context = function.context
    cdef const unsigned int *geometry = launch.geometry
    cdef int status
    cdef void *previous = enter(context)
    if packed.extended != NULL:
        status = launch_extended(context, function, packed)
    else:
        status = context.table.launch(
            launch.function, geometry[0], geometry[1], geometry[2], geometry[3], geometry[4],
            geometry[5], launch.shared_bytes, core.handle, launch.pointers, NULL,
        )
    leave(context, previous)
    return check(context, status, "launch" if packed.extended == NULL else "launch_ex")


cdef int refuse_captured_module(ModuleHandle module) except -1:
    """A capture in progress needs its kernels; a finished plan refuses to replay without them."""
    for plan in module.context.captures:
        for function in (<Plan>plan).functions:
            if (<Function>function).module is module:
                refuse_capturing((<Plan>plan).core, "Module.close", "nothing closes")
    return 0
