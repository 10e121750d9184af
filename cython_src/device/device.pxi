# A device as users hold it: its identity, limits and memory, and making it current.

# The registry is above the lane; the lane calls the registry only to open and close devices.
cdef object _registry = None


cdef object the_registry():
    global _registry
    if _registry is None:
        from uhal import registry
        _registry = registry
    return _registry


def resolve_backend(cls, backend):
    """Return the class's fixed backend, else the argument `backend`."""
    fixed = getattr(cls, "_fixed_backend", None)
    if fixed is None or backend is None or backend == fixed:
        return fixed or backend
    raise _errors.ArgumentValueError(
        f"{cls.__name__} is fixed to backend {fixed!r}, got {backend!r}"
    )


cdef class Device:
    """Device(ordinal=0, backend=None)\n--\n
    One device of one backend.

    A Device is a value: devices with the same backend and ordinal are equal.

    Creating a Device opens device `ordinal` of `backend`, once in a process. By default, `Api`
    chooses the backend. A name stands for backend and ordinal: `"cuda"` is device 0 of that
    backend, and `"cuda:1"` is device 1. Raises `NoDeviceError` when there is no such device or
    backend, and `ArgumentValueError` for a malformed name or a name of another backend than
    `backend`. `with device:` makes the device current in the calling thread or asyncio task:
    streams, buffers and modules made in the block belong to this device. Any thread may use it.
    """

    cdef Context opened

    def __init__(self, ordinal=0, backend=None):
        if isinstance(ordinal, str):
            backend, ordinal = the_registry().named(ordinal, backend)
        name = resolve_backend(type(self), backend) or the_registry().choose()
        self.opened = the_registry().context(name, ordinal)

    @classmethod
    def count(cls, backend=None):
        """Return the number of devices; 0 if the backend does not work."""
        try:
            name = resolve_backend(cls, backend) or the_registry().choose()
        except _errors.NoDeviceError:
            return 0
        return len(the_registry().record(name).devices)

    @classmethod
    def current(cls):
        """Return the device of the calling thread or task.

        A thread or task without a device uses the process default.

        Raises `DeviceError` when no device is set: `Api.quick_init` or `with device:` sets a
        device.
        """
        return device_of_class(cls, chosen_context(cls, None))

    @property
    def context(self):
        """The opened device, a `uhal.frameworks.Context`; a new one after `close`.

        Use this object as the key of records about a device: equal devices may have been opened
        separately.
        """
        return context_of(self)

    @property
    def ordinal(self):
        """The device's number in its backend, from 0."""
        return context_of(self).ordinal

    @property
    def backend(self):
        """The backend's name."""
        return context_of(self).backend_name

    @property
    def name(self):
        """The product name, as the vendor writes it."""
        return context_of(self).backend.device_name(self.ordinal)

    @property
    def uuid(self):
        """An identifier that stays the same from process to process."""
        return context_of(self).backend.device_uuid(self.ordinal)

    @property
    def limits(self):
        """The limits of a launch on the device."""
        return context_of(self).limits

    @property
    def attributes(self):
        """All other attributes, under the vendor's names."""
        return context_of(self).backend.device_attributes(self.ordinal)

    @property
    def closed(self):
        """True after `close`; `Device(ordinal, backend)` opens the device afresh."""
        return context_of(self).closed

    def can_access_peer(self, peer):
        """Return whether `enable_peer_access(peer)` can work; True for the device itself."""
        require_peer(peer)
        if peer.backend != self.backend:
            return False
        if peer.ordinal == self.ordinal:
            return True
        return self.opened.backend.can_access_peer(self.ordinal, peer.ordinal)

    def enable_peer_access(self, peer):
        """Let kernels of this device take buffers of `peer` as arguments.

        The access is in one direction. Idempotent.

        Copies between devices need no such access. Raises `NotSupportedError` where the devices
        cannot reach each other.
        """
        require_peer(peer)
        if peer == self:
            return
        if not self.can_access_peer(peer):
            raise _errors.NotSupportedError(
                f"kernels of {self!r} cannot reach memory of {peer!r}; copy it, or take another "
                f"pair of devices (Device.can_access_peer)",
                backend=self.backend,
            )
        with self.opened.enter():
            self.opened.backend.enable_peer_access(self.ordinal, peer.ordinal)
        self.opened.note_peer(peer.ordinal)

    def memory_info(self):
        """Return free and total memory in bytes, from the driver."""
        with context_of(self).enter():
            return _records.MemoryInfo(*self.opened.backend.memory_info(self.ordinal))

    def synchronize(self):
        """Wait for all work on the device.

        Raises an asynchronous fault of earlier work.

        Raises `IndexError` for an id out of bounds that a kernel met; the device stays usable.
        """
        context_of(self).synchronize()
        try:
            with self.opened.enter():
                self.opened.backend.synchronize_device(self.ordinal)
        except NotImplementedError:
            # The vendor has no call that waits for a device; our own streams are done.
            pass
        check_reports(self.opened, None)

    def empty_cache(self):
        """Give unused pooled memory back to the driver; return the bytes freed."""
        return context_of(self).empty_cache()

    def pool_statistics(self):
        """Return bytes and counts of the memory pool by name."""
        return context_of(self).pool_statistics()

    def memory_stats(self):
        """Return the memory pool's statistics under PyTorch's names.

        Statistics that the pool lacks are left out.
        """
        return memory_words().statistics(context_of(self))

    def reset_peak_memory_stats(self):
        """Set the peak counters to the current use."""
        context_of(self).reset_peak_statistics()

    def memory_owners(self):
        """Return the Python lines that made the live buffers, largest first."""
        return memory_words().owners(context_of(self))

    @property
    def memory_limit(self):
        """Most bytes the pool takes from the driver; `None`: no limit.

        The pool returns unused memory to the driver before it refuses an allocation with
        `OutOfMemoryError`. A limit below the reserved bytes stops further growth. The variable
        `UHAL_MEMORY_LIMIT` sets the limit when the device is opened.
        """
        return context_of(self).memory_limit

    @memory_limit.setter
    def memory_limit(self, limit):
        context_of(self).memory_limit = limit

    def close(self):
        """Refuse new work on the device.

        The device's objects are freed with their last references. Idempotent.
        """
        the_registry().close_context(context_of(self))

    def __enter__(self):
        push_context(context_of(self))
        return self

    def __exit__(self, kind, value, traceback):
        pop_context()

    def __eq__(self, other):
        if isinstance(other, str):
            raise _errors.ArgumentTypeError(
                f"comparison of devices: expected two Devices, got Device and str {other!r}. "
                f"Compare device.backend, or compare with uhal.Device({other!r})."
            )
        if not isinstance(other, Device):
            return NotImplemented
        return (self.backend, self.ordinal) == (other.backend, other.ordinal)

    def __hash__(self):
        return hash((self.backend, self.ordinal))

    def __repr__(self):
        if self.opened is None:
            return f"<{type(self).__name__}, not made>"
        return f"{type(self).__name__}({self.ordinal}, {self.backend!r})"

    def __reduce__(self):
        return (type(self), (self.ordinal, self.backend))


cdef inline Context context_of(Device device):
    if device.opened is None:
        refuse_unmade()
    return device.opened


cdef Device device_of_class(object cls, Context context):
    """Return the opened device as a `cls`: Device, or a class fixed to a backend."""
    if context is None:
        refuse_unmade()
    cdef Device device = cls.__new__(cls)
    device.opened = context
    return device


cdef Device device_of(Context context):
    return device_of_class(Device, context)


cdef int require_peer(object peer) except -1:
    if not isinstance(peer, Device):
        words().refuse_peer(peer)
    require_usable(context_of(peer))
    return 0
