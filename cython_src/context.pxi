# An opened device: the hot table it is reached through, its streams, its pool and its state.


@cython.final
cdef class HotTable:
    """A backend's C function pointers and constants. Immutable.

    Raises ValueError for an unknown slot, a required slot without an address, or too many sticky
    codes. `names` gives the vendor's function for a slot, for error messages.
    """

    # Never freed: the last object of a backend may be torn down after the table's Python object.
    cdef uhal_hot_table *table
    cdef readonly dict slots
    cdef readonly dict names

    def __init__(self, slots, *, int not_ready, int out_of_memory, sticky=(), names=None):
        cdef int index
        cdef uintptr_t address
        known = [uhal_slot_rows[i].name.decode() for i in range(UHAL_SLOT_COUNT)]
        unknown = sorted(set(slots) - set(known))
        if unknown:
            raise ValueError(f"no slot of the hot table is called {', '.join(unknown)}")
        if len(sticky) > UHAL_MAX_STICKY_CODES:
            raise ValueError(f"at most {UHAL_MAX_STICKY_CODES} sticky codes, got {len(sticky)}")
        cdef uhal_hot_table *table = <uhal_hot_table *>calloc(1, sizeof(uhal_hot_table))
        if table == NULL:
            raise MemoryError
        cdef void **entries = <void **>table
        for index, name in enumerate(known):
            address = slots.get(name) or 0
            if address == 0 and uhal_slot_rows[index].need == b"required":
                c_free(table)
                raise ValueError(f"slot '{name}' of the hot table is required and has no address")
            entries[index] = <void *>address
        table.not_ready = not_ready
        table.out_of_memory = out_of_memory
        table.sticky_count = len(sticky)
        for index, code in enumerate(sticky):
            table.sticky[index] = code
        self.table = table
        self.slots = {name: slots.get(name) or 0 for name in known}
        self.names = dict(names or {})


def slot_prototypes():
    """Slot name to (`required` or `optional`, C parameter list) as hot_table.h states them."""
    return {
        uhal_slot_rows[i].name.decode(): (
            uhal_slot_rows[i].need.decode(),
            uhal_slot_rows[i].prototype.decode(),
        )
        for i in range(UHAL_SLOT_COUNT)
    }


def slot_adapter(str name not None, uintptr_t vendor_function):
    """Return the address for a slot that `vendor_function` does not fit as it is.

    `name` is one of slot_adapters.c; ValueError for another.
    """
    cdef bytes spelled = name.encode()
    cdef uhal_any_function adapter = uhal_slot_adapter(spelled, <uhal_any_function>vendor_function)
    if adapter == NULL:
        raise ValueError(f"there is no slot adapter {name!r}")
    return <uintptr_t>adapter


# Set once the process drains for exit: from then on nothing native is freed (a driver may already
# be half gone), which leaks on purpose.
cdef bint exiting = False


# no_gc, not no_gc_clear: of a Context in a garbage cycle the collector would still empty the dict of
# streams, and nobody could destroy them. It holds nothing of the user's, so it closes no cycle.
@cython.final
@cython.no_gc
cdef class Context:
    """An opened device. Streams, buffers and modules hold it; it goes when the last of them has."""

    cdef uhal_hot_table *table
    cdef void *token_pointer
    cdef uhal_state *state
    cdef readonly HotTable hot_table
    cdef readonly object backend
    cdef readonly str backend_name
    cdef readonly int ordinal
    cdef readonly object limits
    cdef readonly bint closed
    cdef readonly str lost
    cdef dict streams       # id → StreamCore, closed ones too until their work is known complete
    cdef StreamCore default_core
    cdef Pool pool
    cdef list idle_events   # handles of recycled marker events
    cdef dict foreign_streams   # handle → StreamCore of another library's stream
    cdef int dl_device_type     # DLPack's name of the memory; type 0: it has none
    cdef int dl_device_id
    cdef readonly object peers  # ordinals whose memory kernels of this device may use
    cdef unsigned int launch_marks
    cdef object __weakref__

    def __init__(self, backend, int ordinal, uintptr_t token, limits):
        self.hot_table = backend.hot_table
        self.table = self.hot_table.table
        self.token_pointer = <void *>token
        self.backend = backend
        self.backend_name = backend.name
        self.ordinal = ordinal
        self.limits = limits
        self.streams = {}
        self.idle_events = []
        self.foreign_streams = {}
        self.dl_device_type = backend.dlpack_device_type or 0
        # DLPack knows one CPU: every host device is memory of this process
        self.dl_device_id = 0 if self.dl_device_type == DL_CPU else ordinal
        self.peers = frozenset()
        self.launch_marks = _launch_marks()
        blocking = _environment_flag("UHAL_LAUNCH_BLOCKING")
        self.pool = Pool(_pool_mode())
        # From here on __dealloc__ has something to tear down.
        self.state = uhal_state_new()
        if self.state == NULL:
            raise MemoryError
        if blocking:
            self.state.word |= UHAL_STATE_BLOCKING
        if self.launch_marks:
            self.state.word |= UHAL_STATE_MARKING
        live.contexts += 1
        self.default_core = new_stream_core(self, 0, 0)
        contexts.add(self)
        _drain_at_exit()

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
        """Raise when the device is closed, lost, or belongs to the parent of a forked process."""
        require_usable(self)

    def enter(self):
        """Return a context manager inside which the device is current on this thread."""
        require_usable(self)
        return _Entered(self)

    def synchronize(self):
        """Wait for every stream of the device; raise what the waiting brings to light."""
        require_usable(self)
        for core in list(self.streams.values()):
            if not (<StreamCore>core).closed:
                synchronize_core(self, <StreamCore>core)
        reap_streams(self)

    def pool_statistics(self):
        """Return bytes and counts of the pool by name."""
        return pool_statistics(self)

    def empty_cache(self):
        """Give unused pool segments back to the driver and return the bytes freed."""
        require_usable(self)
        return pool_empty_cache(self)

    def note_peer(self, int ordinal):
        """Take note that kernels of this device may use the memory of device `ordinal`."""
        self.peers = self.peers | {ordinal}

    def close(self):
        """Refuse new work. Native teardown follows when the last child is gone."""
        if not self.closed:
            self.closed = True
            mark_all(self, UHAL_STATE_CLOSED)

    def __repr__(self):
        return f"<Context {self.backend_name}:{self.ordinal}{' closed' if self.closed else ''}>"


