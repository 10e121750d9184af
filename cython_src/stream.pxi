# Streams: an in-order queue, the count of what was put into it, and what is known to be done.
#
# Every operation takes the next ticket of its stream. `completed` is the last ticket known to be
# done; it moves when somebody waits or asks. Stream ids are never reused, so a stamp (id, ticket)
# whose stream is no longer listed is complete.

cdef uint64_t next_stream_id = 1


@cython.final
@cython.no_gc_clear
cdef class StreamCore:
    """The native half of a stream. It holds no Context: the Context lists it."""

    cdef void *handle
    cdef uint64_t id
    cdef uint64_t ticket
    cdef uint64_t completed
    cdef uhal_state *state
    cdef uhal_ledger *ledger
    cdef bint owned
    cdef bint closed
    cdef unsigned int flags
    cdef int priority
    cdef list markers       # [(ticket, event handle)], oldest first
    cdef list held          # [(ticket, object)] memory pending work still reads or writes
    cdef object owner       # of another library's stream: the object whose stream it is
    cdef uint32_t *mark_word   # pinned: low half of the last launch ticket the device has passed
    cdef unsigned int launches_since_mark

    def __dealloc__(self):
        uhal_ledger_delete(self.ledger)
        uhal_state_delete(self.state)


cdef StreamCore list_core(Context context, void *handle, bint owned):
    """Enter a native stream into the context's books."""
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
    context.streams[core.id] = core
    return core


cdef StreamCore new_stream_core(Context context, unsigned int flags, int priority):
    cdef void *handle = NULL
    cdef void *previous = enter(context)
    cdef int status = context.table.stream_create(&handle, flags, priority)
    leave(context, previous)
    check(context, status, "stream_create")
    cdef StreamCore core = list_core(context, handle, True)
    core.flags = flags
    core.priority = priority
    return core


cdef inline int require_stream(Context context, StreamCore core) except -1:
    if core.state.word & UHAL_STATE_REFUSES:
        refuse_stream(context, core)
    return 0


cdef int refuse_stream(Context context, StreamCore core) except -1:
    require_usable(context)
    raise _errors.InvalidHandleError(
        f"stream {core.id} of {context.backend_name}:{context.ordinal} is closed"
    )


# -- what is done ----------------------------------------------------------------------------------


cdef int note_completed(StreamCore core, uint64_t ticket) except -1:
    """Record that everything up to `ticket` is done, and let go of what was held for it."""
    cdef Py_ssize_t done
    if ticket > core.completed:
        core.completed = ticket
    if core.held:
        done = 0
        for held_until, _ in core.held:
            if held_until > core.completed:
                break
            done += 1
        del core.held[:done]
    return 0


cdef bint core_is_idle(Context context, StreamCore core) except -1:
    """Ask the driver whether the stream has nothing pending. Not during a capture."""
    cdef uint64_t ticket = core.ticket
    cdef int status
    cdef void *previous
    if core.completed == ticket and not core.held:
        return True
    if core.closed:
        poll_markers(context, core)
        return core.completed == ticket
    if core.state.word & UHAL_STATE_CAPTURING:
        return False
    previous = enter(context)
    status = context.table.stream_query(core.handle)
    leave(context, previous)
    if status == 0:
        note_completed(core, ticket)
        return True
    if status != context.table.not_ready:
        raise_native(context, status, "stream_query")
    return False


cdef bint is_complete(Context context, uint64_t stream_id, uint64_t ticket, bint ask) except -1:
    """Whether the work a stamp names is done; `ask` the driver when it is not known to be."""
    found = context.streams.get(stream_id)
    if found is None:
        return True
    cdef StreamCore core = <StreamCore>found
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
    cdef void *previous
    while core.markers:
        ticket, handle = core.markers[0]
        previous = enter(context)
        status = context.table.event_query(<void *><uintptr_t>handle)
        leave(context, previous)
        if status == context.table.not_ready:
            break
        check(context, status, "event_query")
        core.markers.pop(0)
        context.idle_events.append(handle)
        note_completed(core, ticket)
    return 0


