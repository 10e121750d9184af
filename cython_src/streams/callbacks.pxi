# Host callbacks: posted by a driver's thread, called on one thread of ours (dispatcher.h).

cdef object dispatcher = None
cdef unsigned int dispatcher_generation = 0


cdef int start_dispatcher() except -1:
    global dispatcher, dispatcher_generation
    if dispatcher is not None and dispatcher_generation == uhal_fork_count:
        return 0
    if dispatcher_generation != uhal_fork_count:
        uhal_callback_reset()
    dispatcher_generation = uhal_fork_count
    dispatcher = _threading.Thread(target=_dispatch, name="uhal callbacks", daemon=True)
    dispatcher.start()
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
