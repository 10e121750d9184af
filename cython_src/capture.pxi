# A capture: a stream, and those that join it, record what they are given into a plan.
#
# Nothing recorded takes a ticket or leaves a stamp, for it does not run. The plan holds the memory it
# is given. What would make the driver spoil the capture is refused before the driver sees it.

cdef object _capture_words = None


cdef object capture_words():
    global _capture_words
    if _capture_words is None:
        from uhal import _capture_words as found
        _capture_words = found
    return _capture_words


@cython.final
@cython.no_gc_clear
cdef class Capture:
    """`with stream.capture() as plan:` - dropped before its end, it is abandoned."""

    cdef Stream stream
    cdef str name
    cdef Plan plan

    def __init__(self, Stream stream not None, name=None):
        self.stream = stream
        self.name = name

    def __enter__(self):
        if self.plan is not None:
            capture_words().refuse_capture("a capture is entered once; ask the stream for another")
        self.plan = begin_capture(self.stream, self.name)
        return self.plan

    def __exit__(self, kind, value, traceback):
        if self.plan.state == PLAN_RECORDING:
            if kind is None:
                end_capture(self.plan)
            else:
                abandon_capture(self.plan)

    def __dealloc__(self):
        if self.plan is None or self.plan.state != PLAN_RECORDING:
            return
        try:
            abandon_capture(self.plan)
        except BaseException as failure:
            warn_in_destructor(f"abandoning the capture of plan {self.plan.name!r}: {failure}")


# -- beginning and ending ----------------------------------------------------------------------------


cdef Plan begin_capture(Stream stream, object name):
    cdef Context context = stream.context
    cdef StreamCore core = stream.core
    cdef Plan plan
    cdef void *previous
    require_stream(context, core)
    if core.state.word & UHAL_STATE_CAPTURING:
        refuse_capturing(core, "Stream.capture", NO_SECOND_CAPTURE)
    if is_legacy(context, core):
        capture_words().refuse_capture(
            "the legacy default stream cannot be captured; capture a Stream of your own"
        )
    plan = new_plan(context, core, name, capture_words().call_site())
    settle_before_capture(context, core)
    previous = enter(context)
    try:
        context.backend.begin_capture(<uintptr_t>core.handle)
    finally:
        leave(context, previous)
    plan.state = PLAN_RECORDING
    live.plans += 1
    context.captures.append(plan)
    add_member(plan, stream)
    return plan


cdef int settle_before_capture(Context context, StreamCore core) except -1:
    """Record a marker for what is pending: during the capture none can be, and nobody can ask."""
    if not core_is_idle(context, core):
        marker_for(context, core, core.ticket)
    return 0


cdef int add_member(Plan plan, Stream stream) except -1:
    """Let a stream record into the plan."""
    cdef StreamCore core = stream.core
    plan.members.append(stream)
    plan.clocks[core.id] = {core.id: 0}
    core.capture = plan
    core.state.word |= UHAL_STATE_CAPTURING
    return bar_streams(plan.context)


cdef int leave_capture(Plan plan) except -1:
    """Let the streams run their work again."""
    cdef StreamCore core
    for stream in plan.members:
        core = (<Stream>stream).core
        core.capture = None
        core.state.word &= ~<uint32_t>UHAL_STATE_CAPTURING
    plan.members = []
    plan.context.captures.remove(plan)
    return bar_streams(plan.context)


cdef int end_capture(Plan plan) except -1:
    """Make the plan ready to be replayed, or close it and raise what is wrong with it."""
    cdef Context context = plan.context
    cdef void *previous
    try:
        require_usable(context)
        require_joined(plan)
        require_slots_used(plan)
        previous = enter(context)
    except BaseException:
        abandon_capture(plan)
        raise
    try:
        try:
            plan.graph = context.backend.end_capture(<uintptr_t>plan.core.handle)
        finally:
            leave_capture(plan)
        instantiate(plan)
        plan.state = PLAN_READY
    except BaseException:
        release_plan(plan)
        raise
    finally:
        leave(context, previous)
    return 0


