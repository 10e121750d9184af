"""The families of instructions. Importing them fills the table."""

from simulators.ptx import (
    bits,
    compare,
    control,
    convert,
    floating,
    integer,
    memory,
    video,
    warp,
    wmma,
)

FAMILIES = (bits, compare, control, convert, floating, integer, memory, video, warp, wmma)
