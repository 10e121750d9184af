# A plan: the recording of a capture, replayed as a whole with one native call.

cdef enum PlanState:
    PLAN_RECORDING
    PLAN_READY
    PLAN_CLOSED


@cython.final
@cython.no_gc_clear
cdef class Plan:
    """Plan()\n--\n
    A recorded capture, replayed as a whole.

    Made by `with stream.capture() as plan:`, run by `plan.replay()`.

    Until it is closed, a plan holds its kernels' modules and the memory that its launches use, even
    if the buffers are closed. Replays of one plan never overlap. Any thread may replay a plan.
    During a capture, only the thread that began the capture may use its streams.
    """

    cdef Context context
    cdef readonly str name
    """The name from the caller, else a generated name."""
    cdef readonly str begun
    """Where the capture began: `file.py:line`."""
    cdef PlanState state
    cdef StreamCore core            # of the stream the capture began on
    cdef Stream stream              # keeps it open
    cdef unsigned long thread       # that captures
    cdef Recording recording
    cdef object graph               # native; 0: none
    cdef object executable
    cdef bint noted                 # the library records nothing: operations are noted here
    cdef bint one_by_one            # no graph: its operations are enqueued one after the other
    cdef bint is_listed             # the recording has every operation of the graph
    cdef list functions             # of the launches, in their order
    cdef dict slot_of_name
    cdef list slots                 # the same as a list: iterating a dict takes ten times as long
    cdef dict slots_of_block        # Block, or None for memory without one → [PlanSlot]
    cdef dict held                  # Block → {stream id: that stream's clock at its last use}
    cdef list memory                # HostMemory of the copies, HeldMemory of other devices
    cdef list modules               # of the kernels, each once
    cdef void **blocks              # the keys of `held`
    cdef Py_ssize_t block_count
    cdef Stamp last                 # the last replay
    cdef object lock
    cdef bint replaying
    cdef int needs                  # reports its kernels may make: NEEDS_CHECKING, NEEDS_HEARING
    # only during the capture:
    cdef list members               # the Streams that record
    cdef dict clocks                # stream id → {stream id: work of that stream it comes after}
    cdef dict joined_at             # stream id → where it joined
    cdef dict arena                 # size class → Blocks allocated by the capture
    cdef object __weakref__

    def __dealloc__(self):
        c_free(self.blocks)
        if self.context is None or self.state == PLAN_CLOSED:
            return
        try:
            release_plan(self)
        except BaseException as failure:
            warn_of_failed_end(f"closing plan {self.name!r}", failure)

    @property
    def device(self):
        """The device the plan runs on."""
        return device_of(self.context)

    @property
    def kernels(self):
        """Names of the launched kernels, in the order of their capture."""
        return tuple([key[0] for key in self.recording.keys[:self.recording.count]])

    @property
    def slots(self):
        """The slots by name."""
        return dict(self.slot_of_name)

    @property
    def closed(self):
        """True once closed."""
        return self.state == PLAN_CLOSED

    def slot(self, name, value):
        """Name a value that each replay can change.

        Call it during the capture, before the value's first use.

        `value` is a number or a DeviceBuffer. Pass a number to launches as the returned slot.
        Launches that use the buffer, or a view of the buffer, follow the slot. A replay's buffer
        must have the same dtype and be at least as long.
        """
        if not isinstance(name, str):
            refuse_kind("slot, name", "a str", name, "The name is first: plan.slot(name, value).")
        return declare_slot(self, name, value)

    def replay(self, stream=None, **slots):
        """Run the captured work in the order of `stream`.

        The default is the captured stream.

        Keywords give slots new values, which stay until another replay changes them. The values are
        checked like arguments of a launch; nothing runs if a value is wrong. Returns at once.

        Raises InvalidHandleError when the plan or a module of its kernels is closed, DeviceError
        when the device is lost.
        """
        replay_plan(self, stream, slots)

    def close(self):
        """Wait for the last replay and release everything held.

        Closing twice is fine.

        During the capture, closing abandons the capture.
        """
        if self.state == PLAN_RECORDING:
            abandon_capture(self)
            return
        with self.lock:
            if not self.replaying and self.state == PLAN_READY:
                if not self.context.state.word & UHAL_STATE_FORKED:
                    release_plan(self)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __len__(self):
        return self.recording.count

    def __reduce__(self):
        refuse_pickle(
            self,
            "recorded work",
            "Capture it there.",
        )

    def __repr__(self):
        state = {PLAN_RECORDING: ", recording", PLAN_CLOSED: ", closed"}.get(self.state, "")
        count = self.recording.count
        return (
            f"<Plan {self.name} of {count} launch{'' if count == 1 else 'es'} on "
            f"{self.context.backend_name}:{self.context.ordinal}{state}>"
        )

    def __str__(self):
        return capture_words().describe_plan(
            self, [describe_launch(self.recording, i) for i in range(self.recording.count)]
        )


