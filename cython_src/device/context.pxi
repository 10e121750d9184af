# An opened device: its streams, its pool and its state.


# Set when the process drains for exit. From then on the lane frees nothing native, because a driver
# may already be half gone: this leak is intended.
cdef bint exiting = False


@cython.final
cdef class _Watch:
    """A word, and the function that is called when kernels set the word."""
    cdef const volatile uint32_t *word
    cdef object report
    cdef int needs              # of the kernels that write it: NEEDS_CHECKING or NEEDS_HEARING
    cdef _Watch next


# no_gc, not no_gc_clear: for a Context in a garbage cycle, the collector would empty the dict of
# streams, which could then not be destroyed. A Context holds no objects of users, so no cycle
# passes through a Context.
@cython.final
@cython.no_gc
cdef class Context:
    """Context(backend, ordinal, token, limits)\n--\n
    An opened device.

    Streams, buffers and modules hold their context, which ends with the last of them.
    """

    cdef uhal_hot_table *table
    cdef void *token_pointer
    cdef uhal_state *state
    cdef readonly HotTable hot_table
    """The native functions for the device."""
    cdef readonly object backend
    """The `uhal.contract.Backend` that opened the device."""
    cdef readonly str backend_name
    """The backend's name."""
    cdef readonly int ordinal
    """The device's number in its backend, from 0."""
    cdef readonly object limits
    """What a launch may ask for: `uhal.contract.DeviceLimits`."""
    cdef readonly bint closed
    """Whether the device was closed."""
    cdef readonly str lost
    """The message of later calls once the device is lost, else None."""
    cdef dict streams       # id → StreamCore, closed ones too until their work is known complete
    cdef StreamCore default_core
    cdef Pool pool
    cdef list idle_events   # handles of recycled marker events
    cdef PinnedYard yard
    cdef list captures      # Plans being captured
    cdef dict foreign_streams   # handle → StreamCore of another library's stream
    cdef int dl_device_type     # DLPack's device of the memory; type 0: none
    cdef int dl_device_id
    cdef uint64_t numbered_bit  # this device's in `_Exchange.numbered`; 0 on the host
    cdef readonly object peers
    """Ordinals of devices whose memory this device's kernels may use."""
    cdef unsigned int launch_marks
    cdef _Watch watches      # linked list of host words through which kernels report
    cdef _Reported unclaimed  # an exception reported by kernels outside our streams, or None
    cdef object spreading     # a lock, held while reports are taken and given to streams
    cdef int spreads          # how many are in progress: the lock's holder may begin another
    cdef object observer    # the observer, called before work is enqueued
    cdef Py_ssize_t profiled    # its number in the current or last profile
    cdef object __weakref__

    def __cinit__(self, backend, int ordinal, uintptr_t token, limits):
        self.hot_table = backend.hot_table
        self.table = self.hot_table.table
        self.token_pointer = <void *>token
        self.backend = backend
        self.backend_name = backend.name
        self.ordinal = ordinal
        self.limits = limits
        self.streams = {}
        self.idle_events = []
        self.yard = PinnedYard.__new__(PinnedYard)
        self.captures = []
        self.foreign_streams = {}
        self.dl_device_type = backend.dlpack_device_type or 0
        # DLPack knows one CPU: every host device is memory of this process
        self.dl_device_id = 0 if self.dl_device_type == DL_CPU else ordinal
        self.numbered_bit = 0 if self.dl_device_type == DL_CPU else <uint64_t>1 << (ordinal % 64)
        self.peers = frozenset()
        self.launch_marks = int(_environment.read("UHAL_LAUNCH_MARKS"))
        blocking = _environment.read("UHAL_LAUNCH_BLOCKING") == "1"
        self.pool = Pool(
            _pool_mode(), memory_words().limit_from_environment(self.backend_name, ordinal)
        )
        # From here on, __dealloc__ tears the device down.
        self.state = uhal_state_new()
        if self.state == NULL:
            raise MemoryError
        if blocking:
            self.state.word |= UHAL_STATE_BLOCKING
        if self.launch_marks:
            self.state.word |= UHAL_STATE_MARKING
        if self.hot_table.runs_python:
            self.state.word |= UHAL_STATE_PYTHON
        live.contexts += 1
        released_tokens.discard(<uintptr_t>self.token_pointer)
        reap_closed()
        self.default_core = new_stream_core(self, 0, 0)
        contexts.add(self)
        _drain_at_exit()
        if profiling is not None:
            watch_device(profiling, self)

    @property
    def token(self):
        """The backend's token for this device, as the `bind` slot takes it."""
        return <uintptr_t>self.token_pointer

    def __dealloc__(self):
        if self.state == NULL:
            return
        live.contexts -= 1
        if not exiting and not (self.state.word & UHAL_STATE_FORKED):
            teardown(self)
        uhal_state_delete(self.state)

    def check_usable(self):
        """Raise if the device is closed, lost, or opened before a fork."""
        require_usable(self)

    @property
    def device(self):
        """The `Device` of this context."""
        return device_of(self)

    def enter(self):
        """Return a context manager that makes the device current on this thread."""
        require_usable(self)
        return _Entered(self)

    def synchronize(self):
        """Wait for every stream of the device; raise their errors."""
        require_usable(self)
        for plan in self.captures:
            refuse_capturing((<Plan>plan).core, "Device.synchronize", "nothing runs")
        synchronize_streams(self)

    def watch_reports(self, uintptr_t word, report, asserts=False):
        """Call `report` after a user's wait that finds a nonzero word.

        The word is in host memory. `report` sets it to 0 and returns triples: an exception or a
        warning, the native handle of the stream whose kernel reported, and the number of earlier
        launches in this stream. A graph is one launch. The reporting stream raises the exception
        once, and so does each stream that waited for the launch.

        If the handle is None, every possible source raises the exception: each stream that ran
        kernels of reporting modules since the host last waited for the stream. With `asserts`, the
        reporting modules are the modules with assertions. The word must exist until
        `unwatch_reports`, and `report` is held until then.
        """
        cdef _Watch watch = _Watch.__new__(_Watch)
        watch.word = <const volatile uint32_t *>word
        watch.report = report
        watch.needs = NEEDS_HEARING if asserts else NEEDS_CHECKING
        watch.next = self.watches
        if self.spreading is None:
            self.spreading = _threading.RLock()
        self.watches = watch

    def unwatch_reports(self, uintptr_t word):
        """Stop watching a word; a word that is not watched is ignored."""
        cdef _Watch before = None
        cdef _Watch watch = self.watches
        while watch is not None and <uintptr_t>watch.word != word:
            before, watch = watch, watch.next
        if watch is None:
            return
        if before is None:
            self.watches = watch.next
        else:
            before.next = watch.next

    def check_reports(self, stream=None):
        """Raise the reports of a stream's kernels.

        The host has waited for the stream.
        """
        check_reports(self, core_for(self, stream))

    def observe_work(self, observer):
        """Call `observer(kind, *details)` before work is enqueued on the device.

        None removes the observer.

        Kinds and details:

        * "launch": function, grid, block, shared bytes, arguments, whether it has further options.
        * "copy" and "copy_2d": destination, source.
        * "fill": buffer, bytes of the pattern, value.
        * "replay": plan.
        * "address": buffer, which lets others enqueue work.

        Launches of a sequence go to the recorder: see `set_recorder`. The observer runs in the
        thread that asks for the work; its exception refuses the work.
        """
        if observer is not None and self.observer is not None:
            raise RuntimeError("the device has an observer already; there is one at a time")
        self.observer = observer
        if observer is not None:
            mark_all(self, UHAL_STATE_OBSERVED)
        else:
            unmark_all(self, UHAL_STATE_OBSERVED)

    def pool_statistics(self):
        """Return bytes and counts of the pool by name."""
        return pool_statistics(self)

    def pool_owners(self):
        """Return the pool's live blocks with their owners.

        Each block is (bytes, bytes asked for, code object or None, offset in the code object).
        """
        return pool_owners(self)

    def reset_peak_statistics(self):
        """Set the pool's peak counters to the current use."""
        self.pool.peak_bytes_in_use = self.pool.bytes_in_use
        self.pool.peak_bytes_reserved = self.pool.bytes_reserved

    @property
    def memory_limit(self):
        """Most bytes the pool takes from the driver; None: no limit."""
        return None if self.pool.limit == NO_LIMIT else self.pool.limit

    @memory_limit.setter
    def memory_limit(self, limit):
        require_usable(self)
        memory_words().require_limit(limit)
        self.pool.limit = NO_LIMIT if limit is None else limit
        if self.pool.bytes_reserved > self.pool.limit:
            pool_empty_cache(self)

    def empty_cache(self):
        """Return unused pool segments to the driver; return the bytes freed."""
        require_usable(self)
        return pool_empty_cache(self)

    @property
    def capturing(self):
        """Whether the calling thread is capturing a stream of the device."""
        return any(
            [(<Plan>plan).thread == PyThread_get_thread_ident() for plan in self.captures]
        )

    def note_peer(self, ordinal):
        """Note that kernels of this device may use device `ordinal`'s memory."""
        self.peers = self.peers | {read_number("ordinal", ordinal)}

    def close(self):
        """Refuse new work. Teardown follows when the device's last object is gone."""
        reap_left_waits()
        reap_closed()
        if not self.closed:
            self.closed = True
            mark_all(self, UHAL_STATE_CLOSED)
            closed_contexts.append(self)
            reap_closed()

    def __repr__(self):
        return f"<Context {self.backend_name}:{self.ordinal}{' closed' if self.closed else ''}>"


