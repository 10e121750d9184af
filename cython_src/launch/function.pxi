# Modules and kernels in the lane: handles, and the limits that launches are checked against.


@cython.nonecheck(True)
@cython.final
@cython.no_gc_clear
cdef class ModuleHandle:
    """ModuleHandle(context, handle)\n--\n
    A loaded native module; functions hold it.

    The module is unloaded with its last holder, or on close.

    Backends promise that unloading is safe while launches of the module are pending. Streams record
    other uses of its variables and hold the module.
    """

    cdef readonly Context context
    """The opened device that has the module."""
    cdef void *handle_
    cdef readonly bint closed
    """Whether `close` unloaded the module."""
    # calls in progress, which keep a closed module loaded, and uses of its variables
    cdef Py_ssize_t holds
    cdef object globals_    # WeakSet of buffers over its variables; None before the first
    cdef int needs          # of each launch of its kernels: NEEDS_…
    cdef object __weakref__

    def __cinit__(self, Context context not None, uintptr_t handle):
        self.context = context
        self.handle_ = <void *>handle
        live.modules += 1

    def __dealloc__(self):
        if self.context is None or self.closed:
            return
        live.modules -= 1
        end_closed(self)

    @property
    def handle(self):
        """The native handle as an integer."""
        return <uintptr_t>self.handle_

    @property
    def reports(self):
        """Whether kernels report to a word that `Context.watch_reports` watches."""
        return self.needs & NEEDS_CHECKING != 0

    @reports.setter
    def reports(self, bint value):
        self.needs = self.needs & ~NEEDS_CHECKING | (NEEDS_CHECKING if value else 0)

    @property
    def asserts(self):
        """Whether kernels report failed assertions to a word that `watch_reports` watches."""
        return self.needs & NEEDS_HEARING != 0

    @asserts.setter
    def asserts(self, bint value):
        self.needs = self.needs & ~NEEDS_HEARING | (NEEDS_HEARING if value else 0)

    def find_function(self, str name not None):
        """Return the native handle of an entry.

        Raises DeviceError with the vendor's code if the entry is missing.
        """
        require_module(self)
        cdef void *function = NULL
        cdef bytes entry = name.encode()
        cdef const char *entry_pointer = entry
        hold_module(self)
        try:
            native_get_function(self.context, &function, self.handle_, entry_pointer)
        finally:
            let_go_module(self)
        return <uintptr_t>function

    def find_global(self, str name not None):
        """Return a variable's address and bytes; NotFoundError for an unknown name."""
        require_module(self)
        hold_module(self)
        cdef void *previous = enter(self.context)
        try:
            return self.context.backend.module_global(<uintptr_t>self.handle_, name)
        finally:
            leave(self.context, previous)
            let_go_module(self)

    def write_global(self, str name not None, bytes value not None):
        """Set a variable's first bytes; NotImplementedError if the variable has an address."""
        require_module(self)
        hold_module(self)
        cdef void *previous = enter(self.context)
        try:
            self.context.backend.write_global(<uintptr_t>self.handle_, name, value)
        finally:
            leave(self.context, previous)
            let_go_module(self)

    def describe_global(self, address, size, dtype):
        """Return a buffer over a variable.

        The buffer closes with the module. The module stays loaded while the buffer is open or work
        uses it.
        """
        require_module(self)
        cdef _GlobalMemory memory = _GlobalMemory.__new__(_GlobalMemory)
        cdef DeviceBuffer buffer
        memory.module = self
        hold_module(self)
        buffer = describe_foreign(
            DeviceBuffer, self.context, size, dtype, address, False, memory, None
        )
        if self.globals_ is None:
            self.globals_ = _weakref.WeakSet()
        self.globals_.add(buffer)
        return buffer

    def close(self):
        """Refuse the module's functions and variables from now on.

        The module is unloaded once no call on it runs and no work uses its variables. Closing twice
        is fine.
        """
        if self.closed or self.context.state.word & UHAL_STATE_FORKED:
            return
        refuse_captured_module(self)
        self.closed = True
        live.modules -= 1
        hold_module(self)
        try:
            for buffer in list(self.globals_ or ()):
                (<DeviceBuffer>buffer).close()
        finally:
            self.holds -= 1
            if not self.holds and not (self.context.state.word & UHAL_STATE_LOST):
                unload(self)


