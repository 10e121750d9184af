# Faults that kernels report and survive, such as an id out of bounds or a failed assertion, and the
# waits that raise them.
#
# A stream notes its last kernel that may report. A report by a host kernel names its stream and
# launch, so only this stream gets the report. Any other report goes to every stream that ran
# reporting kernels since the host's last wait for the stream. A stream that waits for another
# stream also gets the reports of the other stream's earlier work, because its data may depend on
# that work.


cdef enum:
    ALL = <uint64_t>-1      # launches


@cython.final
cdef class _Moment:
    """A stream's reporting kernels up to a ticket."""

    cdef uint64_t ticket
    cdef uint64_t reporting[4]    # the last tickets of kernels that may report
    cdef uint64_t launches        # how many, as the driver counts them


@cython.final
cdef class _Reported:
    """A report that streams are to raise."""

    cdef object error       # or a warning
    cdef object handle      # of the stream whose kernel reported, or None
    cdef uint64_t launch    # number of launches before it in that stream
    cdef int needs          # kinds of kernels that make such reports: NEEDS_…


cdef _Moment moment_at(StreamCore core, uint64_t ticket):
    """A stream's reporting kernels up to a ticket, possibly including later kernels."""
    cdef _Moment moment = _Moment.__new__(_Moment)
    cdef int kinds
    moment.ticket = ticket
    for kinds in range(1, 4):
        moment.reporting[kinds] = min(core.reporting[kinds], ticket)
    # Other libraries launch in a foreign stream, too.
    moment.launches = launches_at(core.ledger, ticket) if core.owned and not core.shared else ALL
    return moment


cdef uint64_t launches_at(uhal_ledger *ledger, uint64_t ticket) noexcept:
    cdef uint64_t count = ledger.count if ledger != NULL else 0
    cdef uint64_t oldest = count - min(count, <uint64_t>UHAL_LEDGER_LENGTH)
    while count > oldest and ledger.records[(count - 1) % UHAL_LEDGER_LENGTH].ticket > ticket:
        count -= 1
    return count


cdef int kinds_since(StreamCore core, _Moment moment) noexcept:
    """Kinds of kernels (NEEDS_…) that may have reported since the last wait."""
    cdef int kinds, found = 0
    for kinds in range(1, 4):
        if moment.reporting[kinds] > core.settled:
            found |= kinds << REPORTS
    return found


cdef bint may_have_met(
    StreamCore core, _Moment moment, dict follows, _Reported report
) except -1:
    """Whether a stream's work up to a moment, or work before it, may have made the report."""
    cdef StreamCore other
    cdef _Moment its
    if report.handle is None:
        if kinds_since(core, moment) & report.needs:
            return True
    elif <uintptr_t>core.handle == <uintptr_t>report.handle and report.launch < moment.launches:
        return True
    if follows is not None:
        for other, its in follows.items():
            if may_have_met(other, its, None, report):
                return True
    return False


cdef int take_on_reports(
    StreamCore core, StreamCore other, _Moment moment, dict follows
) except -1:
    """Let a stream raise another stream's reports of work up to a moment."""
    cdef StreamCore one
    cdef _Moment its, known
    if core.report is None and other.report is not None:
        if may_have_met(other, moment, follows, other.report):
            core.report = other.report
    if moment.ticket <= other.settled:
        return 0
    # Events may hold the dictionaries, which are therefore never changed.
    found = dict(core.follows or ())
    for one, its in {**(follows or {}), other: moment}.items():
        known = found.get(one)
        if one is not core and (known is None or known.ticket < its.ticket):
            found[one] = its
    core.follows = {
        one: its for one, its in found.items() if (<_Moment>its).ticket > (<StreamCore>one).settled
    }
    core.followed = core.ticket + 1
    return 0


cdef inline int check_reports(Context context, StreamCore core) except -1:
    """Raise reports in a user's wait; internal waits must not raise reports."""
    cdef _Watch watch = context.watches
    if watch is None:
        return 0
    if core is None or core.report is not None:
        return raise_report(context, core)
    cdef uint64_t done = core.completed
    while watch is not None:
        # Another thread may have taken a report of this stream but not given it to the stream yet.
        if watch.word[0] != 0 or context.spreads:
            return raise_report(context, core)
        watch = watch.next
    return settle_reports(core, done)