cdef void *marker_for(Context context, StreamCore core, uint64_t ticket) except NULL:
    """An event that is done once `ticket` is; recorded now when there is none yet."""
    cdef void *event = NULL
    cdef void *previous
    cdef int status = 0
    for marked, handle in core.markers:
        if marked >= ticket:
            return <void *><uintptr_t>handle
    previous = enter(context)
    if context.idle_events:
        event = <void *><uintptr_t>context.idle_events.pop()
    else:
        slot = "event_create"
        status = context.table.event_create(&event, EVENT_DISABLE_TIMING)
    if status == 0:
        slot = "event_record"
        status = context.table.event_record(event, core.handle)
    leave(context, previous)
    if status != 0:
        if event != NULL:
            context.idle_events.append(<uintptr_t>event)
        raise_native(context, status, slot)
    core.markers.append((core.ticket, <uintptr_t>event))
    return event


cdef int recycle_markers(Context context, StreamCore core) except -1:
    for _, handle in core.markers:
        context.idle_events.append(handle)
    core.markers.clear()
    return 0


cdef int synchronize_markers(Context context, StreamCore core) except -1:
    cdef void *event
    cdef int status
    cdef void *previous
    if core.markers:
        ticket, handle = core.markers[-1]
        event = <void *><uintptr_t>handle
        previous = enter(context)
        with nogil:
            status = context.table.event_synchronize(event)
        leave(context, previous)
        check(context, status, "event_synchronize")
        note_completed(core, ticket)
    return 0


cdef int synchronize_core(Context context, StreamCore core) except -1:
    """Wait on the host until everything put into the stream so far is done."""
    cdef uint64_t ticket = core.ticket
    cdef int status
    cdef void *previous
    if core.closed:
        return synchronize_markers(context, core)
    if core.owner is not None and core.completed == ticket:
        return 0  # its owner may have destroyed it by now
    previous = enter(context)
    # asking first spares an idle stream the release of the GIL
    slot = "stream_query"
    status = context.table.stream_query(core.handle)
    if status == context.table.not_ready:
        slot = "stream_synchronize"
        with nogil:
            status = context.table.stream_synchronize(core.handle)
    leave(context, previous)
    check(context, status, slot)
    note_completed(core, ticket)
    return 0


cdef int wait_for(Context context, StreamCore waiting, uint64_t stream_id, uint64_t ticket) except -1:
    """Make later work of `waiting` start only after (stream_id, ticket). Nothing blocks."""
    cdef void *event
    cdef void *previous
    cdef int status
    if stream_id == waiting.id or is_complete(context, stream_id, ticket, True):
        return 0
    event = marker_for(context, <StreamCore>context.streams[stream_id], ticket)
    previous = enter(context)
    status = context.table.stream_wait_event(waiting.handle, event, 0)
    leave(context, previous)
    return check(context, status, "stream_wait_event")


cdef int reap_streams(Context context) except -1:
    """Forget closed streams whose work is done."""
    cdef StreamCore core
    for core in list(context.streams.values()):
        if core.closed and core_is_idle(context, core):
            forget_core(context, core)
    return 0


cdef int forget_core(Context context, StreamCore core) except -1:
    """Take a closed stream with nothing pending out of the books."""
    recycle_markers(context, core)
    if core.mark_word != NULL:
        context.table.host_free(core.mark_word)
        core.mark_word = NULL
    context.streams.pop(core.id, None)
    return 0


cdef int close_core(Context context, StreamCore core) except -1:
    """Destroy the native stream; what is pending in it still runs."""
    if core.closed:
        return 0
    try:
        if not context.state.word & UHAL_STATE_LOST and not core_is_idle(context, core):
            marker_for(context, core, core.ticket)
    finally:
        # Whatever the driver answered, the handle goes.
        end_core(context, core)
    if not context.state.word & UHAL_STATE_LOST:
        reap_streams(context)
    return 0


