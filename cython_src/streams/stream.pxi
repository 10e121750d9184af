# Streams as users hold them.


@cython.nonecheck(True)
@cython.no_gc_clear
cdef class Stream:
    """Stream(flags=0, priority=0, *, device=None)\n--\n
    An in-order queue of work on one device.

    Streams, the default stream included, are independent: only events order their work.
    `flags` and `priority` are CUDA's. `StreamFlags.DEFAULT` orders the stream against
    `Stream.legacy()`; a smaller priority number runs first and is clamped to the device's range.
    The stream owns its native handle, holds its device, and is closed when garbage collected.
    Closing returns at once. Pending work still runs, and threads that wait for it continue to wait.
    Any thread may use it.

    Raises InvalidHandleError after close, on a closed device, and in a forked child.
    """

    cdef Context context
    cdef StreamCore core
    cdef object owner
    cdef object __weakref__

    def __init__(self, flags=0, priority=0, *, device=None, **unknown):
        refuse_keywords("Stream", "flags, priority, device", unknown)
        if self.core is not None:
            raise RuntimeError("a Stream is initialised once")
        cdef Context context = context_for(type(self), device)
        cdef unsigned int bits = _enum_bits(flags, 1, "flags", "StreamFlags")
        least, greatest = context.backend.priority_range(context.ordinal)
        self.core = new_stream_core(
            context, bits, min(max(read_index("priority", priority), greatest), least)
        )
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
        """Return the device's default stream, which `stream=None` means.

        The default stream and the other streams do not wait for each other.
        """
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
        """Wrap another owner's stream; uhal never destroys it.

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
        if not 0 < address < 2**64:
            raise _errors.ArgumentValueError(
                f"handle: expected a stream's address, got {address}; CUDA's default streams are "
                "Stream.legacy() and Stream.per_thread()"
            )
        cdef Context context = context_for(cls, device)
        native, keeper = context.backend.foreign_stream(context.ordinal, address)
        cdef Stream stream = wrap_core(
            cls, context, list_core(context, <void *><uintptr_t>native, False)
        )
        stream.owner = owner, keeper
        return stream

    @property
    def handle(self):
        """The native handle as an integer; the stream owns it."""
        require_stream(self.context, self.core)
        return <uintptr_t>self.core.handle

    @property
    def __cuda_stream__(self):
        """CUDA's stream protocol: a method that gives (version, handle).

        AttributeError on other vendors, so that `hasattr` is False.
        """
        require_cuda_protocol(self.context, "__cuda_stream__")
        return self._cuda_stream

    def _cuda_stream(self):
        return (0, self.handle)

    @property
    def id(self):
        """A number that is unique among all streams of this process."""
        return made_core(self).id

    @property
    def device(self):
        """The device the stream belongs to."""
        return device_of(self.context)

    @property
    def flags(self):
        """The flags the stream was made with."""
        from uhal.flags import StreamFlags
        return StreamFlags(made_core(self).flags)

    @property
    def priority(self):
        """The stream's priority, after clamping."""
        return made_core(self).priority

    @property
    def closed(self):
        """True once closed."""
        return self.core is None or self.core.closed or self.core.abandoned

    def synchronize(self):
        """Wait for the stream's work so far; raise its faults.

        Raises `IndexError` once for an id out of bounds that a kernel of this stream may have met.
        """
        require_running(self.context, self.core, "Stream.synchronize", "nothing runs")
        synchronize_core(self.context, self.core)
        check_reports(self.context, self.core)

    def __await__(self):
        """Wait in a task of asyncio, as `synchronize` does; other tasks run meanwhile."""
        require_running(self.context, self.core, "await", "nothing runs")
        if not core_is_idle(self.context, self.core):
            marker_for(self.context, self.core, self.core.ticket)
        return await_work(self.context, self.core, self.core.ticket, None)

    def query(self):
        """Return True when nothing is pending; never waits."""
        require_running(self.context, self.core, "Stream.query", "nothing runs")
        return core_is_idle(self.context, self.core)

    def wait_event(self, event):
        """Order later work of this stream behind `event`.

        The host does not wait.
        """
        if not isinstance(event, Event):
            refuse_kind("wait_event", "an Event", event, "A stream's is stream.record_event().")
        cdef Event awaited = <Event>event
        require_stream(self.context, self.core)
        require_event(awaited)
        if awaited.captured is not None or self.core.state.word & UHAL_STATE_CAPTURING:
            wait_captured(self, awaited)
            return
        require_running(self.context, self.core, "Stream.wait_event", "an event outside")
        if awaited.context is not self.context:
            if awaited.context.backend_name != self.context.backend_name:
                raise _errors.InvalidHandleError(
                    f"wait_event: expected an event of {self.context.backend_name}, got one of "
                    f"{awaited.context.backend_name}. Call event.synchronize() instead."
                )
        native_stream_wait_event(self.context, self.core.handle, awaited.handle_, 0)
        if awaited.context is self.context:
            if awaited.moment is not None and awaited.core is not self.core:
                take_on_reports(self.core, awaited.core, awaited.moment, awaited.follows)
        self.core.ticket += 1

    def record_event(self, event=None):
        """Record `event`, or a new one, behind the stream's work.

        Returns the event.
        """
        if event is not None and not isinstance(event, Event):
            refuse_kind("record_event", "an Event", event, "Without one, a new Event is recorded.")
        require_stream(self.context, self.core)
        if event is None:
            event = Event(device=device_of(self.context))
        event.record(self)
        return event

    def add_callback(self, function, *arguments):
        """Call `function(*arguments)` on the dispatcher thread once the stream reaches this point.

        The stream does not wait for the function. An exception goes to sys.unraisablehook.
        """
        require_running(self.context, self.core, "Stream.add_callback", "no Python")
        if not callable(function):
            raise TypeError(f"function: expected a callable, got {type(function).__name__}")
        start_dispatcher()
        cdef uhal_callback *callback = uhal_callback_new(
            <PyObject *>function, <PyObject *>arguments
        )
        if callback == NULL:
            raise MemoryError
        cdef void *previous = enter(self.context)
        cdef int status
        hold_core(self.core)
        with nogil:
            status = self.context.table.stream_callback(
                self.core.handle, uhal_callback_post, callback
            )
        if status == 0:
            self.core.ticket += 1
        let_go_core(self.context, self.core)
        leave(self.context, previous)
        if status != 0:
            uhal_callback_delete(callback)
            raise_native(self.context, status, "stream_callback")

    def close(self):
        """Destroy the native stream; pending work still runs. Closing twice is fine.

        The device's default stream and streams owned by others stay open natively.
        """
        if self.closed or self.core is self.context.default_core:
            return
        if self.core.state.word & UHAL_STATE_FORKED:
            return
        refuse_capturing(self.core, "Stream.close", "nothing closes")
        close_core(self.context, self.core)

    def capture(self, name=None):
        """Record the work of a `with` block, instead of running it.

        `with stream.capture() as plan:` records; `plan.replay()` then runs the whole plan, as often
        as wanted. `name` is for messages. An exception in the block abandons the capture.

        Raises CaptureError when the stream is being captured already, NotSupportedError where the
        driver has no graphs.
        """
        if name is not None and not isinstance(name, str):
            refuse_kind("capture, name", "a str", name, "It is for messages.")
        require_stream(self.context, self.core)
        return Capture(self, name)

    def __eq__(self, other):
        """Return whether both are the same native stream, open or closed."""
        return isinstance(other, Stream) and is_same_stream(self.core, (<Stream>other).core)

    def __hash__(self):
        cdef StreamCore core = made_core(self)
        return hash(core.id if core.owned else <uintptr_t>core.handle)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __reduce__(self):
        refuse_pickle(
            self,
            "a queue",
            "Send the device; make a Stream there.",
        )

    def __repr__(self):
        if self.core is None:
            return f"<{type(self).__name__}, not made>"
        state = " closed" if self.closed else ""
        return (
            f"<{type(self).__name__} {self.core.id} on "
            f"{self.context.backend_name}:{self.context.ordinal}{state}>"
        )