cdef inline int settle_reports(StreamCore core, uint64_t done) except -1:
    """Note that the host knows all reports of work up to `done`."""
    core.settled = max(core.settled, done)
    if core.followed <= core.settled:
        core.follows = None
    return 0


cdef int raise_report(Context context, StreamCore core) except -1:
    """Raise, once, the reports of a stream that was waited for; None: of any stream."""
    cdef StreamCore one
    cdef _Reported report = None
    cdef list waited = list(context.streams.values()) if core is None else [core]
    # Read the ends of work before the reports, because work that ends later may also report later.
    cdef list done = [(<StreamCore>each).completed for each in waited]
    spread_reports(context)
    for one, ticket in zip(waited, done):
        settle_reports(one, ticket)
        if report is None:
            report = one.report
        if one.report is report:
            one.report = None
    if core is None and report is None:
        report, context.unclaimed = context.unclaimed, None
    if report is None:
        return 0
    error = report.error
    if isinstance(error, Warning):
        import warnings
        warnings.warn(error)
    else:
        # Each thread raises an exception of its own, because an exception has one thread's
        # traceback.
        raised = type(error)(*error.args)
        raised.__dict__.update(error.__dict__)
        raise raised
    return 0


cdef int spread_reports(Context context) except -1:
    """Give new reports to the streams that may have made them; keep reports without a stream."""
    cdef _Watch watch
    cdef _Reported report
    if context.spreading is None:
        return 0
    with context.spreading:
        context.spreads += 1
        try:
            watch = context.watches
            while watch is not None:
                for error, handle, launch in watch.report() if watch.word[0] != 0 else ():
                    report = _Reported.__new__(_Reported)
                    report.error, report.handle, report.launch = error, handle, launch
                    report.needs = watch.needs
                    give_report(context, report)
                watch = watch.next
        finally:
            context.spreads -= 1
    return 0


cdef int give_report(Context context, _Reported report) except -1:
    """Let the streams that may have made a report raise it."""
    cdef StreamCore one
    cdef _Moment now
    cdef list marked = []
    for one in context.streams.values():
        now = moment_at(one, one.ticket)
        now.launches = ALL
        if may_have_met(one, now, one.follows, report):
            # Nobody waits for a closed stream: the default stream raises its reports.
            one = context.default_core if one.closed else one
            if one is not None and one not in marked:
                marked.append(one)
    if report.handle is None and len(marked) > 1:
        report.error = type(report.error)(
            f"{report.error}; by one of {len(marked)} streams with such kernels, each of which "
            "raises it"
        )
    for one in marked:
        if one.report is None or is_earlier(report, one.report):
            one.report = report
    if not marked and context.unclaimed is None:
        context.unclaimed = report
    return 0


cdef inline bint is_earlier(_Reported report, _Reported other) noexcept:
    """Whether a report is from an earlier launch of the same stream."""
    if report.handle is None or other.handle is None:
        return False
    return <uintptr_t>report.handle == <uintptr_t>other.handle and report.launch < other.launch


cdef bint is_behind(StreamCore core, uintptr_t handle) except -1:
    """Return whether `core` is the handle's stream or has waited for it."""
    cdef StreamCore other
    if <uintptr_t>core.handle == handle:
        return True
    for other in core.follows or ():
        if <uintptr_t>other.handle == handle:
            return True
    return False


cdef int begin_reports(Context context, StreamCore core) except -1:
    """Distribute a closed stream's reports before its handle is reused."""
    cdef StreamCore one
    cdef uintptr_t handle = <uintptr_t>core.handle
    cdef list earlier = [one for one in context.streams.values() if is_behind(one, handle)]
    if earlier:
        spread_reports(context)
    for one in earlier:
        # Some drivers reuse the handle while work of the closed stream is pending.
        if one.closed and core_is_idle(context, one):
            forget_core(context, one)
        if one.follows is not None:
            one.follows = {
                other: its
                for other, its in one.follows.items()
                if <uintptr_t>(<StreamCore>other).handle != handle
            }
    return 0