cdef int end_core(Context context, StreamCore core) except -1:
    cdef bint lost = context.state.word & UHAL_STATE_LOST
    cdef void *previous = NULL
    cdef int status
    core.closed = True
    core.state.word |= UHAL_STATE_CLOSED
    if not core.owned:
        return 0
    live.streams -= 1
    if not lost:
        previous = enter(context)
    status = context.table.stream_destroy(core.handle)
    if lost:
        return 0
    leave(context, previous)
    return check(context, status, "stream_destroy")


# -- rare things the state word asks for -----------------------------------------------------------


cdef int after_launch(Context context, StreamCore core) except -1:
    """UHAL_LAUNCH_BLOCKING waits for the launch just made; UHAL_LAUNCH_MARKS counts it."""
    cdef void *pinned = NULL
    if core.state.word & UHAL_STATE_BLOCKING:
        synchronize_core(context, core)
    if core.state.word & UHAL_STATE_MARKING:
        core.launches_since_mark += 1
        if core.launches_since_mark >= context.launch_marks:
            core.launches_since_mark = 0
            if core.mark_word == NULL:
                check(context, context.table.host_alloc(&pinned, 4, HOST_ALLOC_MAPPED), "host_alloc")
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


# -- public ------------------------------------------------------------------------------------------


@cython.no_gc_clear
cdef class Stream:
    """An in-order queue of work on one device.

    `flags` and `priority` are CUDA's; a smaller priority number runs first and is clamped to the
    device's range. The stream owns its native handle, holds its device, and is closed when
    garbage collected. Closing returns at once; what is pending still runs. Any thread may use it.

    Raises InvalidHandleError after close, on a closed device, and in a forked child.
    """

    cdef Context context
    cdef StreamCore core
    cdef object owner
    cdef object __weakref__

    def __init__(self, flags=0, int priority=0, *, device=None):
        if self.core is not None:
            raise RuntimeError("a Stream is initialised once")
        cdef Context context = context_for(type(self), device)
        cdef unsigned int bits = _enum_bits(flags, 1, "flags", "StreamFlags")
        least, greatest = context.backend.priority_range(context.ordinal)
        self.core = new_stream_core(context, bits, min(max(priority, greatest), least))
        self.context = context
        live.streams += 1

    def __dealloc__(self):
        if self.core is None or self.core.closed or self.core is self.context.default_core:
            return
        if exiting or self.core.state.word & UHAL_STATE_FORKED:
            live.streams -= self.core.owned
            return
        try:
            close_core(self.context, self.core)
        except BaseException as failure:
            warn_in_destructor(f"closing stream {self.core.id}: {failure}")

    @classmethod
    def default(cls, device=None):
        """Return the device's own blocking stream: what `stream=None` means everywhere."""
        cdef Context context = context_for(cls, device)
        return wrap_core(cls, context, context.default_core)

    @classmethod
    def legacy(cls, device=None):
        """Return CUDA's legacy default stream; NotSupportedError on a vendor without one."""
        return special_stream(cls, device, "legacy")

    @classmethod
    def per_thread(cls, device=None):
        """Return CUDA's per-thread default stream; NotSupportedError on a vendor without one."""
        return special_stream(cls, device, "per_thread")

    @classmethod
    def from_handle(cls, handle, *, device=None, owner=None):
        """Wrap a stream somebody else owns; it is never destroyed by us.

        `handle` is an int, or an object with `__cuda_stream__`, or torch's (`cuda_stream`), CuPy's
        (`ptr`) or HIP's (`handle`) stream. The object, or `owner`, is kept alive.
        """
        address = handle
        if isinstance(handle, bool) or not isinstance(handle, int):
            address = stream_handle(handle)
            owner = handle if owner is None else owner
        if address is None:
            raise _errors.ArgumentTypeError(
                "handle: expected an int or a stream object (with __cuda_stream__, "
                f"cuda_stream, ptr or handle), got {type(handle).__name__}"
            )
        if not address:
            raise _errors.ArgumentValueError(
                "handle: expected a stream's address, got 0; CUDA's default streams are "
                "Stream.legacy() and Stream.per_thread()"
            )
        cdef Context context = context_for(cls, device)
        cdef Stream stream = wrap_core(
            cls, context, list_core(context, <void *><uintptr_t>address, False)
        )
        stream.owner = owner
        return stream

    @property
    def handle(self):
        """The native handle as an integer; it stays ours."""
        require_stream(self.context, self.core)
        return <uintptr_t>self.core.handle

    @property
    def __cuda_stream__(self):
        """CUDA's stream protocol: a method that gives (version, handle).

        AttributeError on other vendors, so that `hasattr` tells.
        """
        require_cuda_protocol(self.context, "__cuda_stream__")
        return self._cuda_stream

    def _cuda_stream(self):
        return (0, self.handle)

    @property
    def id(self):
        """A number no other stream of this process ever has."""
        return self.core.id

    @property
    def device(self):
        """The device the stream belongs to."""
        return device_of(self.context)

    @property
    def flags(self):
        """The flags it was made with."""
        from uhal.flags import StreamFlags
        return StreamFlags(self.core.flags)

    @property
    def priority(self):
        """The priority it runs with, after clamping."""
        return self.core.priority

    @property
    def closed(self):
        """True once closed."""
        return self.core.closed

    def synchronize(self):
        """Wait until everything put into the stream so far is done; raise a fault it met."""
        require_stream(self.context, self.core)
        synchronize_core(self.context, self.core)

    def query(self):
        """Return True when nothing is pending; never waits."""
        require_stream(self.context, self.core)
        return core_is_idle(self.context, self.core)

    def wait_event(self, Event event not None):
        """Start later work of this stream only after `event`; the host does not wait."""
        require_stream(self.context, self.core)
        require_event(event)
        if event.context is not self.context:
            if event.context.backend_name != self.context.backend_name:
                raise _errors.InvalidHandleError(
                    f"a stream of {self.context.backend_name} cannot wait for an event of "
                    f"{event.context.backend_name}; synchronize the event on the host"
                )
        cdef void *previous = enter(self.context)
        cdef int status = self.context.table.stream_wait_event(self.core.handle, event.handle_, 0)
        leave(self.context, previous)
        check(self.context, status, "stream_wait_event")
        self.core.ticket += 1

    def record_event(self, Event event=None):
        """Record `event`, or a new one, after what is in the stream now, and return it."""
        require_stream(self.context, self.core)
        if event is None:
            event = Event(device=device_of(self.context))
        event.record(self)
        return event

    def add_callback(self, function, *arguments):
        """Call `function(*arguments)` on the dispatcher thread once the stream gets there.

        The stream goes on without waiting for it. An exception goes to sys.unraisablehook.
        """
        require_stream(self.context, self.core)
        if not callable(function):
            raise TypeError(f"function: expected a callable, got {type(function).__name__}")
        start_dispatcher()
        cdef uhal_callback *callback = uhal_callback_new(<PyObject *>function, <PyObject *>arguments)
        if callback == NULL:
            raise MemoryError
        cdef void *previous = enter(self.context)
        cdef int status
        with nogil:
            status = self.context.table.stream_callback(
                self.core.handle, uhal_callback_post, callback
            )
        leave(self.context, previous)
        if status != 0:
            uhal_callback_delete(callback)
            raise_native(self.context, status, "stream_callback")
        self.core.ticket += 1

    def close(self):
        """Destroy the native stream; pending work still runs. Closing twice is fine.

        The device's default stream and streams owned by others stay open natively.
        """
        if self.core.closed or self.core is self.context.default_core:
            return
        if self.core.state.word & UHAL_STATE_FORKED:
            return
        close_core(self.context, self.core)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __repr__(self):
        state = " closed" if self.core.closed else ""
        return (
            f"<{type(self).__name__} {self.core.id} on "
            f"{self.context.backend_name}:{self.context.ordinal}{state}>"
        )


