# Faults that kernels report and survive, such as an id out of bounds or a failed assertion, and the
# waits that raise them.
#
# A stream notes the last kernel it was given that may report. Kernels of the host know their
# stream, and a report goes to this stream. Other kernels do not, and a report goes to every stream
# with such a kernel since the host last waited for it. A stream that waits for another one takes on
# what that one may have to report: its data may depend on it.


cdef int may_report(StreamCore core) noexcept:
    """What the stream may have to report since the host last waited for it: NEEDS_…."""
    cdef int kinds, found = 0
    for kinds in range(1, 4):
        if core.reporting[kinds] > core.settled:
            found |= kinds << REPORTS
    return found


cdef int take_on_report(Context context, StreamCore core, StreamCore other) except -1:
    """Pass the possible reports of a stream to a stream that waits for it."""
    if context.watches is None or other is None or core is None or other is core:
        return 0
    cdef int needs = may_report(other)
    if needs:
        core.reporting[needs >> REPORTS] = core.ticket + 1
    if other.ticket > other.settled:
        core.follows = (core.follows or set()) | (other.follows or set())
        core.follows.add(<uintptr_t>other.handle)
        core.followed = core.ticket + 1
    if core.report is None:
        core.report = other.report
    return 0


cdef inline int check_reports(Context context, StreamCore core) except -1:
    """Only where the user waits: what waits within must not fail for somebody's ids."""
    cdef _Watch watch = context.watches
    if watch is None:
        return 0
    if core is None or core.report is not None:
        return raise_report(context, core)
    cdef uint64_t done = core.completed
    while watch is not None:
        if watch.word[0] != 0:
            return raise_report(context, core)
        watch = watch.next
    return settle_reports(core, done)


cdef inline int settle_reports(StreamCore core, uint64_t done) except -1:
    """Note that the host waited for work up to `done` and knows of all its reports."""
    core.settled = max(core.settled, done)
    if core.followed <= core.settled:
        core.follows = None
    return 0


cdef int raise_report(Context context, StreamCore core) except -1:
    """Raise, once, the reports of a stream that was waited for; None: of any stream."""
    cdef StreamCore one
    cdef list waited = list(context.streams.values()) if core is None else [core]
    # What ends from here on may report after the words are looked at.
    cdef list done = [(<StreamCore>each).completed for each in waited]
    report = None
    spread_reports(context)
    for one, ticket in zip(waited, done):
        settle_reports(one, ticket)
        if report is None:
            report = one.report
        if one.report is report:
            one.report = None
    if core is None and report is None:
        report, context.unclaimed = context.unclaimed, None
    if isinstance(report, Warning):
        import warnings
        warnings.warn(report)
    elif report is not None:
        # An exception belongs to one thread: it gets that thread's traceback.
        raised = type(report)(*report.args)
        raised.__dict__.update(report.__dict__)
        raise raised
    return 0


cdef int spread_reports(Context context) except -1:
    """Give new reports to the streams that made them, or may have; what no stream made is kept."""
    cdef _Watch watch = context.watches
    cdef StreamCore one
    cdef list marked
    while watch is not None:
        for report, handle in watch.report() if watch.word[0] != 0 else ():
            marked = []
            for one in context.streams.values():
                if may_report(one) & watch.needs if handle is None else is_behind(one, handle):
                    # Nobody waits for a closed stream: the default stream raises its reports.
                    one = context.default_core if one.closed else one
                    if one is not None and one not in marked:
                        marked.append(one)
            if handle is None and len(marked) > 1:
                report = type(report)(
                    f"{report}; by one of {len(marked)} streams with such kernels, each of which "
                    "raises it"
                )
            for one in marked:
                if one.report is None:
                    one.report = report
            if not marked and context.unclaimed is None:
                context.unclaimed = report
        watch = watch.next
    return 0


cdef inline bint is_behind(StreamCore core, uintptr_t handle) except -1:
    """Whether it is the stream, or waited for it."""
    return <uintptr_t>core.handle == handle or (core.follows is not None and handle in core.follows)


cdef int begin_reports(Context context, StreamCore core) except -1:
    """A new stream may have the handle of an ended one, whose reports go out first."""
    cdef StreamCore one
    cdef uintptr_t handle = <uintptr_t>core.handle
    cdef list earlier = [one for one in context.streams.values() if is_behind(one, handle)]
    if earlier:
        spread_reports(context)
    for one in earlier:
        if one.closed:
            forget_core(context, one)
        if one.follows is not None:
            one.follows.discard(handle)
    return 0
