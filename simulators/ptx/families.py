"""The families of instructions. Importing them fills the table."""

from . import (
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