cdef Stream wrap_core(object cls, Context context, StreamCore core):
    cdef Stream stream = cls.__new__(cls)
    stream.context = context
    stream.core = core
    return stream


cdef Stream special_stream(object cls, object device, str kind):
    cdef Context context = context_for(cls, device)
    handle = context.backend.special_stream(kind)
    if handle is None:
        raise _errors.NotSupportedError(
            f"{context.backend_name} has no {kind} stream; Stream.default() is the device's own",
            backend=context.backend_name,
        )
    return wrap_core(cls, context, list_core(context, <void *><uintptr_t>handle, False))


cdef StreamCore core_for(Context context, object stream):
    """The core of `stream`, or the default one for None; refused when it cannot be used here."""
    if stream is None:
        return context.default_core
    cdef StreamCore foreign
    if not isinstance(stream, Stream):
        foreign = foreign_core(context, stream)
        if foreign is not None:
            require_stream(context, foreign)
            return foreign
        raise _errors.ArgumentTypeError(
            f"stream: expected a uhal.Stream or None, got {type(stream).__name__}; "
            "Stream.from_handle wraps other libraries' streams"
        )
    require_stream((<Stream>stream).context, (<Stream>stream).core)
    if (<Stream>stream).context is not context:
        raise _errors.InvalidHandleError(
            f"stream: expected one of {context.backend_name}:{context.ordinal}, got one of "
            f"{(<Stream>stream).context.backend_name}:{(<Stream>stream).context.ordinal}"
        )
    return (<Stream>stream).core