cdef int abandon_capture(Plan plan) except -1:
    """End the capture and throw away what it recorded."""
    cdef Context context = plan.context
    cdef void *previous
    try:
        if not exiting and not context.state.word & (UHAL_STATE_FORKED | UHAL_STATE_LOST):
            previous = enter(context)
            try:
                plan.graph = context.backend.end_capture(<uintptr_t>plan.core.handle)
            except _errors.DeviceError:
                pass  # unjoined or spoilt: the capture is over all the same, without a graph
            finally:
                leave(context, previous)
    finally:
        leave_capture(plan)
        release_plan(plan)
    return 0


cdef int require_joined(Plan plan) except -1:
    """Every stream's last work must come before the end of the stream the capture began on."""
    cdef dict reached = plan.clocks[plan.core.id]
    unjoined = [
        (number, plan.joined_at[number])
        for number, clock in plan.clocks.items()
        if number != plan.core.id and reached.get(number, 0) < clock[number]
    ]
    if unjoined:
        capture_words().refuse_unjoined(plan.name, unjoined)
    return 0


# -- streams -----------------------------------------------------------------------------------------


cdef Plan recording_of(StreamCore core, str call):
    """The plan a stream records into; only the thread that captures may give it work."""
    cdef Plan plan = core.capture
    if plan.thread != PyThread_get_thread_ident():
        refuse_in_capture(
            core, call, "only the thread that captures may use it",
            "use another stream here" if thread_lives(plan.thread)
            else "that thread has ended: plan.close() gives the stream back",
        )
    return plan


cdef bint thread_lives(unsigned long ident) except -1:
    return any(thread.ident == ident for thread in _threading.enumerate())


cdef tuple NO_SECOND_CAPTURE = (
    "a stream belongs to one capture at a time",
    "end that one first, or close its plan",
)
cdef tuple NOTHING_RUNS = (
    "nothing that is captured runs before the plan is replayed",
    "wait for the stream after plan.replay()",
)
cdef tuple NO_CALLBACKS = (
    "a plan runs without Python, so it can call nothing back",
    "add the callback to the stream after plan.replay()",
)
cdef tuple ONLY_THE_ARENA = (
    "memory of the driver's would be allocated anew by every replay",
    "leave out native=True: the plan keeps what its capture allocates",
)
cdef tuple ONLY_PINNED = (
    "only pinned memory can be copied by a plan, which reads or writes it at every replay",
    "use a HostBuffer, or copy before the capture",
)
cdef tuple ONLY_ASYNCHRONOUS = (
    "nothing that is captured runs before the plan is replayed",
    "capture copy_from_async or copy_to_async, or copy outside the capture",
)
cdef tuple ONLY_ONE_DEVICE = (
    "a plan runs on one device",
    "copy between devices outside the capture",
)
cdef tuple NOTHING_FOREIGN = (
    "a plan cannot wait for it",
    "take the memory over before the capture",
)
cdef tuple NOT_CLOSED = (
    "what is being captured cannot be closed",
    "end the capture first, or abandon it with plan.close()",
)


cdef int refuse_in_capture(StreamCore core, str call, str reason, str advice) except -1:
    cdef Plan plan = core.capture
    capture_words().refuse_call(plan.name, plan.begun, core.id, call, reason, advice)
    return -1


cdef inline int refuse_capturing(StreamCore core, str call, tuple why) except -1:
    """Refuse a call on a stream that is being captured; `why` is (reason, advice)."""
    if core.state.word & UHAL_STATE_CAPTURING:
        refuse_in_capture(core, call, why[0], why[1])
    return 0


cdef bint is_legacy(Context context, StreamCore core) except -1:
    return not core.owned and context.backend.special_stream("legacy") == <uintptr_t>core.handle


