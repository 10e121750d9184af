# A capture: a stream, and the streams that join it, record their work into a plan.
#
# Recorded work takes no ticket and leaves no stamp, because it does not run. The plan holds the
# memory that recorded work uses. Calls that would invalidate the driver's capture are refused
# before the driver sees them.

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
    """Capture(stream, name=None)\n--\n
    `with stream.capture() as plan:` records the work of its block.

    A Capture that is dropped before the end of its block abandons the plan."""

    cdef Stream stream
    cdef str name
    cdef Plan plan

    def __cinit__(self, Stream stream not None, name=None):
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


# -- beginning and ending --------------------------------------------------------------------------


cdef Plan begin_capture(Stream stream, object name):
    cdef Context context = stream.context
    cdef StreamCore core = stream.core
    cdef Plan plan
    cdef void *previous
    require_stream(context, core)
    if core.state.word & UHAL_STATE_CAPTURING:
        refuse_capturing(core, "Stream.capture", "one capture")
    if is_legacy(context, core):
        capture_words().refuse_capture(
            "the legacy default stream cannot be captured; capture a Stream of your own"
        )
    if core is context.default_core:
        capture_words().refuse_capture(
            "the default stream cannot be captured, for it serves every call without stream=; "
            "capture a Stream of your own"
        )
    plan = new_plan(context, core, name, capture_words().call_site())
    settle_before_capture(context, core)
    previous = enter(context)
    try:
        plan.noted = not context.backend.begin_capture(<uintptr_t>core.handle)
    finally:
        leave(context, previous)
    plan.stream = stream
    plan.state = PLAN_RECORDING
    live.plans += 1
    try:
        context.captures.append(plan)
        add_member(plan, stream)
    except BaseException:
        abandon_capture(plan)
        raise
    return plan


cdef inline bint is_noted(StreamCore core) noexcept:
    """Whether the lane records work that the vendor's library would run."""
    return core.capture is not None and core.capture.noted


cdef int settle_before_capture(Context context, StreamCore core) except -1:
    """Record a marker for pending work now: a capture allows neither markers nor queries."""
    if not core_is_idle(context, core):
        marker_for(context, core, core.ticket)
    return 0


cdef int add_member(Plan plan, Stream stream) except -1:
    """Let a stream record into the plan."""
    cdef StreamCore core = stream.core
    plan.clocks[core.id] = {core.id: 0}
    plan.members.append(stream)
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
    plan.members.clear()
    if plan in plan.context.captures:
        plan.context.captures.remove(plan)
    return bar_streams(plan.context)


cdef int end_capture(Plan plan) except -1:
    """Make the plan ready to be replayed, or close it and raise the reason."""
    cdef Context context = plan.context
    cdef void *previous
    try:
        require_usable(context)
        require_joined(plan)
        require_slots(plan)
        previous = enter(context)
    except BaseException:
        abandon_capture(plan)
        raise
    try:
        try:
            if not plan.noted:
                end_native_capture(plan)
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


cdef int end_native_capture(Plan plan) except -1:
    """End the driver's capture; call it again if Python lacked memory for the first call."""
    try:
        plan.graph = plan.context.backend.end_capture(<uintptr_t>plan.core.handle)
    except _errors.DeviceError:
        raise
    except Exception:  # ctypes wraps MemoryError in its own error
        try:
            plan.graph = plan.context.backend.end_capture(<uintptr_t>plan.core.handle)
        except _errors.DeviceError:
            pass  # the first call reached the driver
        raise
    return 0


cdef int abandon_capture(Plan plan) except -1:
    """End the capture and discard the recording."""
    cdef Context context = plan.context
    cdef void *previous
    try:
        if not (
            plan.noted or exiting or context.state.word & (UHAL_STATE_FORKED | UHAL_STATE_LOST)
        ):
            previous = enter(context)
            try:
                end_native_capture(plan)
            except _errors.DeviceError:
                pass  # unjoined or invalid: the capture is over anyway, without a graph
            finally:
                leave(context, previous)
    finally:
        leave_capture(plan)
        release_plan(plan)
    return 0