# Objects held by pending work may hold the Context in turn, so the lane must poll the work.
cdef list closed_contexts = []


cdef int reap_closed() except -1:
    """Forget closed devices whose streams no longer hold objects."""
    cdef Context context
    cdef StreamCore core
    for context in list(closed_contexts):
        held = False
        if not context.state.word & (UHAL_STATE_FORKED | UHAL_STATE_LOST):
            for core in list(context.streams.values()):
                if core.held and not core_is_idle(context, core):
                    held = True
        if not held and context in closed_contexts:
            closed_contexts.remove(context)
    return 0


@cython.final
cdef class _Entered:
    cdef Context context
    cdef void *previous

    def __cinit__(self, Context context not None):
        self.context = context

    def __enter__(self):
        self.previous = enter(self.context)
        return self.context

    def __exit__(self, *exception):
        leave(self.context, self.previous)


cdef struct LiveCounts:
    Py_ssize_t contexts
    Py_ssize_t streams
    Py_ssize_t events
    Py_ssize_t modules
    Py_ssize_t functions
    Py_ssize_t buffers
    Py_ssize_t host_buffers
    Py_ssize_t plans

cdef LiveCounts live
memset(&live, 0, sizeof(live))


def live_counts():
    """Return the lane's open objects by kind."""
    return dict(live)