cdef unsigned int _enum_bits(object flags, unsigned int allowed, str argument, str kind) except? 0:
    if isinstance(flags, bool) or not isinstance(flags, int):
        raise _errors.ArgumentTypeError(
            f"{argument}: expected {kind}, got {type(flags).__name__}"
        )
    if flags < 0 or int(flags) & ~allowed:
        raise _errors.ArgumentValueError(f"{argument}: expected {kind}, got {flags!r}")
    return flags


# -- host callbacks --------------------------------------------------------------------------------

cdef object dispatcher = None
cdef unsigned int dispatcher_generation = 0


cdef int start_dispatcher() except -1:
    global dispatcher, dispatcher_generation
    if dispatcher is not None and dispatcher_generation == uhal_fork_count:
        return 0
    if dispatcher_generation != uhal_fork_count:
        uhal_callback_reset()
    dispatcher_generation = uhal_fork_count
    dispatcher = _threading.Thread(target=_dispatch, name="uhal callbacks", daemon=True)
    dispatcher.start()
    return 0


cdef int stop_dispatcher() except -1:
    """Let posted callbacks finish, then end the thread. A callback that hangs is left behind."""
    global dispatcher
    cdef uhal_callback *stop
    if dispatcher is not None and dispatcher_generation == uhal_fork_count:
        stop = uhal_callback_new(NULL, NULL)
        if stop != NULL:
            uhal_callback_post(stop)
            dispatcher.join(EXIT_DEADLINE_SECONDS)
        dispatcher = None
    return 0


def _dispatch():
    cdef uhal_callback *callback
    while True:
        with nogil:
            callback = uhal_callback_take()
        if callback.function == NULL:
            uhal_callback_delete(callback)
            return
        function = <object>callback.function
        arguments = <object>callback.arguments
        uhal_callback_delete(callback)
        try:
            function(*arguments)
        except BaseException as failure:
            PyErr_SetObject(type(failure), failure)
            PyErr_WriteUnraisable(function)
        function = arguments = None
