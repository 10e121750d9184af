# Prepared launches: the source of each argument is known, so a call allocates the result and the
# scratch memory, fills in the arguments, and launches.
# Frameworks keep a sequence for each operation they repeat; on few elements, finding a kernel takes
# longer than running it.

cdef PyObject *recorder = NULL  # the recorder, called for every call of a sequence; NULL: none

cdef enum:
    FROM_RESULT = -1
    FROM_SCRATCH = -2
    FIRST_OPERAND = 2           # in a call: behind stream and out
    MOST_OPERANDS = 1 << 30     # more than any call has, so indices fit an int


@cython.final
@cython.no_gc_clear
cdef class Passed:
    """Passed()\n--\n
    An argument of each `LaunchSequence` call, or the sequence's own memory.

    `Passed.operand(i)` is the i-th argument behind `out`, and `Passed.result()` the result.
    `Passed.scratch(start, size, dtype)` is a part of the memory that lasts from the first step to
    the last. With a `size`, `operand` and `result` are a part of their buffer: `size` elements of
    `dtype` from byte `start` on.
    """

    cdef readonly Py_ssize_t index
    """Index of the operand; -1: the result; -2: scratch memory."""
    cdef readonly Py_ssize_t start
    """Bytes before the first element."""
    cdef readonly Py_ssize_t size
    """Number of elements; -1: a whole buffer, or a number."""
    cdef readonly object dtype
    """The part's element type; None for a whole buffer or a number."""

    @staticmethod
    def operand(index, start=0, size=-1, dtype=None):
        """Return the argument `index` behind `out`, or a part of it.

        `index` counts from 0. A `size` selects a part of the buffer.
        """
        return new_passed(read_number("index", index, 0, MOST_OPERANDS), start, size, dtype)

    @staticmethod
    def result(start=0, size=-1, dtype=None):
        """Return the sequence's result; with a `size`, a part of it."""
        return new_passed(FROM_RESULT, start, size, dtype)

    @staticmethod
    def scratch(start, size, dtype):
        """Return elements of the sequence's memory, aligned like the pool's blocks."""
        return new_passed(FROM_SCRATCH, start, read_number("size", size), dtype)

    def __eq__(self, other):
        if not isinstance(other, Passed):
            return NotImplemented
        return passed_key(self) == passed_key(<Passed>other)

    def __hash__(self):
        return hash(passed_key(self))

    def __repr__(self):
        known = {FROM_RESULT: "result", FROM_SCRATCH: "scratch"}
        name = known.get(self.index, f"operand {self.index}")
        if self.size < 0:
            return f"<Passed {name}>"
        return f"<Passed {name}, {self.size} of {self.dtype} from byte {self.start}>"


cdef Passed new_passed(Py_ssize_t index, object start, object size, object dtype):
    cdef Passed passed = Passed.__new__(Passed)
    passed.index = index
    passed.start = read_number("start", start)
    passed.size = read_number("size", size, -1)
    if (passed.size < 0) != (dtype is None) or (passed.size < 0 and passed.start):
        raise _errors.ArgumentValueError(
            "size, dtype: expected both for a part of a buffer, got one of them or only a start"
        )
    passed.dtype = None if dtype is None else _as_dtype(dtype)
    return passed


cdef tuple passed_key(Passed passed):
    return passed.index, passed.start, passed.size, passed.dtype


@cython.final
@cython.no_gc_clear
cdef class SequenceStep:
    """SequenceStep()\n--\n
    One launch of a sequence, with the sources of its arguments."""

    cdef BoundLaunch bound
    cdef tuple kept                             # arguments that are always the same
    cdef tuple parts                            # Passed with a size, and scratch
    cdef PyObject *kept_at[STACK_PARAMETERS]    # the same, without a look-up in the tuple
    cdef int sources[STACK_PARAMETERS]          # of the call's arguments, or ~ of the kept ones
    cdef int part_at[STACK_PARAMETERS]          # the parameter each part is for
    cdef int result_at[STACK_PARAMETERS]        # the parameters that take the whole result
    cdef Py_ssize_t count
    cdef Py_ssize_t results


def _called_in_sequence(stream, out, /, *operands):
    """How a LaunchSequence is called; only its signature is used."""


