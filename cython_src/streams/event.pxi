# Events: a mark in a stream that can be waited for and timed.


@cython.nonecheck(True)
@cython.no_gc_clear
cdef class Event:
    """Event(flags=0, *, device=None)\n--\n
    A mark in a stream. Recording it again moves the mark.

    `flags` are CUDA's. The event owns its native handle and holds its device. It is closed when
    garbage collected, even if a stream or another thread still waits for it. Any thread may use it.

    Raises InvalidHandleError after close, on a closed device, and in a forked child.
    """

    cdef Context context
    cdef void *handle_
    cdef unsigned int bits
    cdef StreamCore core      # of the last record
    cdef uint64_t ticket
    cdef _Moment moment       # the stream's reporting kernels at the record
    cdef dict follows         # and the work it followed
    cdef Py_ssize_t waiting   # threads that wait for it without the GIL
    cdef void *abandoned      # the handle, once closed: the last waiter destroys it
    cdef Recording captured   # of the capture it was recorded in last, else None
    cdef dict clock           # and the work before it there
    cdef object __weakref__

    def __init__(self, flags=0, *, device=None, **unknown):
        refuse_keywords("Event", "flags, device", unknown)
        if self.context is not None:
            raise RuntimeError("an Event is initialised once")
        cdef Context context = context_for(type(self), device)
        self.bits = _enum_bits(flags, 7, "flags", "EventFlags")
        native_event_create(context, &self.handle_, self.bits)
        self.context = context
        live.events += 1

    def __dealloc__(self):
        if self.context is None or self.handle_ == NULL:
            return
        live.events -= 1
        if exiting or self.context.state.word & UHAL_STATE_FORKED:
            return
        try:
            destroy_event(self)
        except BaseException as failure:
            warn_in_destructor(f"closing an event: {failure}")

    @property
    def handle(self):
        """The native handle as an integer; the event owns it."""
        require_event(self)
        return <uintptr_t>self.handle_

    @property
    def device(self):
        """The device the event belongs to."""
        return device_of(self.context)

    @property
    def flags(self):
        """The flags the event was made with."""
        from uhal.flags import EventFlags
        return EventFlags(self.bits)

    @property
    def closed(self):
        """True once closed."""
        return self.handle_ == NULL

    def record(self, stream=None):
        """Record the event behind the current work of `stream`.

        The default is the default stream.

        On CUDA, `stream` may be another library's stream.
        """
        require_event(self)
        cdef StreamCore core = core_for(self.context, stream)
        if core.state.word & UHAL_STATE_CAPTURING:
            record_captured(self, core)
            return
        native_event_record(self.context, self.handle_, core.handle)
        core.ticket += 1
        self.captured = None
        self.core = core
        self.ticket = core.ticket
        self.moment = None if self.context.watches is None else moment_at(core, core.ticket)
        self.follows = core.follows

    def synchronize(self):
        """Wait on the host until the mark is passed.

        An event that was never recorded counts as passed.

        Raises `IndexError` once if a kernel of the recorded stream may have met an id out of
        bounds.
        """
        require_event(self)
        refuse_captured_event(self, "Event.synchronize")
        # Another thread may record the event elsewhere during this wait.
        cdef StreamCore core = self.core
        cdef uint64_t ticket = self.ticket
        cdef void *previous = enter(self.context)
        cdef int status = self.context.table.event_query(self.handle_)
        cdef const char *slot = "event_query"
        if status == self.context.table.not_ready:
            try:
                status = wait_for_event(self, &slot)
            except BaseException:
                leave(self.context, previous)
                raise
        leave(self.context, previous)
        if status != 0:
            raise_native(self.context, status, slot.decode())
        if core is not None:
            note_completed(core, ticket)
        check_reports(self.context, core)

    def __await__(self):
        """Wait in a task of asyncio, as `synchronize` does; other tasks run meanwhile."""
        require_event(self)
        refuse_captured_event(self, "await")
        if self.core is None:
            return iter(())
        return await_work(self.context, self.core, self.ticket, self)

    def query(self):
        """Return True if the mark is passed or never set; never waits."""
        require_event(self)
        refuse_captured_event(self, "Event.query")
        cdef int status = status_of_event_query(self.context, self.handle_)
        if status == self.context.table.not_ready:
            return False
        check(self.context, status, "event_query")
        if self.core is not None:
            note_completed(self.core, self.ticket)
        return True

    def elapsed_since(self, start):
        """Return the milliseconds from `start`'s mark to this event's mark.

        Both events must be recorded on this backend, with timing, and must be passed.
        """
        if not isinstance(start, Event):
            refuse_kind("elapsed_since", "an Event", start, "Pass the earlier event.")
        cdef float milliseconds = 0
        cdef Event event
        for role, event in (("start", start), ("end", self)):
            require_event(event)
            if event.context is not self.context:
                raise _errors.InvalidHandleError(
                    "elapsed_since: expected two events of one device, got "
                    f"{(<Event>start).context.backend_name}:{(<Event>start).context.ordinal} and "
                    f"{self.context.backend_name}:{self.context.ordinal}"
                )
            refuse_captured_event(event, "Event.elapsed_since")
            if event.bits & EVENT_DISABLE_TIMING:
                raise _errors.ArgumentValueError(
                    f"elapsed_since: the {role} event was made with EventFlags.DISABLE_TIMING"
                )
            if event.core is None:
                raise _errors.ArgumentValueError(
                    f"elapsed_since: the {role} event was never recorded; call record() first"
                )
            if not event.query():
                raise _errors.ArgumentValueError(
                    f"elapsed_since: the {role} event is still pending; synchronize it first"
                )
        native_event_elapsed(
            self.context, &milliseconds, (<Event>start).handle_, self.handle_
        )
        return milliseconds

    def close(self):
        """Destroy the native event; pending waits continue.

        Closing twice is fine.
        """
        if self.handle_ == NULL or self.context.state.word & UHAL_STATE_FORKED:
            return
        live.events -= 1
        destroy_event(self)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __reduce__(self):
        refuse_pickle(
            self,
            "a mark",
            "Make an Event there; processes wait for each other by their own means.",
        )

    def __repr__(self):
        if self.context is None:
            return f"<{type(self).__name__}, not made>"
        state = " closed" if self.handle_ == NULL else ""
        return (
            f"<{type(self).__name__} on {self.context.backend_name}:{self.context.ordinal}{state}>"
        )


