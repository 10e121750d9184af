# One watched operation: a launch, a copy, a fill, a replay, a wait, an allocation.
#
# `watch` begins its record, `begin_times` and `end_times` surround the native call with two events,
# and `let_go_watched` ends the watching in any case.


cdef int watch(
    Watched *watched, Context context, StreamCore core, int kind, uint32_t what, uint64_t nbytes
) except -1:
    """Begin a record of a stream's operation; none in a capture, where nothing runs."""
    cdef ProfileSession session = profiling
    cdef ProfiledDevice device
    cdef uhal_profile_record *record
    watched.record = NULL
    watched.session = NULL
    if session is None or core.state.word & UHAL_STATE_CAPTURING:
        return 0
    device = profiled_device(session, context)
    if device is None:
        return 0
    if device.pending_count - device.resolved >= RESOLVE_AFTER:
        resolve_now_and_then(session, device)
    record = new_record(session, kind)
    if record == NULL:
        return 0
    record.device = device.number
    record.stream = core.id
    record.what = what
    record.bytes = nbytes
    note_line(record)
    watched.record = record
    watched.session = own(session)
    return 0


cdef int begin_times(Watched *watched, Context context, StreamCore core) except -1:
    """Put the first event into the stream."""
    cdef ProfiledDevice device
    if watched.record == NULL:
        return 0
    device = (<ProfileSession>watched.session).devices[watched.record.device]
    if device.finished:
        return 0
    watched.record.begin = take_event(device)
    return native_event_record(context, watched.record.begin, core.handle)


cdef int end_times(Watched *watched, Context context, StreamCore core) except -1:
    """Put the second event into the stream, behind the watched operation."""
    cdef ProfiledDevice device
    cdef uhal_profile_record *record = watched.record
    if record == NULL:
        return 0
    record.state = UHAL_PROFILE_CLOSED
    record.host_end = uhal_profile_now()
    device = (<ProfileSession>watched.session).devices[record.device]
    if device.finished or record.begin == NULL:
        return 0
    record.end = take_event(device)
    native_event_record(context, record.end, core.handle)
    return add_pending(device, record)


cdef int let_go_watched(Watched *watched) except -1:
    """End the watching. The work of a record that is still open was refused, or failed."""
    cdef ProfiledDevice device
    cdef uhal_profile_record *record = watched.record
    if watched.session == NULL:
        return 0
    session = <ProfileSession>watched.session
    Py_DECREF(session)
    watched.session = NULL
    watched.record = NULL
    if record != NULL and record.end == NULL and record.begin != NULL:
        device = session.devices[record.device]
        begin, record.begin = <uintptr_t>record.begin, NULL
        if device.finished:
            native_event_destroy(device.context, <void *><uintptr_t>begin)
        else:
            give_event(device, <void *><uintptr_t>begin)
    return 0


# -- copies and fills ------------------------------------------------------------------------------


cdef bint note_or_watch(
    Watched *watched, Context context, StreamCore core, OperationKind kind, uint64_t destination,
    uint64_t source, size_t count, unsigned int value
) except -1:
    """Note a copy or fill in the plan's list (True), or watch it."""
    if core.capture is not None:
        reserve_operation(core.capture.recording)
    if is_noted(core):
        add_operation(core.capture.recording, kind, destination, source, count, value)
        return True
    watch(
        watched, context, core, kind_of_operation(kind), 0, count * bytes_of_element(kind)
    )
    return False


cdef int end_copy(Watched *watched, Context context, StreamCore core, int status) except -1:
    """Note that the copy was enqueued, or refused with `status`."""
    try:
        if status == 0:
            end_times(watched, context, core)
    finally:
        let_go_watched(watched)
    return 0


# -- launches --------------------------------------------------------------------------------------


cdef int watch_launch(
    Packed *packed, Function function, StreamCore core, const unsigned int *geometry,
    unsigned int shared_bytes, PyObject **arguments, Py_ssize_t given
) except -1:
    """Begin the record of a launch whose arguments are not read yet."""
    cdef uint64_t nbytes = 0
    cdef Py_ssize_t index
    if profiling is None:
        return 0
    for index in range(given):
        if PyObject_TypeCheck(arguments[index], <PyTypeObject *>DeviceBuffer):
            nbytes += (<DeviceBuffer>arguments[index]).nbytes
    watch(
        &packed.watched, function.context, core, UHAL_PROFILE_LAUNCH,
        subject_of_kernel(profiling, function), nbytes,
    )
    if packed.watched.record != NULL:
        note_geometry(packed.watched.record, geometry, shared_bytes)
        packed.needs |= NEEDS_WATCHING
        packed.memory = &NO_MEMORY
    return 0