cdef object signature_or_nothing(object callee, object name, object like):
    """`__getattr__` of a callable object: a signature for `inspect`, nothing else."""
    # `inspect` would also find a property on the class, and take the property for a signature.
    if name == "__signature__":
        import inspect
        return inspect.signature(like)
    raise AttributeError(f"{type(callee).__name__!r} object has no attribute {name!r}")


@cython.final
@cython.no_gc
cdef class Tally:
    """Tally()\n--\n
    A count that sequences share."""

    cdef public uint64_t count
    """Calls that enqueued every step; concurrent calls may be counted once."""


@cython.nonecheck(True)
@cython.final
@cython.no_gc_clear
cdef class LaunchSequence:
    """LaunchSequence(steps, size=None, dtype=None, *, operands=0, scratch=0, about=None, \
    tally=None)\n--\n
    Prepared launches that one call enqueues: `sequence(stream, out, *operands)`.

    `steps` are pairs of a bound launch and its arguments, in order. Each call passes the arguments
    that are `Passed`; the sequence keeps all others. A call passes all operands that
    the steps name, at least `operands`.

    A call returns `out`. If `out` is None, it returns a new buffer of `size` elements of `dtype`,
    allocated in the order of the stream. A sequence without a size needs an `out`. `scratch` bytes
    are allocated for each call, also in the order of the stream. With `stream` None each bound
    launch uses its own stream. `about` is any object that the maker attaches; a `tally` counts the
    calls.

    The arguments of every call are checked like a launch's arguments. The caller ensures that
    buffers are large enough. Raises as `launch` does; steps before a refused step are enqueued. Any
    thread may call it.
    """

    cdef uhal_vectorcall vectorcall
    cdef list steps
    cdef Context context
    cdef Element element        # of the result; None: a call must pass it
    cdef Py_ssize_t size        # its elements
    cdef readonly Py_ssize_t operands
    """How many arguments a call passes behind `out`."""
    cdef readonly Py_ssize_t scratch
    """Bytes that are allocated for each call."""
    cdef readonly object about
    """Any object that the maker attached to the sequence."""
    cdef Tally tally

    def __init__(
        self, steps, size=None, dtype=None, *, operands=0, scratch=0, about=None, Tally tally=None,
    ):
        cdef SequenceStep step
        cdef Py_ssize_t passed = read_number("operands", operands, 0, MOST_OPERANDS)
        if self.steps is not None:
            raise RuntimeError("a LaunchSequence is initialised once")
        if (size is None) != (dtype is None):
            raise _errors.ArgumentValueError("size, dtype: expected both or neither, got one")
        if size is not None:
            self.element = element_of(dtype)
            self.size = element_count(size, self.element)
        self.scratch = read_number("scratch", scratch)
        self.about = about
        self.tally = tally
        found = []
        for bound, arguments in steps:
            step = new_step(bound, tuple(arguments), self.scratch)
            context = step.bound.function.context
            if found and (<SequenceStep>found[0]).bound.function.context is not context:
                raise _errors.ArgumentValueError("steps: expected launches on one device")
            passed = max(passed, operands_of(step))
            found.append(step)
        if not found:
            raise _errors.ArgumentValueError("steps: expected one or more, got none")
        self.operands = passed
        self.context = (<SequenceStep>found[0]).bound.function.context
        self.steps = found
        self.vectorcall = <uhal_vectorcall>call_sequence

    def __getattr__(self, name):
        return signature_or_nothing(self, name, _called_in_sequence)

    def __len__(self):
        return 0 if self.steps is None else len(self.steps)

    def __reduce__(self):
        refuse_pickle(
            self,
            "kernels",
            "Send the image and the entries; make it there.",
        )

    def __repr__(self):
        if self.steps is None:
            return "<LaunchSequence, not made>"
        names = ", ".join((<SequenceStep>step).bound.function.name for step in self.steps)
        return f"<LaunchSequence of {names}>"


