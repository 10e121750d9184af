# A running profile: the records of the lane's calls, and the objects they name.
#
# Without a profile, nothing here runs and nothing is slower. Each launch tests its stream's state
# word anyway, and one bit of the word leads here. The pool's path is similar.

cdef extern from "profile/records.h":
    enum:
        UHAL_PROFILE_LAUNCH
        UHAL_PROFILE_H2D
        UHAL_PROFILE_D2H
        UHAL_PROFILE_D2D
        UHAL_PROFILE_PEER
        UHAL_PROFILE_FILL
        UHAL_PROFILE_REPLAY
        UHAL_PROFILE_WORK
        UHAL_PROFILE_WAIT
        UHAL_PROFILE_ALLOCATE
        UHAL_PROFILE_FREE
        UHAL_PROFILE_RANGE
        UHAL_PROFILE_RESOLVE
        UHAL_PROFILE_KINDS
        UHAL_PROFILE_OPEN
        UHAL_PROFILE_CLOSED
        UHAL_PROFILE_COLUMNS
        UHAL_PROFILE_CHUNK
    const char *const uhal_profile_kind_names[1]
    ctypedef struct uhal_profile_record:
        int64_t host_begin
        int64_t host_end
        int64_t device_begin
        int64_t device_end
        uint64_t stream
        uint64_t thread
        uint64_t bytes
        uint64_t address
        uint32_t what
        uint32_t range
        uint32_t parent
        uint32_t line
        uint32_t grid_x
        uint32_t shared
        int32_t instruction_offset
        uint16_t device
        uint8_t kind
        uint8_t state
        PyObject *code
        void *begin
        void *end
    struct uhal_profile_column:
        const char *name
        const char *format
        size_t offset
    const uhal_profile_column uhal_profile_columns[1]
    ctypedef struct uhal_profile_chunk:
        uhal_profile_chunk *next
        uint32_t count
        uhal_profile_record records[1]
    int64_t uhal_profile_now() nogil


cdef struct Watched:
    uhal_profile_record *record     # null: nothing is noted
    PyObject *session               # owned: it has the record's memory


# The innermost range as (session number, range index); each thread and each task has its own.
cdef object entered_range = _ContextVar("uhal range", default=(0, 0))

# The running session, or None.
cdef ProfileSession profiling = None
cdef uint64_t profile_sessions = 0


cdef object kept_record_dtype = None


cdef object record_dtype():
    """Return numpy's dtype of a record, made once.

    numpy 2.4 crashes if memory fails while it makes a dtype of a dictionary.
    """
    global kept_record_dtype
    cdef Py_ssize_t index
    if kept_record_dtype is not None:
        return kept_record_dtype
    names, formats, offsets = [], [], []
    for index in range(UHAL_PROFILE_COLUMNS):
        names.append(uhal_profile_columns[index].name.decode())
        formats.append(uhal_profile_columns[index].format.decode())
        offsets.append(uhal_profile_columns[index].offset)
    kept_record_dtype = _numpy.dtype({
        "names": names, "formats": formats, "offsets": offsets,
        "itemsize": sizeof(uhal_profile_record),
    })
    return kept_record_dtype


