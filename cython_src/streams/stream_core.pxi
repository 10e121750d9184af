# The native half of a stream: its handle, and the counts of enqueued and of completed operations.
#
# Every operation takes the next ticket of its stream. `completed` is the last ticket known to be
# done; waits and queries advance it. Stream ids are never reused, so a stamp (id, ticket) of a
# stream that is no longer listed is complete.

cdef uint64_t next_stream_id = 1


@cython.final
@cython.no_gc_clear
cdef class StreamCore:
    """StreamCore()\n--\n
    The native half of a stream.

    A core holds no Context, because the Context lists its cores.
    """

    cdef void *handle
    cdef uint64_t id
    cdef uint64_t ticket
    cdef uint64_t completed
    cdef uhal_state *state
    cdef uhal_ledger *ledger
    cdef bint owned
    cdef bint shared        # another object stands for the same native stream
    cdef bint closed
    cdef Py_ssize_t holds   # running native calls on it without the GIL
    cdef bint abandoned     # closed meanwhile: the last holder destroys it
    cdef unsigned int flags
    cdef int priority
    cdef list markers       # [(ticket, event handle)], oldest first
    cdef list held          # [(ticket, object)] memory pending work still reads or writes
    cdef object owner       # of another library's stream: the object whose stream it is
    cdef uint32_t *mark_word   # pinned: low half of the last launch ticket the device has passed
    cdef unsigned int launches_since_mark
    cdef Plan capture       # the plan it records into, else None
    # The last tickets of kernels that may report, indexed by bits: ids, assertions.
    cdef uint64_t reporting[4]
    cdef uint64_t settled   # the host has waited and looked for reports up to here
    cdef dict follows       # stream → how far it takes on that stream's reports, or None
    cdef uint64_t followed  # until this ticket is waited for
    cdef _Reported report   # the user's next wait raises it; or None

    def __dealloc__(self):
        uhal_ledger_delete(self.ledger)
        uhal_state_delete(self.state)


cdef StreamCore list_core(Context context, void *handle, bint owned):
    """Register a native stream in the context."""
    global next_stream_id
    cdef StreamCore core = StreamCore.__new__(StreamCore)
    core.state = uhal_state_new()
    if core.state == NULL:
        raise MemoryError
    core.state.word = context.state.word
    core.handle = handle
    core.owned = owned
    core.id = next_stream_id
    next_stream_id += 1
    core.markers = []
    core.held = []
    if owned and context.watches is not None:
        begin_reports(context, core)
    if not owned:
        for one in context.streams.values():
            (<StreamCore>one).shared |= (<StreamCore>one).handle == handle
    context.streams[core.id] = core
    if context.captures:
        bar_streams(context)
    return core


cdef StreamCore new_stream_core(Context context, unsigned int flags, int priority):
    cdef void *handle = NULL
    native_stream_create(context, &handle, flags, priority)
    cdef StreamCore core
    try:
        core = list_core(context, handle, True)
    except BaseException:
        native_stream_destroy(context, handle)
        raise
    core.flags = flags
    core.priority = priority
    return core


cdef inline int require_stream(Context context, StreamCore core) except -1:
    if core is None:
        refuse_unmade()
    if core.state.word & UHAL_STATE_REFUSES:
        refuse_stream(context, core)
    return 0


cdef int refuse_stream(Context context, StreamCore core) except -1:
    require_usable(context)
    raise _errors.InvalidHandleError(
        f"stream {core.id} of {context.backend_name}:{context.ordinal} is closed"
    )


# -- completed work --------------------------------------------------------------------------------


cdef int note_completed(StreamCore core, uint64_t ticket) except -1:
    """Record that all work up to `ticket` is done, and release the objects held for it."""
    cdef Py_ssize_t done
    if ticket > core.completed:
        core.completed = ticket
    if core.held:
        done = 0
        for held_until, memory in core.held:
            if held_until > core.completed:
                break
            if isinstance(memory, PinnedBlock):
                (<PinnedBlock>memory).pending -= 1
            done += 1
        del core.held[:done]
    return 0


