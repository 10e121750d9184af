"""Builds LLVM IR text: values, labels, stack slots, calls."""

from __future__ import annotations


class Writer:
    """The text of one LLVM function."""

    def __init__(self) -> None:
        self.slots: list[str] = []
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}
        self._count = 0

    def line(self, text: str) -> None:
        """Add one line."""
        self.lines.append(text)

    def value(self, expression: str) -> str:
        """Add an instruction and return the name of its result."""
        self._count += 1
        name = f"%t{self._count}"
        self.lines.append(f"{name} = {expression}")
        return name

    def label(self) -> str:
        """A fresh label."""
        self._count += 1
        return f"b{self._count}"

    def fall_into(self, label: str) -> None:
        """Start a block at a label; earlier code falls through."""
        self.lines.append(f'br label %"{label}"')
        self.lines.append(f'"{label}":')

    def begin(self, label: str) -> None:
        """Start a block at a label after a branch ended the last block."""
        self.lines.append(f'"{label}":')

    def slot(self, llvm: str, alignment: int = 0) -> str:
        """A stack slot that lives as long as the function."""
        self._count += 1
        name = f"%s{self._count}"
        aligned = f", align {alignment}" if alignment else ""
        self.slots.append(f"{name} = alloca {llvm}{aligned}")
        return name

    def call(self, result: str, name: str, *arguments: str) -> str:
        """Call an LLVM intrinsic or a helper of the run time; arguments are `type value`."""
        kinds = ", ".join(one.split()[0] for one in arguments)
        self.declarations[name] = f"declare {result} @{name}({kinds})"
        text = f"call {result} @{name}({', '.join(arguments)})"
        if result == "void":
            self.line(text)
            return ""
        return self.value(text)
