# Waiting on the host, so that Ctrl-C ends it.
#
# Python calls signal handlers on its main thread, and never inside a native call. So a wait on the
# main thread checks now and then whether a handler wants to raise. The exception ends only the
# wait: the work continues and can be waited for again. Some libraries can check during a wait (the
# slots that end in `while`); for others see awaiter.h. Waits on other threads block in the driver.

cdef unsigned long main_thread = 0
cdef unsigned int main_thread_generation = 0


cdef inline bint signals_come_here() except -1:
    """Return whether Python calls signal handlers on this thread."""
    global main_thread, main_thread_generation
    if main_thread == 0 or main_thread_generation != uhal_fork_count:
        main_thread = _threading.main_thread().ident
        main_thread_generation = uhal_fork_count
    return PyThread_get_thread_ident() == main_thread


cdef int keep_waiting(void *raised) noexcept with gil:
    """Whether to continue a wait; an exception of a signal handler goes into the list `raised`."""
    try:
        PyErr_CheckSignals()
    except BaseException as failure:
        (<list>raised).append(failure)
        return 0
    return 1


cdef inline int end_of_wait(list raised) except -1:
    if raised:
        raise raised.pop()
    return 0


# -- streams and events ----------------------------------------------------------------------------


cdef int wait_for_stream(Context context, StreamCore core, const char **slot) except? -1:
    """Wait for all work of the stream; return the driver's answer and its slot.

    The device is current. Raises the exceptions of signal handlers.
    """
    cdef uhal_hot_table *table = context.table
    cdef void *handle = core.handle
    cdef int status
    cdef Watched watched
    cdef list raised = []
    slot[0] = "stream_synchronize"
    watch_wait(&watched, context, core, "wait for the stream")
    hold_core(core)
    try:
        if not signals_come_here():
            with nogil:
                status = table.stream_synchronize(handle)
        elif table.stream_synchronize_while != NULL:
            with nogil:
                status = table.stream_synchronize_while(handle, keep_waiting, <void *>raised)
            end_of_wait(raised)
        else:
            slot[0] = "stream_query"
            with nogil:
                status = uhal_look(table.stream_query, handle, table.not_ready)
            if status == table.not_ready:
                status = wait_for_end_of_stream(context, core, slot)
    finally:
        end_wait(&watched)
        let_go_core(context, core)
    return status


cdef int wait_for_end_of_stream(Context context, StreamCore core, const char **slot) except? -1:
    """Wait for a mark behind the stream's current work; others may enqueue more."""
    cdef LeftWait wait = left_wait(context)
    cdef int status = record_mark(context, core, &wait.mark, slot)
    try:
        if status == 0:
            status = wait_on_thread(context, wait.mark, wait, slot)
    finally:
        if wait.mark != NULL and wait.awaiter == NULL:
            context.idle_events.append(<uintptr_t>wait.mark)
    return status


cdef int wait_for_handle(
    Context context, void *event, bint look, LeftWait wait, const char **slot
) except? -1:
    """Wait for the event's last record; return the driver's answer and its slot.

    The device is current. `look`: poll for a moment first, although polling keeps a processor busy.
    Raises the exceptions of signal handlers; then `wait` says whether the event is still needed.
    """
    cdef uhal_hot_table *table = context.table
    cdef int status = table.not_ready
    cdef list raised = []
    slot[0] = "event_synchronize"
    if not signals_come_here():
        with nogil:
            status = table.event_synchronize(event)
    elif table.event_synchronize_while != NULL:
        with nogil:
            status = table.event_synchronize_while(event, keep_waiting, <void *>raised)
        end_of_wait(raised)
    else:
        if look:
            slot[0] = "event_query"
            with nogil:
                status = uhal_look(table.event_query, event, table.not_ready)
        if status == table.not_ready:
            status = wait_on_thread(context, event, wait, slot)
    return status


# -- by a thread of ours ---------------------------------------------------------------------------


@cython.final
cdef class LeftWait:
    """LeftWait()\n--\n
    A wait on a thread of ours.

    If the caller leaves, the event is kept until the wait ends.
    """

    cdef uhal_awaiter *awaiter      # null: the caller has not left
    cdef unsigned int generation
    cdef Context context
    cdef void *mark                 # an event of the lane's own, to be used again
    cdef Event event                # a user's


cdef list left_waits = []