@cython.final
@cython.no_gc
cdef class _GlobalMemory:
    """Owner of a variable's memory: the module stays loaded until the last owner is freed."""

    cdef ModuleHandle module

    def __dealloc__(self):
        let_go_module(self.module)


cdef int unload(ModuleHandle module) except -1:
    return native_module_unload_unlocked(module.context, module.handle_)


cdef inline void hold_module(ModuleHandle module) noexcept:
    """Hold native objects: another thread may close the module during a call."""
    module.holds += 1


cdef inline void let_go_module(ModuleHandle module) noexcept:
    """End a hold; unload the module when it was closed meanwhile."""
    module.holds -= 1
    if module.closed and module.holds == 0:
        end_closed(module)


cdef void end_closed(ModuleHandle module) noexcept:
    """Close the module late; a failure is a warning, because the caller of close has returned."""
    if exiting or module.context.state.word & (UHAL_STATE_FORKED | UHAL_STATE_LOST):
        return
    try:
        unload(module)
    except BaseException as failure:
        warn_in_destructor(f"unloading a module: {failure}")


cdef inline int require_module(ModuleHandle module) except -1:
    if module is None or module.context is None:
        refuse_unmade()
    if module.closed:
        raise _errors.InvalidHandleError("the module is closed")
    return require_usable(module.context)


cdef struct Slot:
    # One parameter as the packing loop reads it.
    # Parameter.code: 'P', a dtype's, 'n' or 'N' integers, 'V' bytes, 'U' unknown
    char code
    bint is_const
    uint32_t size
    uint32_t offset     # in the packed argument block, aligned to 8
    PyObject *dtype     # borrowed from the signature; null: any


cdef struct KnownGeometry:
    # The geometry read last, and the owned objects it was read from.
    PyObject *grid
    PyObject *block
    PyObject *shared
    unsigned int geometry[6]
    unsigned int shared_bytes