cdef str why_barred(Plan plan, StreamCore core, bint this_thread):
    """Why a stream outside the capture takes no work meanwhile; None when it does."""
    cdef StreamCore member
    for stream in plan.members:
        member = (<Stream>stream).core
        if member is core:
            return None
        if member.handle == core.handle:
            return "its native stream is being captured through another object; use that one"
    if is_legacy(plan.context, core):
        for stream in plan.members:
            member = (<Stream>stream).core
            if not member.flags & STREAM_NON_BLOCKING:
                return (
                    "work in the legacy default stream waits for every blocking stream, which "
                    "would spoil the capture; use a Stream of your own, or capture one made with "
                    "StreamFlags.NON_BLOCKING"
                )
    if core is plan.context.default_core and this_thread:
        return (
            "it is the default stream, whose work runs at once and is no part of the plan; pass "
            "stream=, the one that is captured, or do this before the capture"
        )
    return None


cdef int bar_streams(Context context) except -1:
    """Mark the streams on which work has to be looked at while something is captured."""
    cdef StreamCore core
    for core in context.streams.values():
        core.state.word &= ~<uint32_t>UHAL_STATE_BARRED
        for plan in context.captures:
            if why_barred(<Plan>plan, core, True) is not None:
                core.state.word |= UHAL_STATE_BARRED
    return 0


cdef int refuse_barred(Context context, StreamCore core, str call) except -1:
    """Refuse work on a barred stream unless another thread's capture is what bars it."""
    for plan in context.captures:
        reason = why_barred(
            <Plan>plan, core, (<Plan>plan).thread == PyThread_get_thread_ident()
        )
        if reason is not None:
            capture_words().refuse_barred(
                (<Plan>plan).name, (<Plan>plan).begun, core.id, call, reason
            )
    return 0


# -- order between streams ---------------------------------------------------------------------------
#
# Every stream counts what it recorded, and keeps how far it has waited for the others. What one of
# them did is joined when the stream of the capture has waited that far.


cdef inline int tick(Plan plan, StreamCore core) except -1:
    cdef dict clock = plan.clocks[core.id]
    clock[core.id] += 1
    return 0


cdef int record_captured(Event event, StreamCore core) except -1:
    """What `event.record` does on a stream that is being captured."""
    cdef Plan plan = recording_of(core, "Event.record")
    cdef void *previous = enter(event.context)
    cdef int status = event.context.table.event_record(event.handle_, core.handle)
    leave(event.context, previous)
    check(event.context, status, "event_record")
    event.core = None
    event.captured = plan.recording
    event.clock = dict(plan.clocks[core.id])
    return 0


cdef int wait_captured(Stream stream, Event event) except -1:
    """What `stream.wait_event` does when stream or event belong to a capture."""
    cdef StreamCore core = stream.core
    cdef Context context = stream.context
    cdef Plan plan = None
    cdef void *previous
    cdef int status
    cdef dict clock
    cdef bint joins = core.capture is None
    for found in context.captures:
        if (<Plan>found).recording is event.captured:
            plan = <Plan>found
    if plan is None and not joins:
        refuse_in_capture(
            core, "Stream.wait_event", "the event was not recorded in this capture",
            "wait for it before the capture, or let the stream of the replay wait for it",
        )
    if plan is None:
        capture_words().refuse_capture(
            "the event was recorded in a capture that is over, or on another device, and marks no "
            "work that runs; record it anew"
        )
    recording_of(plan.core, "Stream.wait_event")
    if not joins and core.capture is not plan:
        refuse_capturing(core, "Stream.wait_event", NO_SECOND_CAPTURE)
    if joins:
        if is_legacy(context, core):
            capture_words().refuse_capture("the legacy default stream cannot join a capture")
        if core.state.word & UHAL_STATE_BARRED:
            refuse_barred(context, core, "Stream.wait_event")
        settle_before_capture(context, core)
    previous = enter(context)
    status = context.table.stream_wait_event(core.handle, event.handle_, 0)
    leave(context, previous)
    check(context, status, "stream_wait_event")
    if joins:
        add_member(plan, stream)
        plan.joined_at[core.id] = capture_words().call_site()
    clock = plan.clocks[core.id]
    for number, reached in event.clock.items():
        clock[number] = max(clock.get(number, 0), reached)
    return tick(plan, core)


# -- memory ------------------------------------------------------------------------------------------


