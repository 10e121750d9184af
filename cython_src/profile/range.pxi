# Ranges: names for parts of the program, and for the work they enqueue.


@cython.final
cdef class OpenRange:
    """OpenRange(name, stream=None, nbytes=0)\n--\n
    A named range of a thread or task in the running profile.

    The range lasts from its construction to `close`.

    With a stream, the stream's work inside the range is timed on its device under this name.
    """

    cdef ProfileSession session
    cdef tuple before
    cdef uhal_profile_record *record
    cdef Watched watched
    cdef StreamCore core
    cdef Context context

    def __init__(self, str name not None, stream=None, nbytes=0):
        cdef uint32_t enclosing
        cdef Py_ssize_t worked = read_number("nbytes", nbytes)
        if profiling is None:
            return
        self.session = profiling
        self.before = entered_range.get()
        enclosing = innermost_range(self.session)
        self.record = new_record(self.session, UHAL_PROFILE_RANGE)
        index = self.session.range_of.get((enclosing, name))
        if index is None:
            index = len(self.session.ranges)
            self.session.range_of[enclosing, name] = index
            self.session.ranges.append((enclosing, name))
        entered_range.set((self.session.number, index))
        if self.record != NULL:
            self.record.range = index
            self.record.what = subject_named(self.session, name)
            note_line(self.record)
        if stream is not None:
            self.context = context_of(stream.device)
            self.core = core_for(self.context, stream)
            watch(
                &self.watched, self.context, self.core, UHAL_PROFILE_WORK,
                subject_named(self.session, name), worked,
            )
            begin_times(&self.watched, self.context, self.core)

    def close(self):
        """End the range. Call it once, in the same thread or task."""
        if self.session is None:
            return
        if self.core is not None:
            end_times(&self.watched, self.context, self.core)
            let_go_watched(&self.watched)
        entered_range.set(self.before)
        if self.record != NULL:
            self.record.host_end = uhal_profile_now()
            self.record.state = UHAL_PROFILE_CLOSED
        self.session = None