cdef inline StreamCore made_core(Stream stream):
    if stream.core is None:
        refuse_unmade()
    return stream.core


cdef Stream wrap_core(object cls, Context context, StreamCore core):
    cdef Stream stream = cls.__new__(cls)
    stream.context = context
    stream.core = core
    return stream


cdef bint is_same_stream(StreamCore one, StreamCore other) noexcept:
    """Return whether both are one native stream; an owned handle may be reused after its close."""
    if one is other:
        return True
    if one is None or other is None or one.owned or other.owned:
        return False
    return one.handle == other.handle


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
    """Return the core of `stream`, the default stream's for None; refuse an unusable stream."""
    cdef StreamCore foreign
    if stream is None:
        if context.default_core.state.word & UHAL_STATE_BARRED:
            refuse_barred(context, context.default_core, "work without stream=")
        return context.default_core
    if not isinstance(stream, Stream):
        foreign = foreign_core(context, stream)
        if foreign is not None:
            require_stream(context, foreign)
            return foreign
        advice = (
            context.backend.stream_refusal or "Stream.from_handle wraps other libraries' streams"
        )
        raise _errors.ArgumentTypeError(
            f"stream: expected a uhal.Stream or None, got {type(stream).__name__}; {advice}"
        )
    require_stream((<Stream>stream).context, (<Stream>stream).core)
    if (<Stream>stream).context is not context:
        raise _errors.InvalidHandleError(
            f"stream: expected one of {context.backend_name}:{context.ordinal}, got one of "
            f"{(<Stream>stream).context.backend_name}:{(<Stream>stream).context.ordinal}"
        )
    if (<Stream>stream).core.state.word & UHAL_STATE_BARRED:
        refuse_barred(context, (<Stream>stream).core, "work on it")
    return (<Stream>stream).core


cdef unsigned int _enum_bits(object flags, unsigned int allowed, str argument, str kind) except? 0:
    if isinstance(flags, bool) or not isinstance(flags, int):
        raise _errors.ArgumentTypeError(
            f"{argument}: expected {kind}, got {type(flags).__name__}. Pass a device as device=."
        )
    if not 0 <= flags <= allowed:   # `allowed` is 2**n - 1, so this refuses any other bit
        raise _errors.ArgumentValueError(f"{argument}: expected {kind}, got {flags!r}")
    return flags