cdef bint core_is_idle(Context context, StreamCore core) except -1:
    """Ask the driver whether the stream has nothing pending. Not during a capture."""
    cdef uint64_t ticket = core.ticket
    cdef int status
    if core.completed == ticket and not core.held:
        return True
    if core.closed:
        poll_markers(context, core)
        return core.completed == ticket
    if core.state.word & UHAL_STATE_CAPTURING:
        return False
    status = status_of_stream_query(context, core.handle)
    if status == 0:
        note_completed(core, ticket)
        return True
    if status != context.table.not_ready:
        raise_native(context, status, "stream_query")
    return False


cdef bint is_complete(Context context, uint64_t stream_id, uint64_t ticket, bint ask) except -1:
    """Return whether a stamp's work is done; query the driver if `ask`."""
    cdef StreamCore core = context.default_core
    # Most work is in the default stream, which needs no look-up.
    if core is None or core.id != stream_id or core.closed:
        found = context.streams.get(stream_id)
        if found is None:
            return True
        core = <StreamCore>found
    if core.completed >= ticket:
        return True
    if not ask:
        return False
    if core_is_idle(context, core):
        return True
    poll_markers(context, core)
    return core.completed >= ticket


cdef int poll_markers(Context context, StreamCore core) except -1:
    """Move `completed` up to the last marker the device has passed."""
    cdef int status
    while core.markers:
        ticket, handle = core.markers[0]
        status = status_of_event_query(context, <void *><uintptr_t>handle)
        if status == context.table.not_ready:
            break
        check(context, status, "event_query")
        core.markers.pop(0)
        context.idle_events.append(handle)
        note_completed(core, ticket)
    return 0


cdef void *marker_for(Context context, StreamCore core, uint64_t ticket) except NULL:
    """Return an event that completes after `ticket`; record one if none exists."""
    cdef void *event = NULL
    cdef void *previous
    cdef const char *slot
    cdef int status
    for marked, handle in core.markers:
        if marked >= ticket:
            return <void *><uintptr_t>handle
    previous = enter(context)
    status = record_mark(context, core, &event, &slot)
    leave(context, previous)
    if status != 0:
        if event != NULL:
            context.idle_events.append(<uintptr_t>event)
        raise_native(context, status, slot.decode())
    core.markers.append((core.ticket, <uintptr_t>event))
    return event


cdef int record_mark(
    Context context, StreamCore core, void **event, const char **slot
) except? -1:
    """Record a private event behind the stream's current work; the device is current."""
    cdef int status = 0
    if context.idle_events:
        event[0] = <void *><uintptr_t>context.idle_events.pop()
    else:
        slot[0] = "event_create"
        status = context.table.event_create(event, EVENT_DISABLE_TIMING)
    if status == 0:
        slot[0] = "event_record"
        status = context.table.event_record(event[0], core.handle)
    return status


cdef int recycle_markers(Context context, StreamCore core) except -1:
    for _, handle in core.markers:
        context.idle_events.append(handle)
    core.markers.clear()
    return 0


cdef int synchronize_markers(Context context, StreamCore core) except -1:
    cdef const char *slot = NULL
    cdef int status
    cdef void *previous
    if core.markers:
        ticket, handle = core.markers[-1]
        previous = enter(context)
        try:
            status = wait_for_handle(
                context, <void *><uintptr_t>handle, True, left_wait(context), &slot
            )
        finally:
            leave(context, previous)
        if status != 0:
            raise_native(context, status, slot.decode())
        note_completed(core, ticket)
    return 0


cdef int synchronize_core(Context context, StreamCore core) except -1:
    """Wait on the host until everything put into the stream so far is done."""
    cdef uint64_t ticket = core.ticket
    cdef int status
    cdef void *previous
    cdef const char *slot = "stream_query"
    if core.closed or core.state.word & UHAL_STATE_CAPTURING:
        return synchronize_markers(context, core)
    if core.owner is not None and core.completed == ticket:
        return 0  # its owner may have destroyed it by now
    previous = enter(context)
    # The query comes first: for an idle stream the GIL need not be released.
    status = context.table.stream_query(core.handle)
    if status == context.table.not_ready:
        try:
            status = wait_for_stream(context, core, &slot)
        except BaseException:
            leave(context, previous)
            raise
    leave(context, previous)
    if status != 0:
        raise_native(context, status, slot.decode())
    note_completed(core, ticket)
    return 0