cdef Plan new_plan(Context context, StreamCore core, object name, str begun):
    cdef Plan plan = Plan.__new__(Plan)
    plan.name = begun if name is None else str(name)
    plan.begun = begun
    plan.state = PLAN_CLOSED
    plan.core = core
    plan.thread = PyThread_get_thread_ident()
    plan.recording = Recording.__new__(Recording, plan.name)
    plan.graph = plan.executable = 0
    plan.functions = []
    plan.slot_of_name = {}
    plan.slots = []
    plan.slots_of_block = {}
    plan.held = {}
    plan.memory = []
    plan.modules = []
    plan.lock = _threading.RLock()
    plan.members = []
    plan.clocks = {}
    plan.joined_at = {}
    plan.arena = {}
    plan.context = context
    return plan


cdef int instantiate(Plan plan) except -1:
    """Make the recording ready to run; the device is current."""
    cdef Py_ssize_t index
    backend = plan.context.backend
    # If the library cannot change a launch inside a graph, operations are enqueued one by one: a
    # new capture for every new value would take longer.
    plan.one_by_one = plan.noted or (
        plan.slot_of_name and plan.context.table.graph_update_kernel == NULL
    )
    if not plan.one_by_one:
        ready = backend.instantiate_graph(plan.graph)
        plan.executable = ready.handle
        plan.is_listed = is_all(plan.recording, ready)
        if plan.slot_of_name:
            place_nodes(plan, ready.kernels)
    if plan.graph and (plan.one_by_one or not plan.slot_of_name):
        graph, plan.graph = plan.graph, 0
        backend.destroy_graph(graph)
    plan.blocks = <void **>malloc(max(len(plan.held), 1) * sizeof(void *))
    if plan.blocks == NULL:
        raise MemoryError
    for index, block in enumerate(plan.held):
        plan.blocks[index] = <void *>block
    plan.block_count = len(plan.held)
    modules = [(<Function>function).module for function in plan.functions]
    plan.modules = list({id(module): module for module in modules}.values())
    plan.arena = {}
    return 0


cdef bint is_all(Recording recording, object ready) except -1:
    """Whether a graph contains only our recording: a library may add operations of its own."""
    cdef Py_ssize_t others = recording.operation_count - recording.count
    return (
        ready.kernels is not None
        and len(ready.kernels) == recording.count
        and (ready.others is None or ready.others == others)
    )


cdef int place_nodes(Plan plan, object kernels) except -1:
    """Find the node of each launch, for the slots."""
    cdef Py_ssize_t index
    if len(kernels) != plan.recording.count:
        kernels = own_kernels(plan, kernels)
    if len(kernels) != plan.recording.count:
        capture_words().refuse_count(plan, len(kernels), plan.recording.count)
    for index, node in enumerate(kernels):
        plan.recording.launches[index].node = <void *><uintptr_t>node
    return 0


cdef list own_kernels(Plan plan, object kernels):
    """The nodes of our launches, without the kernels that another library launched."""
    cdef Py_ssize_t index
    backend = plan.context.backend
    functions = {
        <uintptr_t>plan.recording.launches[index].function for index in range(plan.recording.count)
    }
    return [node for node in kernels if backend.graph_kernel_function(node) in functions]


