# Times on the device: two events around each operation, read in batches after they have passed.
#
# The vendor sets the resolution: half a microsecond on NVIDIA's devices. On the host, the thread
# that runs the stream reads the runtime's clock. An event difference is a float in milliseconds, so
# a start time is measured from a recent event of the same stream, the anchor. The anchor moves
# after ANCHOR_REACH milliseconds.

cdef enum:
    # Pending records of a device before their times are read.
    RESOLVE_AFTER = 4096
    # Number of further records before a device that was not ready is queried again.
    RESOLVE_EVERY = 1024

# Milliseconds after which a stream's anchor moves: at this value a float resolves 15 ns.
cdef float ANCHOR_REACH = 250.0


@cython.final
@cython.no_gc
cdef class ProfiledDevice:
    """ProfiledDevice()\n--\n
    A device during a profile: its events and unread records."""

    cdef Context context
    cdef uint16_t number
    cdef bint finished
    cdef void **events              # not in use
    cdef Py_ssize_t event_count
    cdef Py_ssize_t event_capacity
    cdef uhal_profile_record **pending
    cdef Py_ssize_t pending_count
    cdef Py_ssize_t pending_capacity
    cdef Py_ssize_t resolved        # number of pending records whose times were read
    cdef Py_ssize_t ask_at          # number of records at which the device is queried again
    cdef void *anchor               # passed at `anchored_at`
    cdef int64_t anchored_at
    cdef dict anchors               # stream id → (event, when it was passed)
    cdef uint64_t bytes_before
    cdef list owners_before

    def __dealloc__(self):
        c_free(self.events)
        c_free(self.pending)


cdef int attach_profile(ProfileSession session, Context context) except -1:
    """Watch a device from now on."""
    cdef ProfiledDevice device = ProfiledDevice.__new__(ProfiledDevice)
    cdef int64_t before
    cdef StreamCore core = context.default_core
    synchronize_streams(context)
    device.context = context
    device.anchors = {}
    device.bytes_before = context.pool.bytes_in_use
    device.owners_before = pool_owners(context)
    device.anchor = take_event(device)
    before = uhal_profile_now()
    try:
        native_event_record(context, device.anchor, core.handle)
        core.ticket += 1
        synchronize_core(context, core)
    except BaseException:
        finish_times(device)
        raise
    device.number = len(session.devices)
    session.devices.append(device)
    device.anchored_at = (before + uhal_profile_now()) // 2
    mark_all(context, UHAL_STATE_PROFILED)
    context.pool.path = POOL_WATCHED
    context.profiled = device.number
    return 0


cdef int detach_profile(ProfiledDevice device) except -1:
    """Stop watching the device."""
    cdef Context context = device.context
    unmark_all(context, UHAL_STATE_PROFILED)
    context.pool.path = context.pool.mode
    return 0


cdef inline ProfiledDevice profiled_device(ProfileSession session, Context context):
    """The session's ProfiledDevice, or None if the device is not watched."""
    cdef ProfiledDevice device
    if context.profiled < len(session.devices):
        device = <ProfiledDevice>session.devices[context.profiled]
        if device.context is context:
            return device
    return None


# -- events ----------------------------------------------------------------------------------------


cdef void *take_event(ProfiledDevice device) except NULL:
    cdef void *event = NULL
    if device.event_count:
        device.event_count -= 1
        return device.events[device.event_count]
    native_event_create(device.context, &event, 0)
    return event


cdef int give_event(ProfiledDevice device, void *event) except -1:
    cdef void **grown
    if event == NULL:
        return 0
    if device.event_count == device.event_capacity:
        grown = <void **>realloc(
            device.events, (2 * device.event_capacity + 256) * sizeof(void *)
        )
        if grown == NULL:
            raise MemoryError
        device.events = grown
        device.event_capacity = 2 * device.event_capacity + 256
    device.events[device.event_count] = event
    device.event_count += 1
    return 0