@cython.final
cdef class _Entered:
    cdef Context context
    cdef void *previous

    def __init__(self, Context context):
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

cdef LiveCounts live
memset(&live, 0, sizeof(live))


def live_counts():
    """Return the lane's open objects by kind."""
    return dict(live)


# -- making the device current -------------------------------------------------------------------


cdef inline void *enter(Context context) except? NULL:
    """Bind the device to this thread unless it is bound already; return what was bound before."""
    cdef void *previous = NULL
    cdef int status = context.table.current(&previous)
    if status == 0 and previous != context.token_pointer:
        status = context.table.bind(context.token_pointer)
    if status != 0:
        raise_native(context, status, "bind")
    return previous


cdef inline int leave(Context context, void *previous) except -1:
    """Restore the caller's binding. A thread that had none keeps ours."""
    if previous != context.token_pointer and previous != NULL:
        return check(context, context.table.bind(previous), "bind")
    return 0


# -- state ---------------------------------------------------------------------------------------


cdef inline int require_usable(Context context) except -1:
    if context.state.word & UHAL_STATE_REFUSES:
        refuse_unusable(context)
    return 0


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


cdef int mark_all(Context context, uint32_t bits) except -1:
    """Set bits in the device's word and in that of each of its streams."""
    context.state.word |= bits
    for core in context.streams.values():
        (<StreamCore>core).state.word |= bits
    return 0


# -- native failures -----------------------------------------------------------------------------


cdef inline int check(Context context, int status, str slot) except -1:
    if status != 0:
        raise_native(context, status, slot)
    return 0


cdef int raise_native(Context context, int status, str slot) except -1:
    """Raise what a native status means; a sticky one marks the device lost and names suspects."""
    from uhal import faults
    call = context.hot_table.names.get(slot, slot)
    cdef int index
    for index in range(context.table.sticky_count):
        if context.table.sticky[index] == status:
            break
    else:
        raise _errors.from_code(context.backend, call, status)
    launches = suspects(context)
    mark_all(context, UHAL_STATE_LOST)
    try:
        faults.raise_fault(context, call, status, launches)
    except _errors.DeviceError as fault:
        context.lost = (
            f"{context.backend_name}:{context.ordinal} was lost earlier and takes no more work: "
            f"{fault}"
        )
        raise
    return -1


cdef list suspects(Context context):
    """Launches not known to be complete, oldest first within a stream."""
    found = []
    cdef StreamCore core
    cdef uhal_launch_record *record
    cdef int slot
    for core in context.streams.values():
        if core.ledger == NULL:
            continue
        read_mark(core)
        for slot in range(UHAL_LEDGER_LENGTH):
            record = &core.ledger.records[slot]
            if record.ticket <= core.completed:
                continue
            name, signature = <object>record.kernel
            found.append({
                "ticket": record.ticket,
                "stream_id": core.id,
                "kernel": name,
                "signature": signature,
                "grid": tuple([record.geometry[i] for i in range(3)]),
                "block": tuple([record.geometry[i] for i in range(3, 6)]),
                "shared": record.shared_bytes,
                "arguments": (<const char *>record.arguments)[:record.argument_bytes],
                "code": <object>record.code if record.code != NULL else None,
                "instruction_offset": record.instruction_offset,
            })
    return sorted(found, key=lambda launch: (launch["stream_id"], launch["ticket"]))


# -- which device is meant -----------------------------------------------------------------------

cdef Context default_context = None
cdef object thread_contexts = _threading.local()


def current_context():
    """Return the calling thread's context, else the process default, else None."""
    stack = getattr(thread_contexts, "stack", None)
    return stack[-1] if stack else default_context