cdef int synchronize_streams(Context context) except -1:
    """Wait for every stream, closed ones too; for a captured stream, its earlier work."""
    cdef StreamCore core
    for core in list(context.streams.values()):
        synchronize_core(context, core)
    reap_left_waits()
    reap_closed()
    reap_streams(context)
    return clear_yard(context)


# -- making the device current ---------------------------------------------------------------------


# Tokens of closed devices. A thread bound to a closed device has nothing to restore, so `leave`
# ignores the driver's error. `leave` calls the driver anyway: another library may have retained the
# device again.
cdef set released_tokens = set()


cdef inline void *enter(Context context) except? NULL:
    """Bind the device to this thread unless it is bound already; return the earlier binding."""
    cdef void *previous = NULL
    check(context, context.table.current(&previous), "current")
    if previous != context.token_pointer:
        check(context, context.table.bind(context.token_pointer), "bind")
    return previous


cdef inline int leave(Context context, void *previous) except -1:
    """Restore the caller's binding; keep ours if there was none."""
    cdef int status
    if previous != context.token_pointer and previous != NULL:
        status = context.table.bind(previous)
        if status != 0 and <uintptr_t>previous not in released_tokens:
            raise_native(context, status, "bind")
    return 0


# -- state -----------------------------------------------------------------------------------------


cdef inline int require_usable(Context context) except -1:
    if context.state.word & UHAL_STATE_REFUSES:
        refuse_unusable(context)
    return 0


cdef int refuse_unmade() except -1:
    """Raise for an object that a subclass made without calling __init__ of its base."""
    raise _errors.InvalidHandleError("the object was never initialized")


cdef int refuse_unusable(Context context) except -1:
    cdef uint32_t word = context.state.word
    from uhal import faults
    name = f"{context.backend_name}:{context.ordinal}"
    if word & UHAL_STATE_FORKED:
        raise _errors.InvalidHandleError(faults.fork_sentence(), backend=context.backend_name)
    if word & UHAL_STATE_LOST:
        raise _errors.DeviceError(context.lost, backend=context.backend_name)
    raise _errors.InvalidHandleError(
        f"device {name} is closed; open it again with Device({context.ordinal}, "
        f"'{context.backend_name}') and create new objects on it",
        backend=context.backend_name,
    )


cdef int unmark_all(Context context, uint32_t bits) except -1:
    """Clear bits in the words of the device and of each of its streams."""
    context.state.word &= ~bits
    for core in context.streams.values():
        (<StreamCore>core).state.word &= ~bits
    return 0


cdef int mark_all(Context context, uint32_t bits) except -1:
    """Set bits in the words of the device and of each of its streams."""
    context.state.word |= bits
    for core in context.streams.values():
        (<StreamCore>core).state.word |= bits
    return 0