cdef int add_pending(ProfiledDevice device, uhal_profile_record *record) except -1:
    cdef uhal_profile_record **grown
    if device.pending_count == device.pending_capacity:
        grown = <uhal_profile_record **>realloc(
            device.pending, (2 * device.pending_capacity + 1024) * sizeof(void *)
        )
        if grown == NULL:
            raise MemoryError
        device.pending = grown
        device.pending_capacity = 2 * device.pending_capacity + 1024
    device.pending[device.pending_count] = record
    device.pending_count += 1
    return 0


# -- reading ---------------------------------------------------------------------------------------


cdef int resolve_now_and_then(ProfileSession session, ProfiledDevice device) except -1:
    """Read the times of finished work, as a record of its own in the profile."""
    cdef uhal_profile_record *record
    if device.pending_count < device.ask_at:
        return 0
    record = new_record(session, UHAL_PROFILE_RESOLVE)
    resolve(device)
    if record != NULL:
        record.device = device.number
        record.state = UHAL_PROFILE_CLOSED
        record.host_end = uhal_profile_now()
    memmove(
        device.pending, device.pending + device.resolved,
        (device.pending_count - device.resolved) * sizeof(void *),
    )
    device.pending_count -= device.resolved
    device.resolved = 0
    device.ask_at = device.pending_count + RESOLVE_EVERY
    return 0


cdef int resolve(ProfiledDevice device) except -1:
    """Read the times of finished work, in order; never raises, even on errors."""
    cdef Context context = device.context
    cdef uhal_profile_record *record
    cdef int status = 0
    cdef void *previous = enter(context)
    while device.resolved < device.pending_count:
        record = device.pending[device.resolved]
        if context.table.event_query(record.end) != 0:
            break
        read_times(device, record)
        device.resolved += 1
    return leave(context, previous)


cdef int read_times(ProfiledDevice device, uhal_profile_record *record) except -1:
    cdef uhal_hot_table *table = device.context.table
    cdef void *anchor = device.anchor
    cdef int64_t anchored_at = device.anchored_at
    cdef float until = 0, during = 0
    cdef int status
    known = device.anchors.get(record.stream)
    if known is not None:
        anchor = <void *><uintptr_t>known[0]
        anchored_at = known[1]
    status = table.event_elapsed(&until, anchor, record.begin)
    if status == 0:
        status = table.event_elapsed(&during, record.begin, record.end)
    if status == 0:
        record.device_begin = anchored_at + <int64_t>(<double>until * 1e6)
        record.device_end = record.device_begin + <int64_t>(<double>during * 1e6)
    give_event(device, record.begin)
    if status == 0 and until > ANCHOR_REACH:
        if known is not None:
            give_event(device, anchor)
        device.anchors[record.stream] = (<uintptr_t>record.end, record.device_end)
    else:
        give_event(device, record.end)
    record.begin = record.end = NULL
    return 0


cdef int finish_times(ProfiledDevice device) except -1:
    """Read the remaining times, and destroy every event."""
    cdef Context context = device.context
    cdef uhal_profile_record *record
    cdef void *previous
    cdef bint gone = context.state.word & UHAL_STATE_FORKED
    device.finished = True
    if gone:
        return 0
    try:
        resolve(device)
        while device.resolved < device.pending_count:
            record = device.pending[device.resolved]
            give_event(device, record.begin)
            give_event(device, record.end)
            record.begin = record.end = NULL
            device.resolved += 1
        for event, _ in device.anchors.values():
            give_event(device, <void *><uintptr_t>event)
        give_event(device, device.anchor)
        previous = enter(context)
        while device.event_count:
            device.event_count -= 1
            context.table.event_destroy(device.events[device.event_count])
        leave(context, previous)
    except _errors.DeviceError:
        if not context.state.word & UHAL_STATE_LOST:
            raise
        # a lost device answers every call with its error
    return 0
