# Launches with more than geometry: clusters, cooperation, a priority of their own.


cdef bint read_extended(
    Function function, object config, const unsigned int *geometry, unsigned int shared_bytes,
    StreamCore core, uhal_launch_config *out
) except -1:
    """Check the LaunchConfig, and fill `out` if it asks for more than geometry."""
    cdef int axis
    if config.is_plain:
        return False
    cluster, cooperative, priority = words().read_extended(
        function, config, (geometry[0], geometry[1], geometry[2])
    )
    if function.context.table.launch_ex == NULL:
        words().refuse_extended(function, config)
    memset(out, 0, sizeof(uhal_launch_config))
    for axis in range(3):
        out.grid[axis] = geometry[axis]
        out.block[axis] = geometry[3 + axis]
        if cluster is not None:
            out.cluster[axis] = cluster[axis]
    out.shared_bytes = shared_bytes
    out.cooperative = cooperative
    if priority is not None:
        out.has_priority = 1
        out.priority = priority
    out.stream = core.handle
    return True


cdef int launch_extended(Context context, Function function, Packed *packed) noexcept:
    """The native call, with the device current; returns its status."""
    cdef void *handle = function.handle_
    cdef int status
    with nogil:
        status = context.table.launch_ex(packed.extended, handle, packed.pointers, NULL)
    return status