cdef int wait_for_event(Event event, const char **slot) except? -1:
    """Wait for the event; another thread may close it meanwhile."""
    cdef LeftWait wait = left_wait(event.context)
    cdef Watched watched
    wait.event = event
    event.waiting += 1
    watch_wait(&watched, event.context, event.core, "wait for an event")
    try:
        return wait_for_handle(
            event.context, event.handle_, not event.bits & EVENT_BLOCKING_SYNC, wait, slot
        )
    finally:
        end_wait(&watched)
        if wait.awaiter == NULL:
            end_wait_for(event)


cdef int end_wait_for(Event event) except -1:
    """End a wait; the last wait destroys a closed event."""
    cdef void *handle = event.abandoned
    event.waiting -= 1
    if handle != NULL and event.waiting == 0:
        event.abandoned = NULL
        if event.context.state.word & UHAL_STATE_FORKED or exiting:
            return 0
        try:
            destroy_handle(event, handle)
        except BaseException as failure:
            warn_in_destructor(f"closing an event: {failure}")
    return 0


cdef int destroy_event(Event event) except -1:
    cdef void *handle = event.handle_
    event.handle_ = NULL
    if event.waiting:
        event.abandoned = handle
        return 0
    return destroy_handle(event, handle)


cdef int destroy_handle(Event event, void *handle) except -1:
    if event.context.state.word & UHAL_STATE_LOST:
        event.context.table.event_destroy(handle)  # a lost device answers with its error
        return 0
    return native_event_destroy(event.context, handle)


cdef int refuse_captured_event(Event event, str call) except -1:
    if event.captured is not None:
        capture_words().refuse_event(call, event.captured.name)
    return 0


cdef inline int require_event(Event event) except -1:
    if event.context is None or event.handle_ == NULL:
        raise _errors.InvalidHandleError("the event is closed")
    return require_usable(event.context)