cdef int release_plan(Plan plan) except -1:
    """Destroy native objects after the last replay, and release everything held."""
    cdef Context context = plan.context
    cdef void *previous
    cdef Block block
    cdef PlanSlot slot
    if plan.last.stream_id and not exiting and not context.state.word & (
        UHAL_STATE_FORKED | UHAL_STATE_LOST
    ):
        try:
            # a signal may end this wait, so everything is released after the wait
            settle_stamp(context, plan.last)
        except _errors.DeviceError:
            if not context.state.word & UHAL_STATE_LOST:
                raise
            # a lost device answers every call with its error
    if plan.state == PLAN_CLOSED:
        return 0  # a signal handler closed it
    plan.state = PLAN_CLOSED
    live.plans -= 1
    if exiting or context.state.word & UHAL_STATE_FORKED:
        return 0
    try:
        previous = enter(context)
        try:
            destroy_graphs(plan)
        finally:
            leave(context, previous)
    except _errors.DeviceError:
        if not context.state.word & UHAL_STATE_LOST:
            raise
        # a lost device answers every call with its error
    finally:
        held = list(plan.held)
        for slot in plan.slot_of_name.values():
            if slot.block is not None:
                held.append(slot.block)
            slot.block = None
        plan.held = {}
        plan.arena = {}
        plan.block_count = 0
        plan.memory = []
        plan.functions = []
        plan.modules = []
        for block in held:
            let_go(context, block)
    return 0


cdef int destroy_graphs(Plan plan) except -1:
    backend = plan.context.backend
    executable, plan.executable = plan.executable, 0
    graph, plan.graph = plan.graph, 0
    try:
        if executable:
            backend.destroy_executable_graph(executable)
    finally:
        if graph:
            backend.destroy_graph(graph)
    return 0


# -- replay ----------------------------------------------------------------------------------------


cdef int replay_plan(Plan plan, object stream, dict values) except -1:
    cdef StreamCore core
    with plan.lock:
        require_plan(plan)
        if plan.replaying:
            capture_words().refuse_plan(plan, "a value given to a replay asks for another replay")
        core = core_for(plan.context, stream) if stream is not None else plan.core
        require_stream(plan.context, core)
        refuse_capturing(core, "Plan.replay", "no plan in a plan")
        if core.state.word & UHAL_STATE_BARRED:
            refuse_barred(plan.context, core, "Plan.replay")
        if core.state.word & UHAL_STATE_OBSERVED:
            tell_observer(plan.context, core, ("replay", plan))
        plan.replaying = True
        try:
            if values:
                change_slots(plan, values)
            run_plan(plan, core)
        finally:
            plan.replaying = False
    return 0


cdef int require_plan(Plan plan) except -1:
    cdef ModuleHandle module
    if plan.context is None:
        refuse_unmade()
    if plan.context.state.word & UHAL_STATE_REFUSES:
        refuse_unusable(plan.context)
    if plan.state != PLAN_READY:
        capture_words().refuse_plan(
            plan, "it is closed" if plan.state == PLAN_CLOSED else "it is still being captured"
        )
    for module in plan.modules:
        if module.closed:
            capture_words().refuse_plan(plan, "a module whose kernels it launches is closed")
    return 0


cdef int change_slots(Plan plan, dict values) except -1:
    """Give slots new values: all of them, or none if a value is wrong."""
    cdef PlanSlot slot
    for name, value in values.items():
        slot = plan.slot_of_name.get(name)
        if slot is None:
            known = ", ".join(plan.slot_of_name) or "none"
            capture_words().refuse_slot_name(plan, name, f"it has no such slot, only {known}")
        stage_slot(plan, slot, value)
    for name, value in values.items():
        commit_slot(plan, <PlanSlot>plan.slot_of_name[name], value)
    return 0


