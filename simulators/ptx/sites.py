"""Accesses to memory in a kernel's text, in the run time's structures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .layout import ACCESSES, SPACES

Check = Literal["off", "on", "strict", "trace", "count"]
Kind = Literal["load", "store", "atomic", "branch"]
"""Effect of an instruction of the text; a branch is a site of counting kernels only."""

LOCAL_ALIGNMENT = 16
"""Least alignment of a thread's own variables, for the widest vector access."""


@dataclass(frozen=True)
class Site:
    """An instruction of the text that accesses memory: struct uptx_site of runtime/ptx.h."""

    line: int
    bytes: int
    access: Kind
    space: str
    synchronizes: bool = False
    watched_after: bool = False
    """Whether strict mode is called after a store, and can see the stored value."""

    @property
    def constant(self) -> str:
        """The LLVM constant of this structure."""
        access, space = ACCESSES[self.access], SPACES[self.space]
        return (
            f"{{ i32, i32, i8, i8, i8, i8 }} {{ i32 {self.line}, i32 {self.bytes}, "
            f"i8 {access}, i8 {space}, i8 {int(self.synchronizes)}, "
            f"i8 {int(self.watched_after)} }}"
        )
