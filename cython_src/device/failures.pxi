# The error for a failed native call, and the launches that may have caused it.


cdef inline int check(Context context, int status, str slot) except -1:
    if status != 0:
        raise_native(context, status, slot)
    return 0


cdef str lacking(Context context, str slot):
    """Name of the vendor's missing function in brackets, or an empty string."""
    name = context.hot_table.names.get(slot)
    return f" (it lacks {name})" if name else ""


cdef int raise_native(Context context, int status, str slot) except -1:
    """Raise the error for a native status; a sticky status marks the device lost, and the error
    names suspects."""
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
    for core in context.streams.values():
        if core.ledger != NULL:
            suspects_of_stream(context, core, found)
    return sorted(
        found, key=lambda launch: (launch["stream_id"], launch["ticket"], launch["index"])
    )


cdef int suspects_of_stream(Context context, StreamCore core, list found) except -1:
    cdef uhal_ledger *ledger = core.ledger
    cdef uhal_launch_record *record
    cdef uint64_t length = UHAL_LEDGER_LENGTH
    cdef uint64_t completed = 0
    cdef uint64_t begun = ledger.count
    cdef uint64_t index
    cdef uint64_t under_way = <uint64_t>-1
    cdef Py_ssize_t which, first, launches
    read_mark(core)
    if context.table.stream_progress != NULL and not core.closed:
        context.table.stream_progress(core.handle, &completed, &begun, &under_way)
    if ledger.count > completed + length:
        completed = ledger.count - length
    for index in range(completed, min(begun, ledger.count)):
        record = &ledger.records[index % length]
        if record.ticket <= core.completed:
            continue
        first, launches = 0, 1
        if isinstance(<object>record.kernel, Recording):
            launches = (<Recording><object>record.kernel).count
            if index + 1 == begun and under_way < <uint64_t>launches:
                first, launches = under_way, under_way + 1
        for which in range(first, launches):
            found.append(describe_suspect(core, record, which))
    return 0


cdef dict describe_suspect(StreamCore core, uhal_launch_record *record, Py_ssize_t index):
    """One launch in the ledger; `index` is its index within a replay."""
    cdef object key = <object>record.kernel
    cdef dict told
    if isinstance(key, Recording):
        told = describe_launch(<Recording>key, index)
        told["replayed"] = (
            <object>record.code if record.code != NULL else None, record.instruction_offset
        )
    else:
        name, signature = key
        told = {
            "kernel": name,
            "signature": signature,
            "grid": tuple([record.geometry[i] for i in range(3)]),
            "block": tuple([record.geometry[i] for i in range(3, 6)]),
            "shared": record.shared_bytes,
            "arguments": (<const char *>record.arguments)[:record.argument_bytes],
            "code": <object>record.code if record.code != NULL else None,
            "instruction_offset": record.instruction_offset,
            "index": index,
        }
    told["ticket"] = record.ticket
    told["stream_id"] = core.id
    return told
