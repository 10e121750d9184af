# A raw address of device memory.


@cython.final
cdef class DevicePointer:
    """DevicePointer(address)\n--\n
    A raw device address: the only integer a pointer parameter accepts.

    It owns nothing and is not tracked: keep the memory alive, and tell the pool of uses on other
    streams with `DeviceBuffer.record_stream`. Adding an int moves it by that many bytes.
    """

    cdef readonly uint64_t address
    """The address as an int."""

    def __init__(self, address):
        if isinstance(address, bool) or not isinstance(address, int):
            raise _errors.ArgumentTypeError(
                f"address: expected an int, got {type(address).__name__}"
            )
        if not 0 <= address < 2**64:
            raise _errors.ArgumentRangeError(f"address: expected 0…2**64-1, got {address}")
        self.address = address

    def __int__(self):
        return self.address

    def __index__(self):
        return self.address

    def __add__(self, nbytes):
        if not isinstance(nbytes, int):
            return NotImplemented
        return DevicePointer(self.address + nbytes)

    def __sub__(self, nbytes):
        if not isinstance(nbytes, int):
            return NotImplemented
        return DevicePointer(self.address - nbytes)

    def __eq__(self, other):
        if isinstance(other, DevicePointer):
            return self.address == (<DevicePointer>other).address
        return self.address == other if isinstance(other, int) else NotImplemented

    def __hash__(self):
        return hash(self.address)

    def __reduce__(self):
        refuse_pickle(
            self,
            "an address",
            "Send to_numpy() of its buffer, or ipc_handle() where the device has it.",
        )

    def __repr__(self):
        return f"DevicePointer(0x{self.address:x})"
