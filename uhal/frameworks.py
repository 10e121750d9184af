"""What tensor libraries on top of uhal need besides the interface; `ubridge` uses all of it.

`LaunchSequence`, `Passed`, `Tally` and `set_recorder` of `uhal` itself make launches that are
prepared once. Here is what keeps facts with the device that was opened (`Context`,
`current_context`, `call_before_close`), what makes tensors and answers operations in one compiled
call (`SlotMaker`, `RememberedCall`, `CallTable`), tensors with strides in DLPack (`dlpack_of`,
`strided_dlpack`), memory for libraries that enqueue work themselves (`address_for`), what buffers
overlap (`address_of`, `shares_memory`), and the line of the program for messages (`call_site`).
docs/guide/frameworks.md shows their use.
"""

from __future__ import annotations

from uhal._lane import (
    CallTable,
    Context,
    RememberedCall,
    SlotMaker,
    address_for,
    address_of,
    current_context,
    dlpack_of,
    shares_memory,
    strided_dlpack,
)
from uhal._refusal import call_site
from uhal.registry import call_before_close

__all__ = [
    "Context",
    "current_context",
    "call_before_close",
    "SlotMaker",
    "RememberedCall",
    "CallTable",
    "dlpack_of",
    "strided_dlpack",
    "address_for",
    "address_of",
    "shares_memory",
    "call_site",
]