cdef int wait_for(
    Context context, StreamCore waiting, uint64_t stream_id, uint64_t ticket
) except -1:
    """Make later work of `waiting` start only after (stream_id, ticket). Nothing blocks."""
    cdef void *event
    if stream_id == waiting.id:
        return 0
    if is_complete(context, stream_id, ticket, True):
        return 0
    event = marker_for(context, <StreamCore>context.streams[stream_id], ticket)
    return native_stream_wait_event(context, waiting.handle, event, 0)


cdef int reap_streams(Context context) except -1:
    """Forget closed streams whose work is done."""
    cdef StreamCore core
    for core in list(context.streams.values()):
        if core.closed and core_is_idle(context, core):
            forget_core(context, core)
    return 0


cdef int forget_core(Context context, StreamCore core) except -1:
    """Remove a closed stream with nothing pending from the context."""
    if context.watches is not None and core is not context.default_core:
        # The stream's work is done, and the default stream raises its reports.
        spread_reports(context)
        core.settled = core.ticket
        if context.default_core is not None and context.default_core.report is None:
            context.default_core.report = core.report
    recycle_markers(context, core)
    if core.mark_word != NULL:
        context.table.host_free(core.mark_word)
        core.mark_word = NULL
    context.streams.pop(core.id, None)
    return 0


cdef inline void hold_core(StreamCore core) noexcept:
    """Hold the native stream: another thread may close it while a call runs without the GIL."""
    core.holds += 1


cdef inline void let_go_core(Context context, StreamCore core) noexcept:
    """End a hold; destroy the native stream when it was closed meanwhile."""
    core.holds -= 1
    if core.abandoned and core.holds == 0:
        end_abandoned(context, core)


cdef void end_abandoned(Context context, StreamCore core) noexcept:
    """Destroy a stream after `close` has returned; warn of a failure."""
    if context.state.word & UHAL_STATE_FORKED or exiting:
        return
    try:
        close_core(context, core)
    except BaseException as failure:
        warn_in_destructor(f"closing stream {core.id}: {failure}")


cdef int close_core(Context context, StreamCore core) except -1:
    """Destroy the native stream once no call uses it; pending work still runs."""
    if core.closed:
        return 0
    if core.holds:
        core.state.word |= UHAL_STATE_CLOSED
        core.abandoned = True
        return 0
    try:
        if not context.state.word & UHAL_STATE_LOST and not core_is_idle(context, core):
            marker_for(context, core, core.ticket)
    finally:
        # The handle is dropped even if the driver returned an error.
        end_core(context, core)
    if not context.state.word & UHAL_STATE_LOST:
        reap_streams(context)
    return 0


cdef int end_core(Context context, StreamCore core) except -1:
    core.closed = True
    core.state.word |= UHAL_STATE_CLOSED
    if not core.owned:
        return 0
    live.streams -= 1
    if context.state.word & UHAL_STATE_LOST:
        context.table.stream_destroy(core.handle)  # a lost device answers with its error
        return 0
    return native_stream_destroy(context, core.handle)


# -- rare cases of the state word -----------------------------------------------------------


cdef int after_launch(Context context, StreamCore core) except -1:
    """UHAL_LAUNCH_BLOCKING waits for the launch just made; UHAL_LAUNCH_MARKS counts it."""
    cdef void *pinned = NULL
    cdef int status
    if core.state.word & UHAL_STATE_BLOCKING:
        synchronize_core(context, core)
    if core.state.word & UHAL_STATE_MARKING and not core.closed:
        core.launches_since_mark += 1
        if core.launches_since_mark >= context.launch_marks:
            core.launches_since_mark = 0
            if core.mark_word == NULL:
                status = context.table.host_alloc(&pinned, 4, HOST_ALLOC_MAPPED)
                check(context, status, "host_alloc")
                core.mark_word = <uint32_t *>pinned
                core.mark_word[0] = <uint32_t>core.completed
            check(
                context,
                context.table.memset_32(
                    <uint64_t><uintptr_t>core.mark_word, <uint32_t>core.ticket, 1, core.handle
                ),
                "memset_32",
            )
    return 0


cdef int read_mark(StreamCore core) except -1:
    """Move `completed` up to the last launch the device itself has marked."""
    cdef uint64_t marked
    if core.mark_word != NULL:
        marked = (core.ticket & ~<uint64_t>0xFFFFFFFF) | core.mark_word[0]
        if marked > core.ticket:
            marked -= <uint64_t>1 << 32
        if marked > core.completed:
            core.completed = marked
    return 0
