# The process: the device of a call, and the effects of a fork and of the process's end.


# -- the device of a call -------------------------------------------------------------------------

cdef Context default_context = None
# The devices of `with` statements, innermost last: each thread and asyncio task has its own.
cdef object entered_contexts = _ContextVar("uhal device", default=())
# False before the process's first `with` statement: then no look-up is needed.
cdef bint were_entered = False


def current_context():
    """Return the context of the calling thread or task.

    Without such a context, return the process default; without a default, None.
    """
    if not were_entered:
        return default_context
    cdef tuple entered = entered_contexts.get()
    return entered[-1] if entered else default_context


def set_default_context(Context context):
    """Make `context` the default of threads without their own, and bind it on this thread."""
    global default_context
    if context is not None:
        enter(context)
    default_context = context


def push_context(Context context not None):
    """Make `context` current in the calling thread or task until the matching `pop_context`."""
    global were_entered
    require_usable(context)
    entered_contexts.set((*entered_contexts.get(), context))
    were_entered = True


def pop_context():
    """Undo the last `push_context` of the calling thread or task."""
    entered_contexts.set(entered_contexts.get()[:-1])


cpdef Context chosen_context(object cls, object device):
    """Return the context of `device`, else of the current device, for an object of `cls`.

    A class fixed to a backend takes its backend's device 0 if the current device belongs to another
    backend.
    """
    cdef Context context
    fixed = None if cls is DeviceBuffer else getattr(cls, "_fixed_backend", None)
    if device is not None:
        if not isinstance(device, Device):
            from uhal.device import as_device
            device = as_device(device)
        context = context_of(device)
        if fixed is not None and context.backend_name != fixed:
            raise _errors.InvalidHandleError(
                f"{cls.__name__} is fixed to backend {fixed}, got a device of "
                f"{context.backend_name}"
            )
    else:
        context = current_context()
        if fixed is not None and (context is None or context.backend_name != fixed):
            context = the_registry().context(fixed, 0)
        if context is None:
            raise _errors.DeviceError(
                "no device is current: call Api.quick_init() first, or pass device="
            )
    return context


cdef Context context_for(object cls, object device):
    """Return the chosen context; raise if it is not usable."""
    cdef Context context = chosen_context(cls, device)
    require_usable(context)
    return context


# -- process: environment, fork, exit --------------------------------------------------------------

cdef str init_site = ""
cdef object contexts = _weakref.WeakSet()
cdef bint exit_hook_set = False


def fork_generation():
    """Return the number of forks since the process that imported uhal."""
    return uhal_fork_count


def refuse_pickle(held, str kind not None, str advice not None):
    """Raise a `TypeError` that says what to send to another process instead."""
    raise TypeError(
        f"{type(held).__name__}: expected no pickle or copy of {kind} of this process. {advice}"
    )


def initialization_site():
    """Return `file.py:line` of the first context, empty before there is one."""
    return init_site


def set_initialization_site(str site not None):
    """Remember where the first context was opened, for a forked child's error message."""
    global init_site
    init_site = site


cdef int _drain_at_exit() except -1:
    global exit_hook_set
    if not exit_hook_set:
        exit_hook_set = True
        _atexit.register(_drain)
    return 0


def _drain():
    """Wait for pending work up to a deadline, then leave every native object alive."""
    global exiting
    cdef Context context
    deadline = _time.monotonic() + EXIT_DEADLINE_SECONDS
    try:
        for context in list(contexts):
            if context.state.word & (UHAL_STATE_FORKED | UHAL_STATE_LOST):
                continue
            try:
                drain_context(context, deadline)
            except _errors.DeviceError as fault:
                # no caller is left to catch it, and the other devices' work must still finish
                say_at_exit(str(fault))
        stop_dispatcher()
    except KeyboardInterrupt:
        say_at_exit("interrupted; pending work is not waited for")
    finally:
        exiting = True


cdef int drain_context(Context context, double deadline) except -1:
    cdef StreamCore core
    for core in list(context.streams.values()):
        # a stream that is still in a capture cannot be queried
        while not core.state.word & UHAL_STATE_CAPTURING and not core_is_idle(context, core):
            if _time.monotonic() >= deadline:
                say_still_busy(context)
                return 0
            _time.sleep(0.0005)
            PyErr_CheckSignals()  # an exception outside of the sleep
    return 0


cdef int say_still_busy(Context context) except -1:
    cdef list pending = suspects(context)
    kernels = f", the oldest launch of '{pending[0]['kernel']}'" if pending else ""
    say_at_exit(
        f"{context.backend_name}:{context.ordinal} still has work after "
        f"{EXIT_DEADLINE_SECONDS:.0f} s{kernels}; it is not waited for any longer"
    )
    return 0


cdef int say_at_exit(str words) except -1:
    if _sys.stderr is not None:
        _sys.stderr.write(f"uhal, as the process ends: {words}\n")
    return 0


cdef int teardown(Context context) noexcept:
    """Free every native object of a device without holders. Runs in a destructor.

    Nothing here may raise a native failure: its traceback would hold the dying Context.
    """
    cdef StreamCore core
    cdef uhal_hot_table *table = context.table
    cdef void *previous = NULL
    cdef int status = table.current(&previous)
    cdef bint bound = status == 0 and previous != context.token_pointer
    try:
        if bound:
            status = table.bind(context.token_pointer)
        for core in context.streams.values():
            wait_in_teardown(context, core)
            core.held = []
            if core.mark_word != NULL:
                table.host_free(core.mark_word)
            if core.owned and not core.closed:
                keep_first(&status, table.stream_destroy(core.handle))
            core.closed = True
            for _, handle in core.markers:
                table.event_destroy(<void *><uintptr_t>handle)
        keep_first(&status, pool_free_segments(context))
        for address in context.yard.addresses:
            table.host_free(<void *><uintptr_t>address)
        for handle in context.idle_events:
            table.event_destroy(<void *><uintptr_t>handle)
        if bound and previous != NULL:
            table.bind(previous)
        released_tokens.add(<uintptr_t>context.token_pointer)
        context.backend.release_device_context(
            context.ordinal, <uintptr_t>context.token_pointer
        )
        if status != 0 and context.lost is None:
            said = _errors.from_code(context.backend, "teardown", status)
            warn_in_destructor(f"closing {context.backend_name}:{context.ordinal}: {said}")
    except BaseException as failure:
        warn_of_failed_end(f"closing {context.backend_name}:{context.ordinal}", failure)
    return 0


cdef inline void keep_first(int *status, int found) noexcept:
    if status[0] == 0:
        status[0] = found


cdef int warn_in_destructor(str message) noexcept:
    try:
        from uhal.errors import DeviceWarning
        _warnings.warn(message, DeviceWarning, stacklevel=2)
    except BaseException:
        pass  # a destructor never raises, not even when warnings are errors
    return 0