@cython.final
@cython.no_gc
cdef class ProfileSession:
    """ProfileSession(limit, by_node)\n--\n
    Records the lane's calls from `begin` to `end`.

    There is one session in a process at a time.

    A session keeps at most `limit` records and counts the others. With `by_node`, plans whose
    operations are all known are replayed operation by operation, and each operation gets its own
    times.
    """

    cdef uint64_t number
    cdef uint64_t limit
    cdef uint64_t count
    cdef bint by_node
    cdef uhal_profile_chunk *first
    cdef uhal_profile_chunk *last
    cdef list subjects      # Functions and names
    cdef dict subject_of    # name → its index in that list
    cdef list ranges        # (the enclosing range's index, name)
    cdef dict range_of      # the same → its index
    cdef list devices       # ProfiledDevices
    cdef list broken        # (name, reason) of devices that were not watched to the end
    cdef uint64_t dropped[16]
    cdef readonly object begun
    """Begin of the session in nanoseconds of CLOCK_MONOTONIC; None: not begun."""
    cdef readonly object ended
    """End of the session in nanoseconds of CLOCK_MONOTONIC, else None."""

    def __init__(self, limit, bint by_node):
        global profile_sessions
        record_dtype()  # now: memory may be short when the session ends
        self.limit = read_number("limit", limit, 1)
        profile_sessions += 1
        self.number = profile_sessions
        self.by_node = by_node
        self.subjects = [None]
        self.subject_of = {}
        self.ranges = [None]
        self.range_of = {}
        self.devices = []
        self.broken = []

    def __dealloc__(self):
        cdef uhal_profile_chunk *chunk
        cdef uint32_t index
        while self.first != NULL:
            chunk = self.first
            self.first = chunk.next
            for index in range(chunk.count):
                Py_XDECREF(chunk.records[index].code)
            c_free(chunk)

    def begin(self):
        """Start to record, on every open device and on devices opened later.

        Waits for their pending work. Devices that are lost, or fail now, are left out and named in
        `broken_devices`. Raises RuntimeError if another session runs or this session has run, and
        CaptureError while a stream is captured.
        """
        global profiling
        cdef Context context
        if profiling is not None:
            raise RuntimeError("begin: another profile is running. End it first.")
        if self.begun is not None:
            raise RuntimeError("begin: this profile has already run. Make another one.")
        found = [
            one for one in contexts
            if not (<Context>one).state.word & (UHAL_STATE_CLOSED | UHAL_STATE_FORKED)
        ]
        for context in found:
            if context.captures:
                capture_words().refuse_capture("a profile cannot begin during a capture")
        self.begun = uhal_profile_now()
        profiling = self
        try:
            for context in found:
                watch_device(self, context)
        except BaseException:
            self.end()
            raise

    def end(self):
        """Wait for every watched device, read the times, and stop recording.

        Raises errors that the wait finds. A device already known to be lost is only named in
        `broken_devices`.
        """
        global profiling
        cdef ProfiledDevice device
        cdef list failures
        if profiling is not self:
            return
        profiling = None
        for device in self.devices:
            detach_profile(device)
        failures = []
        self.ended = uhal_profile_now()
        for device in self.devices:
            try:
                if device.context.state.word & UHAL_STATE_LOST:
                    note_broken(self, device.context, device.context.lost)
                else:
                    synchronize_streams(device.context)
            except _errors.DeviceError as failure:
                failures.append(failure)
                note_broken(self, device.context, str(failure))
            finally:
                finish_times(device)
        if failures:
            raise failures[0]

    def columns(self):
        """Return the records as a structured array, in order of begin.

        `kind` counts in `profile_kinds()`. Open records were refused operations, which never ran.
        """
        cdef Py_ssize_t row = 0
        cdef uhal_profile_chunk *chunk = self.first
        found = _numpy.zeros(self.count, record_dtype())
        cdef char *to = <char *>_cnumpy.PyArray_DATA(found)
        while chunk != NULL:
            memcpy(to, chunk.records, chunk.count * sizeof(uhal_profile_record))
            to += chunk.count * sizeof(uhal_profile_record)
            chunk = chunk.next
        return found

    def lines(self):
        """Return the calling lines of records, numbered by `line`.

        Each line is (code object, instruction offset).

        The first line is None, for records without a known line. Call this before `columns`.
        """
        cdef uhal_profile_chunk *chunk = self.first
        cdef uhal_profile_record *record
        cdef uint32_t index
        cdef dict known = {}
        cdef list found = [None]
        while chunk != NULL:
            for index in range(chunk.count):
                record = &chunk.records[index]
                if record.code == NULL:
                    continue
                key = (<uintptr_t>record.code, record.instruction_offset)
                line = known.get(key)
                if line is None:
                    line = known[key] = len(found)
                    found.append((<object>record.code, record.instruction_offset))
                record.line = line
            chunk = chunk.next
        return found

    @property
    def subject_list(self):
        """The Functions and names of records, by `what`; the first is None."""
        return list(self.subjects)

    @property
    def range_list(self):
        """(enclosing range's number, name) by `range`; the first is None."""
        return list(self.ranges)

    @property
    def contexts(self):
        """(Context, bytes in use when the watching began, owners then) by `device`."""
        cdef ProfiledDevice device
        found = []
        for device in self.devices:
            found.append((device.context, device.bytes_before, device.owners_before))
        return found

    @property
    def broken_devices(self):
        """(name, reason) of each device that was not watched until the end."""
        return list(self.broken)

    @property
    def dropped_by_kind(self):
        """The number of records beyond the limit, by kind."""
        return {
            uhal_profile_kind_names[index].decode(): self.dropped[index]
            for index in range(UHAL_PROFILE_KINDS) if self.dropped[index]
        }