cdef LeftWait left_wait(Context context):
    cdef LeftWait wait = LeftWait.__new__(LeftWait)
    wait.generation = uhal_fork_count
    wait.context = context
    return wait


cdef int wait_on_thread(
    Context context, void *event, LeftWait wait, const char **slot
) except? -1:
    cdef uhal_hot_table *table = context.table
    cdef void *token = context.token_pointer
    cdef uhal_awaiter *awaiter
    cdef list raised = []
    cdef int status = 0
    cdef int ended
    reap_left_waits()
    awaiter = uhal_awaiter_take()
    if awaiter == NULL:
        slot[0] = "event_query"
        with nogil:
            status = uhal_look_now_and_then(
                table.event_query, event, table.not_ready, keep_waiting, <void *>raised
            )
    else:
        slot[0] = "event_synchronize"
        with nogil:
            ended = uhal_awaiter_wait(
                awaiter, table, token, event, keep_waiting, <void *>raised, &status
            )
        if ended:
            uhal_awaiter_give(awaiter)
        else:
            wait.awaiter = awaiter
            left_waits.append(wait)
    end_of_wait(raised)
    return status


cdef int reap_left_waits() except -1:
    """Release the events of waits that have ended since their callers left."""
    cdef LeftWait wait
    for wait in list(left_waits):
        if wait.generation != uhal_fork_count:
            left_waits.remove(wait)     # the parent's thread continues there, not in this process
        elif uhal_awaiter_ended(wait.awaiter):
            left_waits.remove(wait)
            uhal_awaiter_give(wait.awaiter)
            if wait.mark != NULL:
                wait.context.idle_events.append(<uintptr_t>wait.mark)
            if wait.event is not None:
                end_wait_for(wait.event)
    return 0


# -- before native calls that no signal ends -------------------------------------------------------


cdef inline int settle_for_copy(Context context, StreamCore core, void *previous) except -1:
    """Wait for the stream before a blocking copy.

    Without this wait, the driver would wait in the copy. Inside the copy, no signal ends the wait,
    and other threads' calls may block, also calls that keep the GIL. NVIDIA's driver 580 behaves
    like this. If this wait ends early, the copy has not begun, and no memory of the caller is in
    use. The device is current. If this raises, `previous` becomes current again.
    """
    if context.table.stream_query(core.handle) == context.table.not_ready:
        try:
            synchronize_core(context, core)
        except BaseException:
            leave(context, previous)
            raise
    return 0


cdef int settle_for_free(Context context) except -1:
    """On the main thread, wait for the device before freeing its memory."""
    cdef StreamCore core
    if context.table.frees_wait and signals_come_here():
        for core in list(context.streams.values()):
            if not core.state.word & UHAL_STATE_CAPTURING:
                synchronize_core(context, core)
    return 0


cdef int wait_in_teardown(Context context, StreamCore core) except -1:
    """Let the stream's pending work finish; a lost device answers at once.

    The context is being destroyed, so nothing may hold the context, not even a waiting thread.
    """
    cdef uhal_hot_table *table = context.table
    cdef void *handle = core.handle
    cdef uhal_handle_call query = table.stream_query
    cdef uhal_handle_call synchronize = table.stream_synchronize
    cdef int (*synchronize_while)(void *, uhal_go_on, void *) noexcept nogil
    cdef list raised = []
    cdef bint here = signals_come_here()
    if core.owner is not None and core.completed == core.ticket:
        return 0
    if core.closed and not core.markers:
        return 0
    synchronize_while = table.stream_synchronize_while
    if core.closed:
        query = table.event_query
        handle = <void *><uintptr_t>core.markers[-1][1]
        synchronize = table.event_synchronize
        synchronize_while = table.event_synchronize_while
    with nogil:
        if not here:
            synchronize(handle)
        elif synchronize_while != NULL:
            synchronize_while(handle, keep_waiting, <void *>raised)
        else:
            uhal_look_now_and_then(query, handle, table.not_ready, keep_waiting, <void *>raised)
    return end_of_wait(raised)


cdef int warn_of_failed_end(str message, object failure) noexcept:
    """Report the exception that ended a destructor early. A Ctrl-C is raised again later."""
    warn_in_destructor(f"{message}: {str(failure) or type(failure).__name__}")
    if isinstance(failure, KeyboardInterrupt):
        PyErr_SetInterrupt()
    return 0
