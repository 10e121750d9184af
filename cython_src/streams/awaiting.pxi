# `await stream` and `await event`: asyncio polls them until the work is done (uhal/_awaiting.py).


@cython.final
cdef class _Awaited:
    """A stream's work, or an event's mark, at the beginning of an `await`."""

    cdef Context context
    cdef StreamCore core
    cdef uint64_t ticket
    cdef Event event        # None: the stream itself

    def __call__(self):
        """Return whether the work is done; if so, raise its reports."""
        if not awaited_is_done(self):
            return False
        note_completed(self.core, self.ticket)
        check_reports(self.context, self.core)
        return True


cdef bint awaited_is_done(_Awaited awaited) except -1:
    cdef StreamCore core = awaited.core
    if core.capture is not None:
        # A capturing stream runs nothing, so only marks of earlier work can be queried.
        poll_markers(awaited.context, core)
        return core.completed >= awaited.ticket
    if awaited.event is not None and awaited.event.handle_ != NULL:
        if awaited.event.query():
            return True
    return is_complete(awaited.context, core.id, awaited.ticket, True)


cdef object await_work(Context context, StreamCore core, uint64_t ticket, Event event):
    """The iterator that `__await__` returns."""
    from uhal import _awaiting
    cdef _Awaited awaited = _Awaited.__new__(_Awaited)
    awaited.context = context
    awaited.core = core
    awaited.ticket = ticket
    awaited.event = event
    return _awaiting.until(awaited).__await__()