cdef int watch_device(ProfileSession session, Context context) except -1:
    """Watch a device from now on, or note that it is broken."""
    if context.state.word & UHAL_STATE_LOST:
        return note_broken(session, context, context.lost)
    try:
        attach_profile(session, context)
    except _errors.DeviceError as failure:
        note_broken(session, context, str(failure))
    return 0


cdef int note_broken(ProfileSession session, Context context, str words) except -1:
    session.broken.append((f"{context.backend_name}:{context.ordinal}", words))
    return 0


def profile_kinds():
    """Return the names of the kinds of records, in the order of their numbers."""
    return [uhal_profile_kind_names[index].decode() for index in range(UHAL_PROFILE_KINDS)]


def profile_session():
    """Return the ProfileSession under way, or None."""
    return profiling


cdef uint32_t innermost_range(ProfileSession session) except? 0:
    """Index of the caller's innermost range in this session; 0: no range."""
    cdef tuple entered = entered_range.get()
    return <uint32_t>entered[1] if <uint64_t>entered[0] == session.number else 0


cdef uhal_profile_record *new_record(ProfileSession session, int kind) except? NULL:
    """Return a record that begins now, or null at the limit."""
    cdef uhal_profile_chunk *chunk = session.last
    cdef uhal_profile_record *record
    if session.count >= session.limit:
        session.dropped[kind] += 1
        return NULL
    if chunk == NULL or chunk.count == UHAL_PROFILE_CHUNK:
        chunk = <uhal_profile_chunk *>calloc(1, sizeof(uhal_profile_chunk))
        if chunk == NULL:
            raise MemoryError
        if session.last == NULL:
            session.first = chunk
        else:
            session.last.next = chunk
        session.last = chunk
    record = &chunk.records[chunk.count]
    chunk.count += 1
    session.count += 1
    record.kind = kind
    record.thread = PyThread_get_thread_ident()
    if len(session.ranges) > 1:
        record.range = innermost_range(session)
    record.host_begin = uhal_profile_now()
    return record


cdef inline int note_line(uhal_profile_record *record) except -1:
    """Note the line of the program that is being executed, outside of uhal and ubridge."""
    cdef int offset = 0
    cdef PyObject *code = uhal_callsite(&offset)
    if code != NULL and is_file_of_ours((<PyCodeObject *>code).co_filename):
        return note_outer_line(record)
    record.instruction_offset = offset
    record.code = own(<object>code) if code != NULL else NULL
    return 0


cdef int note_outer_line(uhal_profile_record *record) except -1:
    """Note the line of the innermost frame outside of uhal and ubridge, else the innermost line."""
    innermost = frame = _sys._getframe()
    while frame is not None and is_file_of_ours(<PyObject *>frame.f_code.co_filename):
        frame = frame.f_back
    found = innermost if frame is None else frame
    record.instruction_offset = found.f_lasti
    record.code = own(found.f_code)
    return 0


cdef object last_file = None            # the last file, and whether it is internal
cdef bint last_file_is_ours = False
cdef dict files_of_ours = {}


cdef inline bint is_file_of_ours(PyObject *file) except -1:
    """Whether a source file belongs to uhal, ubridge or a backend. Most calls repeat the last
    file."""
    global last_file, last_file_is_ours
    if file != <PyObject *>last_file:
        known = files_of_ours.get(<object>file)
        if known is None:
            known = files_of_ours[<object>file] = _is_file_of_ours(<object>file)
        last_file = <object>file
        last_file_is_ours = known
    return last_file_is_ours


cdef bint _is_file_of_ours(str file) except -1:
    from uhal._refusal import is_file_of_ours

    return is_file_of_ours(file)


cdef uint32_t subject_named(ProfileSession session, str name) except? 0:
    found = session.subject_of.get(name)
    if found is None:
        found = session.subject_of[name] = len(session.subjects)
        session.subjects.append(name)
    return found


cdef inline uint32_t subject_of_kernel(ProfileSession session, Function function) except? 0:
    if function.profile_session != session.number:
        function.profile_session = session.number
        function.profile_subject = len(session.subjects)
        session.subjects.append(function)
    return function.profile_subject