@cython.nonecheck(True)
@cython.no_gc_clear
cdef class Function:
    """Function(module, handle, name, signature, attributes)\n--\n
    A kernel of a loaded module: `f[grid, block, shared, stream](*args)` launches it.

    Made by `Module.get_function`. A function holds its module. Any thread may launch it; the
    arguments of every launch are checked against `signature` before the driver sees them.
    """

    cdef uhal_vectorcall vectorcall
    cdef readonly Context context
    """The lane's context of the kernel's device; users have `device`."""
    cdef ModuleHandle module
    cdef void *handle_
    cdef readonly str name
    """The entry in the module."""
    cdef readonly object signature
    """The parameters as a `Signature`; None when unknown."""
    cdef readonly object attributes
    """Registers, shared memory and threads a block: `uhal.contract.FunctionAttributes`."""
    cdef tuple ledger_key               # (name, signature): all the ledger keeps of a function
    cdef Slot *slots
    cdef Py_ssize_t count               # -1: no signature
    cdef size_t packed_bytes
    cdef unsigned int max_grid[3]
    cdef unsigned int max_block[3]
    cdef unsigned int max_threads
    cdef uint64_t max_grid_threads      # along an axis
    cdef unsigned int max_shared        # dynamic
    cdef KnownGeometry known
    cdef uint64_t profile_session       # the last profile with this function as a subject
    cdef uint32_t profile_subject       # its number in that profile
    cdef object __weakref__

    def __init__(
        self, ModuleHandle module not None, uintptr_t handle, str name, signature, attributes
    ):
        if self.slots != NULL or self.context is not None:
            raise RuntimeError("a Function is initialised once")
        cdef Context context = module.context
        limits = context.limits
        self.module = module
        self.handle_ = <void *>handle
        self.name = name
        self.signature = signature
        self.attributes = attributes
        self.ledger_key = (name, signature)
        cdef int axis
        for axis in range(3):
            self.max_grid[axis] = limits.max_grid[axis]
            self.max_block[axis] = limits.max_block[axis]
        self.max_threads = min(limits.max_threads_per_block, attributes.max_threads_per_block)
        self.max_grid_threads = limits.max_grid_threads or 0xFFFFFFFFFFFFFFFF
        self.max_shared = dynamic_shared_limit(context, attributes)
        self.vectorcall = <uhal_vectorcall>refuse_call
        self.count = -1
        self.context = context
        live.functions += 1
        if signature is not None:
            lay_out(self, signature)

    def __dealloc__(self):
        c_free(self.slots)
        forget_geometry(&self.known)
        if self.context is not None:
            live.functions -= 1

    @property
    def handle(self):
        """The native handle as an integer."""
        require_module(self.module)
        return <uintptr_t>self.handle_

    @property
    def device(self):
        """The device the kernel is loaded on."""
        return device_of(self.context)

    def max_active_blocks(self, block, shared=0):
        """Return how many blocks of this shape fit on one processor."""
        require_module(self.module)
        cdef unsigned int geometry[6]
        cdef unsigned int shared_bytes = 0
        read_geometry(self, 1, block, shared, geometry, &shared_bytes)
        return self.context.backend.max_active_blocks(
            <uintptr_t>self.handle_,
            self.context.ordinal,
            geometry[3] * geometry[4] * geometry[5],
            shared_bytes,
        )

    def set_max_dynamic_shared_bytes(self, nbytes):
        """Set the most bytes of dynamic shared memory of a block.

        The driver decides the maximum. A smaller limit than the current one is also set, because it
        leaves more memory for the cache. NotSupportedError on a vendor whose limit is fixed.
        """
        require_module(self.module)
        cdef unsigned int limit = 0
        if not read_dimension(nbytes, &limit):
            raise _errors.ArgumentValueError(
                f"{self.name}, nbytes: expected an int of bytes in 0…{0xFFFFFFFF}, got {nbytes!r}"
            )
        cdef void *previous = enter(self.context)
        try:
            self.attributes = self.context.backend.set_max_dynamic_shared_bytes(
                <uintptr_t>self.handle_, self.name, limit
            )
        finally:
            leave(self.context, previous)
        self.max_shared = dynamic_shared_limit(self.context, self.attributes)
        forget_geometry(&self.known)

    def __getitem__(self, configuration):
        return bind(self, configuration)

    def __reduce__(self):
        refuse_pickle(
            self,
            "a kernel",
            "Send the image and the entry; get_function() there.",
        )

    def __repr__(self):
        if self.context is None:
            return f"<{type(self).__name__}, not made>"
        parameters = "" if self.signature is None else f"({self.signature.declaration})"
        return (
            f"<{type(self).__name__} {self.name}{parameters} on "
            f"{self.context.backend_name}:{self.context.ordinal}>"
        )


cdef unsigned int dynamic_shared_limit(Context context, object attributes) except? 0:
    most = attributes.max_dynamic_shared_bytes
    if most is None:
        most = context.limits.max_shared_bytes_per_block - (attributes.static_shared_bytes or 0)
    return max(most, 0)


cdef int lay_out(Function function, object signature) except -1:
    """Turn the signature into the slots the packing loop reads, and pass it to the backend."""
    cdef Py_ssize_t index, count = len(signature)
    cdef uint32_t offset = 0
    cdef Slot *slot
    function.slots = <Slot *>calloc(max(count, 1), sizeof(Slot))
    if function.slots == NULL:
        raise MemoryError
    for index, parameter in enumerate(signature):
        slot = &function.slots[index]
        slot.code = ord(parameter.code)
        # A launch counts as writing to every parameter that is not known to be const.
        slot.is_const = parameter.is_const is True
        if parameter.size is None:
            raise ValueError(f"{function.name}: the size of parameter {index} is not known")
        slot.size = parameter.size
        slot.offset = offset
        offset += (slot.size + 7) & ~<uint32_t>7
        slot.dtype = <PyObject *>parameter.dtype if parameter.dtype is not None else NULL
    function.packed_bytes = offset
    function.count = count
    return prepare_function(function, signature)


