"""Building blocks for tensor libraries on top of uhal; `ubridge` uses all of them.

`uhal` itself has `LaunchSequence`, `Passed`, `Tally` and `set_recorder` for prepared launches.

* Facts that live as long as an open device: `Context`, `current_context`, `call_before_close`.
* Tensors and operations in one compiled call: `SlotMaker`, `RememberedCall`, `CallTable`,
  `RememberedView`, `RememberedCreation`, `Creation`, `NumberReader`.
* Strided tensors in DLPack: `dlpack_of`, `strided_dlpack`.
* Memory for libraries that enqueue work themselves: `address_for`.
* Overlap of buffers: `address_of`, `shares_memory`.
* The line of the program for messages: `call_site`.

docs/guide/frameworks.md shows their use.
"""

from __future__ import annotations

from uhal._lane import (
    CallTable,
    Context,
    Creation,
    NumberReader,
    RememberedCall,
    RememberedCreation,
    RememberedView,
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
    "RememberedView",
    "RememberedCreation",
    "Creation",
    "NumberReader",
    "CallTable",
    "dlpack_of",
    "strided_dlpack",
    "address_for",
    "address_of",
    "shares_memory",
    "call_site",
]