cdef SequenceStep new_step(BoundLaunch bound, tuple arguments, Py_ssize_t scratch):
    cdef SequenceStep step = SequenceStep.__new__(SequenceStep)
    cdef Passed passed
    if bound is None or bound.is_empty or bound.extended is not None:
        raise _errors.ArgumentValueError(
            "steps: expected launches of a grid and a block, and nothing else"
        )
    if len(arguments) > STACK_PARAMETERS:
        raise _errors.ArgumentValueError(
            f"steps: expected up to {STACK_PARAMETERS} arguments, got {len(arguments)}"
        )
    step.bound = bound
    step.count = len(arguments)
    kept, parts = [], []
    for index, argument in enumerate(arguments):
        step.sources[index] = 0
        if not isinstance(argument, Passed):
            step.sources[index] = ~<int>len(kept)
            kept.append(argument)
            continue
        passed = <Passed>argument
        if (
            passed.index == FROM_SCRATCH
            and passed.start + passed.size * passed.dtype.itemsize > scratch
        ):
            raise _errors.ArgumentValueError(
                f"steps: {passed!r} is beyond the {scratch} bytes of scratch"
            )
        if passed.size >= 0:
            step.part_at[len(parts)] = index
            parts.append(passed)
        elif passed.index == FROM_RESULT:
            step.result_at[step.results] = index
            step.results += 1
        else:
            step.sources[index] = FIRST_OPERAND + passed.index
    step.kept = tuple(kept)
    for index in range(len(kept)):
        step.kept_at[index] = PyTuple_GET_ITEM(step.kept, index)
    step.parts = tuple(parts)
    return step


cdef Py_ssize_t operands_of(SequenceStep step):
    """The least number of operands that gives the step its arguments."""
    cdef Py_ssize_t index, most = 0
    for index in range(step.count):
        most = max(most, step.sources[index] - FIRST_OPERAND + 1)
    for passed in step.parts:
        most = max(most, (<Passed>passed).index + 1)
    return most


cdef object call_sequence(object callee, PyObject **given, size_t flags, PyObject *keywords):
    """`sequence(stream, out, *operands)`."""
    cdef LaunchSequence sequence = <LaunchSequence>callee
    # A pointer, because an object would be reference-counted.
    cdef PyObject *step
    cdef PyObject *bound
    cdef StreamCore core = None
    cdef DeviceBuffer room = None
    cdef PyObject *arguments[STACK_PARAMETERS]
    cdef Py_ssize_t passed = PyVectorcall_NARGS(flags), index, number
    cdef int source
    if recorder != NULL and not uhal_in_sequence:
        return sequence_teller(sequence, given, flags, keywords)
    if passed != sequence.operands + FIRST_OPERAND or (
        keywords != NULL and PyTuple_GET_SIZE(<object>keywords)
    ):
        refuse_sequence_call(sequence, passed)
    if given[0] != Py_None:
        if (
            Py_IS_TYPE(given[0], <PyTypeObject *>Stream)
            and (<Stream>given[0]).context is sequence.context
        ):
            # The launch refuses a closed stream.
            core = (<Stream>given[0]).core
        else:
            core = core_for(sequence.context, <object>given[0])
    if given[1] != Py_None:
        made = <object>given[1]
    else:
        require_usable(sequence.context)
        if sequence.element is None:
            refuse_sequence_call(sequence, passed)
        made = with_memory(
            describe_counted(DeviceBuffer, sequence.context, sequence.size, sequence.element), core
        )
    if sequence.scratch:
        room = new_buffer(DeviceBuffer, sequence.context, sequence.scratch, element_of("u8"), core)
    for number in range(PyList_GET_SIZE(sequence.steps)):
        step = PyList_GET_ITEM(sequence.steps, number)
        for index in range((<SequenceStep>step).count):
            source = (<SequenceStep>step).sources[index]
            if source >= 0:
                arguments[index] = given[source]
            else:
                arguments[index] = (<SequenceStep>step).kept_at[~source]
        for index in range((<SequenceStep>step).results):
            arguments[(<SequenceStep>step).result_at[index]] = <PyObject *>made
        if PyTuple_GET_SIZE((<SequenceStep>step).parts):
            launch_on_parts(
                <SequenceStep>step, core, given, <PyObject *>made, room, arguments
            )
            continue
        bound = <PyObject *>(<SequenceStep>step).bound
        launch_checked(
            (<BoundLaunch>bound).function, (<BoundLaunch>bound).core if core is None else core,
            (<BoundLaunch>bound).geometry, (<BoundLaunch>bound).shared_bytes, arguments,
            (<SequenceStep>step).count, NULL,
        )
    if sequence.tally is not None:
        sequence.tally.count += 1
    return made


