# Faults that kernels report and survive, such as an id out of bounds or a failed assertion: which
# waits raise them.
#
# A kernel does not know its stream. So a stream notes the last kernel it was given that may report,
# and a report goes to every stream with such a kernel since the host last waited for it. A stream
# that waits for another one takes on what that one may have to report: its data may depend on it.


cdef int may_report(StreamCore core) noexcept:
    """What the stream may have to report since the host last waited for it: NEEDS_…."""
    cdef int kinds, found = 0
    for kinds in range(1, 4):
        if core.reporting[kinds] > core.settled:
            found |= kinds << REPORTS
    return found


cdef int take_on_report(Context context, StreamCore core, StreamCore other) except -1:
    """Let a stream that waits for another raise what the other one would."""
    if context.watches is None or other is None or core is None or other is core:
        return 0
    core.reporting[may_report(other) >> REPORTS] = core.ticket + 1
    if core.report is None:
        core.report = other.report
    return 0


cdef inline int check_reports(Context context, StreamCore core) except -1:
    """Only where the user waits: what waits within must not fail for somebody's ids."""
    return 0 if context.watches is None else raise_report(context, core)


cdef int raise_report(Context context, StreamCore core) except -1:
    """Raise, once, what was reported to a stream that was waited for; None: to any."""
    cdef StreamCore one
    cdef list waited = list(context.streams.values()) if core is None else [core]
    # What ends from here on may report after the words are looked at.
    cdef list done = [(<StreamCore>each).completed for each in waited]
    report = None
    spread_reports(context)
    for one, ticket in zip(waited, done):
        one.settled = max(one.settled, <uint64_t>ticket)
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
        raise type(report)(*report.args)
    return 0


cdef int spread_reports(Context context) except -1:
    """Give new reports to the streams that may have made them; what no stream made is kept."""
    cdef _Watch watch = context.watches
    cdef StreamCore one
    cdef list marked
    while watch is not None:
        report = watch.report() if watch.word[0] != 0 else None
        if report is not None:
            marked = [one for one in context.streams.values() if may_report(one) & watch.needs]
            if len(marked) > 1:
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
