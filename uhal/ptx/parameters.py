"""Parameters of kernels and device functions, from the grammar of `uhal.Signature`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from uhal.errors import ArgumentTypeError
from uhal.ptx.builder import Builder, location
from uhal.ptx.memory import Pointer
from uhal.ptx.types import Type, as_type, u64
from uhal.ptx.values import Value
from uhal.signature import Signature


@dataclass(frozen=True)
class ParameterType:
    """A parameter as the builder needs it."""

    name: str
    of: Type
    """The type of a scalar, or of a pointer's elements."""
    is_pointer: bool
    is_const: bool

    @property
    def held(self) -> Type:
        """The type of the register that holds it."""
        return u64 if self.is_pointer else self.of.value_type

    def value(self, builder: Builder, symbol: str, space: str = "generic") -> Value | Pointer:
        """Load it; `symbol` is its name in PTX, `space` the space of a pointer."""
        kind = "u64" if self.is_pointer else self.of.in_memory
        made = builder.register(self.held)
        builder.emit(f"ld.param.{kind}", made, f"[{symbol}]")
        if not self.is_pointer:
            return Value(builder, self.held, made)
        if space == "global":
            address = made
            made = builder.register(u64)
            builder.emit("cvta.to.global.u64", made, address)
        base = Value(builder, u64, made)
        return Pointer(self.of, space, base, is_const=self.is_const, name=self.name)


def parameters_of(signature: str | Signature, name: str) -> list[ParameterType]:
    """Read a signature. `ArgumentTypeError` for parameters that a kernel cannot be built with."""
    parsed = signature
    if not isinstance(parsed, Signature):
        parsed = Signature.parse(parsed, entry=name)
    made = []
    for one in parsed:
        of = None if one.dtype is None else as_type(one.dtype)
        if of is None or one.kind not in ("pointer", "scalar") or one.name is None:
            raise ArgumentTypeError(
                f"{name}: expected numbers and pointers with names, as in 'u32 n, const f32* x', "
                f"got '{one}'. Use types of uhal.ptx."
            )
        made.append(ParameterType(one.name, of, one.kind == "pointer", bool(one.is_const)))
    return made


def require_names(body: Callable[..., Any], parameters: Sequence[ParameterType], name: str) -> None:
    """Refuse a function whose parameters differ from its signature's."""
    own = list(inspect.signature(body).parameters)
    if own != [one.name for one in parameters]:
        code = body.__code__
        raise ArgumentTypeError(
            f"{name}: expected the function's parameters to match the signature, "
            f"({', '.join(one.name for one in parameters)}), got ({', '.join(own)}). Make them "
            f"agree. {location((code.co_filename, code.co_firstlineno))}"
        )