cdef object call_recorded(
    LaunchSequence sequence, PyObject **given, size_t flags, PyObject *keywords
):
    """Enqueue a sequence, and call the recorder."""
    global uhal_in_sequence
    uhal_in_sequence = 1
    try:
        made = call_sequence(sequence, given, flags, keywords)
    finally:
        uhal_in_sequence = 0
    if recorder != NULL:
        tell_recorder(sequence, given, PyVectorcall_NARGS(flags), made)
    return made


cdef int launch_on_parts(
    SequenceStep step, StreamCore core, PyObject **given, PyObject *made, DeviceBuffer room,
    PyObject **arguments
) except -1:
    """Launch a step that takes parts of buffers: views, which live until it is enqueued."""
    cdef Passed passed
    cdef Py_ssize_t index
    cdef list views = []
    for index in range(len(step.parts)):
        passed = <Passed>step.parts[index]
        if passed.index == FROM_SCRATCH:
            whole = room
        elif passed.index == FROM_RESULT:
            whole = <object>made
        else:
            whole = <object>given[FIRST_OPERAND + passed.index]
        views.append(part_of(whole, passed))
        arguments[step.part_at[index]] = PyList_GET_ITEM(views, index)
    launch_checked(
        step.bound.function, step.bound.core if core is None else core, step.bound.geometry,
        step.bound.shared_bytes, arguments, step.count, NULL,
    )
    return 0


cdef DeviceBuffer part_of(object whole, Passed passed):
    """The part of a buffer that a step takes."""
    cdef DeviceBuffer buffer
    if not isinstance(whole, DeviceBuffer):
        raise _errors.ArgumentTypeError(f"expected a DeviceBuffer, got {type(whole).__name__}")
    buffer = <DeviceBuffer>whole
    require_buffer(buffer)
    if passed.start + passed.size * passed.dtype.itemsize > buffer.nbytes:
        raise _errors.ArgumentValueError(
            f"{passed!r}: expected a buffer that holds it, got one of {buffer.nbytes} bytes"
        )
    return make_view(buffer, passed.start, passed.size, passed.dtype)


cdef int refuse_sequence_call(LaunchSequence sequence, Py_ssize_t passed) except -1:
    out = "out" if sequence.element is not None else "out, which must be a buffer,"
    raise TypeError(
        f"{sequence!r}: expected stream, {out} and {sequence.operands} operands and no keywords, "
        f"got {passed} arguments"
    )


cdef int tell_recorder(
    LaunchSequence sequence, PyObject **given, Py_ssize_t passed, object made
) except -1:
    """Report an enqueued call: `recorder(sequence, result, is_new, operands)`."""
    operands = tuple([<object>given[index] for index in range(FIRST_OPERAND, passed)])
    told = <object>recorder
    told(sequence, made, given[1] == Py_None, operands)
    return 0


# A pointer, for the same reason as `launch_teller`.
cdef object (*sequence_teller)(LaunchSequence, PyObject **, size_t, PyObject *)
sequence_teller = call_recorded


def set_recorder(callback):
    """Call `callback(sequence, result, is_new, operands)` for every call of every sequence.

    The calling thread calls it after all steps are enqueued; `is_new` says whether the call
    allocated the result. The call raises the callback's exception. There is one recorder in a
    process; None removes it. Returns the previous recorder, or None.
    """
    global recorder
    if callback is not None and not callable(callback):
        raise TypeError(f"callback: expected a callable or None, got {type(callback).__name__}")
    before = None if recorder == NULL else <object>recorder
    if callback is not None:
        Py_INCREF(callback)
    if recorder != NULL:
        Py_DECREF(<object>recorder)
    recorder = NULL if callback is None else <PyObject *>callback
    return before


cdef LaunchSequence _sequence_layout = LaunchSequence.__new__(LaunchSequence)
uhal_enable_vectorcall(
    LaunchSequence, <char *>&_sequence_layout.vectorcall - <char *><PyObject *>_sequence_layout
)