cdef int prepare_function(Function function, object signature) except -1:
    cdef uhal_signature native
    cdef uhal_parameter *parameters
    cdef Py_ssize_t index
    if function.context.table.prepare_function == NULL:
        return 0
    parameters = <uhal_parameter *>calloc(max(function.count, 1), sizeof(uhal_parameter))
    if parameters == NULL:
        raise MemoryError
    try:
        for index, parameter in enumerate(signature):
            parameters[index].offset = parameter.offset or 0
            parameters[index].size = parameter.size
            parameters[index].is_pointer = parameter.is_pointer is True
        native.count = function.count
        native.parameters = parameters
        return native_prepare_function(function.context, function.handle_, &native)
    finally:
        c_free(parameters)


@cython.nonecheck(True)
@cython.freelist(16)
@cython.no_gc_clear
cdef class BoundLaunch:
    """BoundLaunch()\n--\n
    A function with grid, block, shared memory and stream fixed.

    Call it with the arguments.

    The geometry was checked when it was bound; every call checks the arguments.
    """

    cdef uhal_vectorcall vectorcall
    cdef Function function
    cdef StreamCore core
    cdef object stream          # keeps the core open
    cdef unsigned int geometry[6]
    cdef unsigned int shared_bytes
    cdef bint is_empty
    cdef bytes extended         # a uhal_launch_config; None: nothing but geometry

    def __getattr__(self, name):
        # `inspect` would also find a property on the class, and take the property for a signature.
        if name == "__signature__" and self.function is not None:
            from uhal.signature import call_signature
            return call_signature(self.function.signature)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __getitem__(self, configuration):
        name = "kernel" if self.function is None else self.function.name
        raise _errors.ArgumentTypeError(
            f"{name}: expected arguments after the geometry, got a second pair of brackets. Write "
            f"{name}[grid, block, shared, stream](…)."
        )

    def __reduce__(self):
        refuse_pickle(
            self,
            "a kernel",
            "Send the image and the entry; get_function() there.",
        )

    def __repr__(self):
        if self.function is None:
            return f"<{type(self).__name__}, not made>"
        g = self.geometry
        return (
            f"<{self.function.name}[({g[0]}, {g[1]}, {g[2]}), ({g[3]}, {g[4]}, {g[5]}), "
            f"{self.shared_bytes}] on stream {self.core.id}>"
        )


cdef object bind(Function function, object configuration):
    """`function[grid, block, shared, stream]` or `function[config, stream]`."""
    cdef BoundLaunch bound
    cdef Py_ssize_t count
    if function.context is None:
        refuse_unmade()
    grid = block = stream = None
    shared = 0
    config = None
    if not isinstance(configuration, tuple):
        configuration = (configuration,)
    count = len(configuration)
    if count and not isinstance(configuration[0], (int, tuple)) and is_config(configuration[0]):
        config = configuration[0]
        if count > 2:
            words().refuse_geometry(function, configuration, None, 0)
        stream = configuration[1] if count == 2 else None
    else:
        if not 2 <= count <= 4:
            words().refuse_geometry(
                function, configuration if count != 1 else configuration[0], None, 0
            )
        grid, block = configuration[0], configuration[1]
        shared = configuration[2] if count > 2 else 0
        stream = configuration[3] if count > 3 else None
    bound = BoundLaunch.__new__(BoundLaunch)
    bound.function = function
    bound.core = stream_of_launch(function, stream)
    bound.stream = stream
    if function.module.closed or bound.core.state.word & UHAL_STATE_REFUSES:
        refuse_closed(function, bound.core)
    if config is not None:
        bound.is_empty = config.is_empty
        grid, block, shared = config.grid, config.block, config.shared
    if not bound.is_empty:
        read_geometry(function, grid, block, shared, bound.geometry, &bound.shared_bytes)
        if config is not None:
            bind_extended(bound, config)
    bound.vectorcall = <uhal_vectorcall>call_bound
    return bound


cdef int bind_extended(BoundLaunch bound, object config) except -1:
    cdef uhal_launch_config extended
    if not read_extended(
        bound.function, config, bound.geometry, bound.shared_bytes, bound.core, &extended
    ):
        return 0
    bound.extended = (<const char *>&extended)[:sizeof(extended)]
    return 0
