# Rules for streams during a capture: for streams that record, and for streams outside of it.


cdef Plan recording_of(StreamCore core, str call):
    """The plan that a stream records into; only the capturing thread may give the stream work."""
    cdef Plan plan = core.capture
    if plan.thread != PyThread_get_thread_ident():
        refuse_in_capture(
            core, call, "another thread" if thread_lives(plan.thread) else "a thread that ended"
        )
    return plan


cdef bint thread_lives(unsigned long ident) except -1:
    return any(thread.ident == ident for thread in _threading.enumerate())


cdef int refuse_in_capture(StreamCore core, str call, str why) except -1:
    """Raise what uhal/_capture_words.py says under `why`."""
    cdef Plan plan = core.capture
    capture_words().refuse_call(plan.name, plan.begun, core.id, call, why)
    return -1


cdef inline int refuse_capturing(StreamCore core, str call, str why) except -1:
    """Refuse a call on a stream that is being captured."""
    if core.state.word & UHAL_STATE_CAPTURING:
        refuse_in_capture(core, call, why)
    return 0


cdef inline int require_running(Context context, StreamCore core, str call, str why) except -1:
    """Refuse a call on a stream that is closed, being captured, or barred by a capture."""
    if core is None or core.state.word & UHAL_STATE_DIVERTS:
        refuse_not_running(context, core, call, why)
    return 0


cdef int refuse_not_running(Context context, StreamCore core, str call, str why) except -1:
    require_stream(context, core)
    refuse_capturing(core, call, why)
    return refuse_barred(context, core, call)


cdef bint is_legacy(Context context, StreamCore core) except -1:
    return not core.owned and context.backend.special_stream("legacy") == <uintptr_t>core.handle


cdef str why_barred(Plan plan, StreamCore core, bint this_thread):
    """Return why a stream outside the capture must not take work now, else None."""
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
    """Mark the streams that must check their work because of a capture."""
    cdef StreamCore core
    for core in context.streams.values():
        core.state.word &= ~<uint32_t>UHAL_STATE_BARRED
        for plan in context.captures:
            if why_barred(<Plan>plan, core, True) is not None:
                core.state.word |= UHAL_STATE_BARRED
    return 0


cdef int refuse_barred(Context context, StreamCore core, str call) except -1:
    """Refuse work on a barred stream unless another thread's capture bars it."""
    for plan in context.captures:
        reason = why_barred(
            <Plan>plan, core, (<Plan>plan).thread == PyThread_get_thread_ident()
        )
        if reason is not None:
            capture_words().refuse_barred(
                (<Plan>plan).name, (<Plan>plan).begun, core.id, call, reason
            )
    return 0


cdef int refuse_captured_handle(Plan plan, uintptr_t handle) except -1:
    """Refuse to make a capturing stream wait for work outside the capture."""
    for stream in plan.members:
        if <uintptr_t>(<Stream>stream).core.handle == handle:
            refuse_in_capture((<Stream>stream).core, "DeviceBuffer.__dlpack__", "nothing exported")
    return 0


# -- order between streams -------------------------------------------------------------------------
#
# Every stream counts its recorded operations, and the number of operations of every other stream
# that it has waited for. A stream has joined when the capture's own stream has waited for the
# joining stream's last operation.


cdef inline int tick(Plan plan, StreamCore core) except -1:
    cdef dict clock = plan.clocks[core.id]
    clock[core.id] += 1
    return 0


cdef int record_captured(Event event, StreamCore core) except -1:
    """`event.record` on a stream that is being captured."""
    cdef Plan plan = recording_of(core, "Event.record")
    if not plan.noted:
        native_event_record(event.context, event.handle_, core.handle)
    event.core = None
    event.captured = plan.recording
    event.clock = dict(plan.clocks[core.id])
    return 0


cdef int wait_captured(Stream stream, Event event) except -1:
    """`stream.wait_event` if the stream or the event belongs to a capture."""
    cdef StreamCore core = stream.core
    cdef Context context = stream.context
    cdef Plan plan = None
    cdef dict clock
    cdef bint joins = core.capture is None
    for found in context.captures:
        if (<Plan>found).recording is event.captured:
            plan = <Plan>found
    if plan is None and not joins:
        refuse_in_capture(core, "Stream.wait_event", "an event outside")
    if plan is None:
        capture_words().refuse_capture(
            "the event was recorded in a capture that is over, or on another device, and marks no "
            "work that runs; record it anew"
        )
    recording_of(plan.core, "Stream.wait_event")
    if not joins and core.capture is not plan:
        refuse_capturing(core, "Stream.wait_event", "one capture")
    if joins:
        if is_legacy(context, core):
            capture_words().refuse_capture("the legacy default stream cannot join a capture")
        if core.state.word & UHAL_STATE_BARRED:
            refuse_barred(context, core, "Stream.wait_event")
        settle_before_capture(context, core)
    if not plan.noted:
        native_stream_wait_event(context, core.handle, event.handle_, 0)
    if joins:
        add_member(plan, stream)
        plan.joined_at[core.id] = capture_words().call_site()
    clock = plan.clocks[core.id]
    for number, reached in event.clock.items():
        clock[number] = max(clock.get(number, 0), reached)
    return tick(plan, core)


cdef int require_joined(Plan plan) except -1:
    """Raise unless the capture's own stream has waited for every joined stream."""
    cdef dict reached = plan.clocks[plan.core.id]
    unjoined = [
        (number, plan.joined_at[number])
        for number, clock in plan.clocks.items()
        if number != plan.core.id and reached.get(number, 0) < clock[number]
    ]
    if unjoined:
        capture_words().refuse_unjoined(plan.name, unjoined)
    return 0