cdef int run_plan(Plan plan, StreamCore core) except -1:
    """Run the plan: native calls, one ticket, stamps on everything used."""
    cdef Context context = plan.context
    cdef Py_ssize_t index
    cdef int status
    cdef const char *called = NULL
    cdef void *previous
    cdef PlanSlot slot
    for index in range(plan.block_count):
        if must_wait(plan.blocks[index], core.id):
            wait_until_ready(context, <Block>plan.blocks[index], core)
    for slot in plan.slots:
        if slot.block is not None:
            wait_until_ready(context, slot.block, core)
    if plan.one_by_one:
        # A driver orders the runs of a graph; the lane must order replays of a list.
        wait_for(context, core, plan.last.stream_id, plan.last.ticket)
    if core.ledger == NULL:
        core.ledger = uhal_ledger_new()
        if core.ledger == NULL:
            raise MemoryError
    previous = enter(context)
    if core.state.word & UHAL_STATE_PROFILED:
        status = run_watched(plan, core, &called)
    else:
        note_replay(core, plan.recording)
        status = run_natively(plan, core, &called)
    # take a ticket also after a failure, because a part of the plan may run
    core.ticket += 1
    core.reporting[plan.needs >> REPORTS & 3] = core.ticket
    stamp_plan(plan, core)
    leave(context, previous)
    if status != 0:
        raise_native(context, status, called.decode())
    if core.state.word:
        after_launch(context, core)
    return 0


cdef int run_natively(Plan plan, StreamCore core, const char **called) except? -1:
    """Run the plan; return the driver's status and its slot."""
    cdef Context context = plan.context
    cdef uhal_hot_table *table = context.table
    cdef void *executable = <void *><uintptr_t>plan.executable
    cdef Recording recording = plan.recording
    cdef Py_ssize_t index
    cdef int status = 0
    if plan.one_by_one:
        called[0] = "launch"
        hold_core(core)
        with nogil:
            if table.stream_series != NULL:
                status = table.stream_series(core.handle, 1)
            for index in range(recording.operation_count):
                if status != 0:
                    break
                status = run_operation(table, recording, index, core.handle)
            if table.stream_series != NULL:
                table.stream_series(core.handle, 0)
        let_go_core(context, core)
        return status
    called[0] = "graph_update_kernel"
    status = tell_changes(plan, executable)
    if status == 0:
        called[0] = "graph_launch"
        hold_core(core)
        with nogil:
            status = table.graph_launch(executable, core.handle)
        let_go_core(context, core)
    return status


cdef int note_node(StreamCore core, Recording recording, Py_ssize_t index) except -1:
    """Write a separately replayed launch into the ledger as an ordinary launch."""
    cdef CapturedLaunch *launch = &recording.launches[index]
    code = recording.codes[index]
    uhal_ledger_write(
        core.ledger, core.ticket + 1, <PyObject *>recording.keys[index],
        NULL if code is None else <PyObject *>code, launch.instruction_offset, launch.geometry,
        launch.shared_bytes, launch.bytes, launch.packed_bytes,
    )
    return 0


cdef int note_replay(StreamCore core, Recording recording) except -1:
    """Write the replay into the ledger first: the native call may already report its fault."""
    cdef unsigned int geometry[6]
    cdef int instruction_offset = 0
    cdef PyObject *code = uhal_callsite(&instruction_offset)
    memset(geometry, 0, sizeof(geometry))
    uhal_ledger_write(
        core.ledger, core.ticket + 1, <PyObject *>recording, code, instruction_offset, geometry,
        0, b"", 0,
    )
    return 0


cdef int tell_changes(Plan plan, void *executable) noexcept:
    """Change launches whose slots have new values; return the first failure's status."""
    cdef uhal_hot_table *table = plan.context.table
    cdef CapturedLaunch *launch
    cdef const unsigned int *geometry
    cdef Py_ssize_t index
    cdef int status
    cdef PlanSlot slot
    for slot in plan.slots:
        for index in range(slot.count):
            launch = &plan.recording.launches[slot.uses[index].launch]
            if launch.changed:
                geometry = launch.geometry
                status = table.graph_update_kernel(
                    executable, launch.node, launch.function, geometry[0], geometry[1],
                    geometry[2], geometry[3], geometry[4], geometry[5], launch.shared_bytes,
                    launch.pointers,
                )
                if status != 0:
                    return status
                launch.changed = False
    return 0


cdef int stamp_plan(Plan plan, StreamCore core) except -1:
    cdef Py_ssize_t index
    cdef PlanSlot slot
    plan.last.stream_id = core.id
    plan.last.ticket = core.ticket
    for index in range(plan.block_count):
        if not stamp_again(plan.blocks[index], core.id, core.ticket):
            stamp(<Block>plan.blocks[index], core.id, core.ticket)
    for slot in plan.slots:
        if slot.block is not None:
            stamp(slot.block, core.id, core.ticket)
    return 0