cdef int hold_block(Plan plan, StreamCore core, Block block) except -1:
    """Keep memory for as long as the plan; what the stream recorded last uses it."""
    cdef dict uses = plan.held.get(block)
    if uses is None:
        plan.held[block] = uses = {}
        block.holds += 1
    uses[core.id] = plan.clocks[core.id][core.id]
    return 0


cdef int keep_for_plan(Plan plan, Block block) except -1:
    """Free memory of the driver's only with the plan: in a capture the stream frees nothing."""
    plan.held[block] = {}
    block.holds += 1
    block.abandoned = True
    pool = plan.context.pool
    (<Pool>pool).blocks_in_use += 1
    (<Pool>pool).bytes_in_use += block.bytes
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
    """Memory for work that is being captured: what the capture itself has let go of, or new."""
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
    """Whether the buffer is gone and the stream comes after everything captured that used it."""
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


# -- launches ----------------------------------------------------------------------------------------


cdef bint divert(
    Function function, StreamCore core, const unsigned int *geometry, unsigned int shared_bytes,
    PyObject **arguments, Py_ssize_t given, const uhal_launch_config *extended
) except -1:
    """A launch that the module or the state of the stream keeps from running; False: run it."""
    if function.module.closed or core.state.word & UHAL_STATE_REFUSES:
        refuse_closed(function, core)
    if core.state.word & UHAL_STATE_CAPTURING:
        capture_launch(function, core, geometry, shared_bytes, arguments, given, extended)
        return True
    refuse_barred(function.context, core, f"launch of {function.name}")
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
    cdef list values = [<object>arguments[index] for index in range(given)]
    cdef list followed = []     # (slot, parameter, offset)
    cdef list loose = None      # of a kernel without a signature: the bytes of each argument
    if function.count >= 0 and given != function.count:
        words().refuse_count(function, given)
    for index in range(given):
        values[index] = follow(plan, function, index, values[index], followed)
        refuse_foreign_memory(core, function, index, values[index])
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
        if extended != NULL:
            launch.extended = <uhal_launch_config *>malloc(sizeof(uhal_launch_config))
            if launch.extended == NULL:
                raise MemoryError
            launch.extended[0] = extended[0]
        packed.extended = launch.extended
        code = uhal_callsite(&launch.instruction_offset)
        give_to_driver(function, core, &launch, &packed)
        add_launch(
            plan.recording, &launch, function, <object>code if code != NULL else None
        )
        kept = True
    finally:
        c_free(packed.blocks)
        Py_XDECREF(packed.foreign)
        if not kept:
            drop_launch(&launch)
    plan.functions.append(function)
    tick(plan, core)
    for slot, parameter, offset in followed:
        use_slot(<PlanSlot>slot, plan.recording.count - 1, function, parameter, offset)
    for value in values:
        if isinstance(value, DeviceBuffer) and (<DeviceBuffer>value).block is not None:
            if slot_of(plan, <DeviceBuffer>value) is None:
                hold_block(plan, core, (<DeviceBuffer>value).block)
    return 0


cdef object follow(
    Plan plan, Function function, Py_ssize_t index, object value, list followed
):
    """The value of an argument that is a slot, or the argument itself; notes the slot it follows."""
    cdef PlanSlot slot = None
    cdef uint64_t offset = 0
    if isinstance(value, PlanSlot):
        slot = <PlanSlot>value
        if plan.slots.get(slot.name) is not slot:
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
    """Memory of another library would be waited for in its streams, which the plan cannot."""
    if value is None or isinstance(value, (DeviceBuffer, int, float)):
        return 0
    if exchange_of(type(value)).offer != OFFERS_NOTHING:
        refuse_in_capture(
            core, f"launch of {function.name}, argument {index}",
            f"a {type(value).__name__} is another library's memory, whose streams a plan cannot "
            "wait for",
            "describe it before the capture: DeviceBuffer.from_dlpack",
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
    """Put arguments that bring their own size where the launch keeps them."""
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
    """What is being captured needs its kernels; a plan that is ready refuses to be replayed."""
    for plan in module.context.captures:
        for function in (<Plan>plan).functions:
            if (<Function>function).module is module:
                refuse_capturing((<Plan>plan).core, "Module.close", NOT_CLOSED)
    return 0