def set_default_context(Context context):
    """Make `context` what threads without one of their own use, and bind it on this thread."""
    global default_context
    if context is not None:
        enter(context)
    default_context = context


def push_context(Context context not None):
    """Make `context` current on the calling thread until the matching `pop_context`."""
    require_usable(context)
    stack = getattr(thread_contexts, "stack", None)
    if stack is None:
        stack = thread_contexts.stack = []
    stack.append(context)


def pop_context():
    """Undo the calling thread's last `push_context`."""
    thread_contexts.stack.pop()


cdef Context context_for(object cls, object device):
    """The context an object of `cls` belongs on: the device given, else the current one."""
    cdef Context context
    fixed = getattr(cls, "_fixed_backend", None)
    if device is not None:
        context = getattr(device, "_context", None)
        if context is None:
            raise _errors.ArgumentTypeError(
                f"device: expected a uhal.Device, got {type(device).__name__}"
            )
        if fixed is not None and context.backend_name != fixed:
            raise _errors.InvalidHandleError(
                f"{cls.__name__} is fixed to backend {fixed}, got a device of "
                f"{context.backend_name}"
            )
    else:
        context = current_context()
        if fixed is not None and (context is None or context.backend_name != fixed):
            from uhal import registry
            context = registry.context(fixed, 0)
        if context is None:
            raise _errors.DeviceError(
                "no device is current: call Api.quick_init() first, or pass device="
            )
    require_usable(context)
    return context


cdef object device_of(Context context):
    from uhal.device import Device
    return Device._of(context)


# -- process: environment, fork, exit --------------------------------------------------------------

cdef str init_site = ""
cdef object contexts = _weakref.WeakSet()
cdef bint exit_hook_set = False


def fork_generation():
    """Return how many forks lie between this process and the one that imported uhal."""
    return uhal_fork_count


def initialization_site():
    """Return `file.py:line` of the first context, empty before there is one."""
    return init_site


def set_initialization_site(str site not None):
    """Remember where the first context was opened, for the sentence a forked child gets."""
    global init_site
    init_site = site


cdef bint _environment_flag(str name):
    value = _os.environ.get(name, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"{name}: expected 0 or 1, got {value!r}")
    return value == "1"


cdef unsigned int _launch_marks() except? 0:
    value = _os.environ.get("UHAL_LAUNCH_MARKS", "") or "0"
    if not value.isdigit() or int(value) > 2**31:
        raise ValueError(f"UHAL_LAUNCH_MARKS: expected a number of launches, got {value!r}")
    return int(value)


cdef int _drain_at_exit() except -1:
    global exit_hook_set
    if not exit_hook_set:
        exit_hook_set = True
        _atexit.register(_drain)
    return 0


def _drain():
    """Let pending work finish, a while at most, then leave every native object where it is."""
    global exiting
    cdef Context context
    cdef StreamCore core
    deadline = _time.monotonic() + EXIT_DEADLINE_SECONDS
    for context in list(contexts):
        if context.state.word & (UHAL_STATE_FORKED | UHAL_STATE_LOST):
            continue
        for core in list(context.streams.values()):
            while not core_is_idle(context, core) and _time.monotonic() < deadline:
                _time.sleep(0.0005)
    stop_dispatcher()
    exiting = True


cdef int teardown(Context context) noexcept:
    """Free every native thing of a device nobody holds any more. Runs in a destructor.

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
            wait_in_teardown(table, core)
            if core.mark_word != NULL:
                table.host_free(core.mark_word)
            if core.owned and not core.closed:
                keep_first(&status, table.stream_destroy(core.handle))
            core.closed = True
            for _, handle in core.markers:
                table.event_destroy(<void *><uintptr_t>handle)
        keep_first(&status, pool_free_segments(context))
        for handle in context.idle_events:
            table.event_destroy(<void *><uintptr_t>handle)
        if bound and previous != NULL:
            table.bind(previous)
        context.backend.release_device_context(context.ordinal)
        if status != 0 and context.lost is None:
            said = _errors.from_code(context.backend, "teardown", status)
            warn_in_destructor(f"closing {context.backend_name}:{context.ordinal}: {said}")
    except BaseException as failure:
        warn_in_destructor(f"closing {context.backend_name}:{context.ordinal}: {failure}")
    return 0


cdef inline void keep_first(int *status, int found) noexcept:
    if status[0] == 0:
        status[0] = found


cdef int wait_in_teardown(uhal_hot_table *table, StreamCore core) except -1:
    """Let what is pending in the stream finish; a lost device answers at once."""
    cdef void *event
    if core.owner is not None and core.completed == core.ticket:
        return 0
    if not core.closed:
        with nogil:
            table.stream_synchronize(core.handle)
    elif core.markers:
        event = <void *><uintptr_t>core.markers[-1][1]
        with nogil:
            table.event_synchronize(event)
    return 0


cdef int warn_in_destructor(str message) noexcept:
    try:
        from uhal.errors import DeviceWarning
        _warnings.warn(message, DeviceWarning, stacklevel=2)
    except BaseException:
        pass  # a destructor never raises, not even when warnings are errors
    return 0
