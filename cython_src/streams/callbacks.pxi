# Host callbacks: posted by a driver's thread, called on one thread of ours (dispatcher.h).

cdef object dispatcher = None                      # None: no thread runs
cdef object dispatcher_lock = _threading.Lock()    # one thread at a time starts it
cdef unsigned int dispatcher_generation = 0


cdef int start_dispatcher() except -1:
    global dispatcher, dispatcher_lock, dispatcher_generation
    if dispatcher_generation != uhal_fork_count:
        # a forked child lacks the parent's thread, which may hold the lock
        dispatcher_generation = uhal_fork_count
        dispatcher = None
        dispatcher_lock = _threading.Lock()
        uhal_callback_reset()
    with dispatcher_lock:
        if dispatcher is None:
            thread = _threading.Thread(target=_dispatch, name="uhal callbacks", daemon=True)
            try:
                thread.start()
            except RuntimeError as failure:
                raise _errors.DeviceError(
                    f"Stream.add_callback: expected a thread to call it on, got none: {failure}. "
                    "The callback was not added. End other threads, or raise the limit."
                ) from failure
            dispatcher = thread
    return 0


cdef int stop_dispatcher() except -1:
    """Let posted callbacks finish, then end the thread. A callback that hangs is left behind."""
    global dispatcher
    cdef uhal_callback *stop
    if dispatcher is not None and dispatcher_generation == uhal_fork_count:
        stop = uhal_callback_new(NULL, NULL)
        if stop != NULL:
            uhal_callback_post(stop)
            dispatcher.join(EXIT_DEADLINE_SECONDS)
        dispatcher = None
    return 0


def _dispatch():
    cdef uhal_callback *callback
    while True:
        with nogil:
            callback = uhal_callback_take()
        if callback.function == NULL:
            uhal_callback_delete(callback)
            return
        function = <object>callback.function
        arguments = <object>callback.arguments
        uhal_callback_delete(callback)
        try:
            function(*arguments)
        except BaseException as failure:
            PyErr_SetObject(type(failure), failure)
            PyErr_WriteUnraisable(function)
        function = arguments = None