cdef inline void note_geometry(
    uhal_profile_record *record, const unsigned int *geometry, unsigned int shared_bytes
) noexcept:
    # the record's three grid and three block fields are adjacent
    memcpy(&record.grid_x, geometry, 6 * sizeof(unsigned int))
    record.shared = shared_bytes


# -- plans -----------------------------------------------------------------------------------------


cdef int run_watched(Plan plan, StreamCore core, const char **called) except? -1:
    """Replay a plan during a profile; return the driver's status. The device is current."""
    cdef Watched watched
    cdef ProfileSession session = profiling
    cdef uint32_t whole = 0
    cdef int status
    if session is None:
        note_replay(core, plan.recording)
        return run_natively(plan, core, called)
    watch(
        &watched, plan.context, core, UHAL_PROFILE_REPLAY, subject_named(session, plan.name), 0
    )
    try:
        if watched.record != NULL:
            whole = <uint32_t>session.count     # its own index, counted from 1
        begin_times(&watched, plan.context, core)
        if session.by_node and (plan.one_by_one or plan.is_listed):
            status = run_by_node(session, plan, core, whole, called)
        else:
            note_replay(core, plan.recording)
            status = run_natively(plan, core, called)
        if status == 0:
            end_times(&watched, plan.context, core)
    finally:
        let_go_watched(&watched)
    return status


cdef int run_by_node(
    ProfileSession session, Plan plan, StreamCore core, uint32_t whole, const char **called
) except? -1:
    """Enqueue and time each operation of a plan separately."""
    cdef Context context = plan.context
    cdef Recording recording = plan.recording
    cdef CapturedOperation *one
    cdef CapturedLaunch *launch
    cdef Watched watched
    cdef Py_ssize_t index
    cdef uint32_t what
    cdef uint64_t nbytes
    cdef int status = 0
    called[0] = "launch"
    for index in range(recording.operation_count):
        one = &recording.operations[index]
        launch = NULL
        if one.kind == OPERATION_LAUNCH:
            launch = &recording.launches[one.launch]
            what = subject_of_kernel(session, <Function>plan.functions[one.launch])
            nbytes = launch.buffer_bytes
            # Count each launch once, as the driver does: see stream_progress.
            note_node(core, recording, one.launch)
        else:
            what = 0
            nbytes = one.count * bytes_of_element(one.kind)
        watch(&watched, context, core, kind_of_operation(one.kind), what, nbytes)
        try:
            if watched.record != NULL:
                watched.record.parent = whole
                if launch != NULL:
                    note_geometry(watched.record, launch.geometry, launch.shared_bytes)
            begin_times(&watched, context, core)
            hold_core(core)
            with nogil:
                status = run_operation(context.table, recording, index, core.handle)
            let_go_core(context, core)
            if status == 0:
                end_times(&watched, context, core)
        finally:
            let_go_watched(&watched)
        if status != 0:
            break
    return status


cdef int kind_of_operation(OperationKind kind) noexcept:
    if kind == OPERATION_LAUNCH:
        return UHAL_PROFILE_LAUNCH
    if kind == OPERATION_H2D:
        return UHAL_PROFILE_H2D
    if kind == OPERATION_D2H:
        return UHAL_PROFILE_D2H
    return UHAL_PROFILE_D2D if kind == OPERATION_D2D else UHAL_PROFILE_FILL


cdef size_t bytes_of_element(OperationKind kind) noexcept:
    return 4 if kind == OPERATION_SET_32 else 2 if kind == OPERATION_SET_16 else 1


# -- waits and memory ------------------------------------------------------------------------------


cdef int watch_wait(Watched *watched, Context context, StreamCore core, str name) except -1:
    """Begin the record of a wait on the host, which has no times on the device."""
    watched.record = NULL
    watched.session = NULL
    if profiling is None or core is None:
        return 0
    return watch(
        watched, context, core, UHAL_PROFILE_WAIT, subject_named(profiling, name), 0
    )


cdef inline int end_wait(Watched *watched) except -1:
    if watched.record != NULL:
        watched.record.host_end = uhal_profile_now()
        watched.record.state = UHAL_PROFILE_CLOSED
    return let_go_watched(watched)


cdef int watch_memory(Context context, Block block, int kind, int64_t begun) except -1:
    """Note that the pool handed out a block, or took a block back."""
    cdef ProfileSession session = profiling
    cdef ProfiledDevice device
    cdef uhal_profile_record *record
    if session is None:
        return 0
    device = profiled_device(session, context)
    if device is None:
        return 0
    record = new_record(session, kind)
    if record == NULL:
        return 0
    record.host_end = record.host_begin
    if begun:
        record.host_begin = begun
    record.device = device.number
    record.address = block.address
    record.bytes = block.bytes
    record.state = UHAL_PROFILE_CLOSED
    note_line(record)
    return 0
