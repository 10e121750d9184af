"""Parameters (by the grammar of `uhal.Signature`) and bodies of kernels and device functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from uhal.errors import ArgumentTypeError
from uhal.ptx.builder import Builder, Program, building, location, refuse
from uhal.ptx.memory import Pointer
from uhal.ptx.python_flow import check_flow
from uhal.ptx.types import Type, as_type, u64
from uhal.ptx.values import Value, emitted, operand
from uhal.signature import Signature

Body = Callable[..., Any]
"""A Python function that becomes a kernel or a function of the device."""


@dataclass(frozen=True)
class ParameterType:
    """A parameter, for the builder."""

    name: str
    of: Type
    """The type of a scalar, or of a pointer's elements."""
    is_pointer: bool
    is_const: bool

    @property
    def held(self) -> Type:
        """The type of the parameter's register."""
        return u64 if self.is_pointer else self.of.value_type

    def value(self, builder: Builder, symbol: str, space: str) -> Value | Pointer:
        """Load it; `symbol` is its name in PTX, `space` the space of a pointer."""
        kind = "u64" if self.is_pointer else self.of.in_memory
        loaded = emitted(builder, self.held, f"ld.param.{kind}", f"[{symbol}]")
        if not self.is_pointer:
            return loaded
        if space == "global":
            loaded = emitted(builder, u64, "cvta.to.global.u64", loaded.text)
        return Pointer(self.of, space, loaded, is_const=self.is_const, name=self.name)


def parameters_of(body: Body, signature: str | Signature) -> list[ParameterType]:
    """Parameters of a function, from its signature.

    Raises `ArgumentTypeError` for parameters that PTX does not allow or the function lacks.
    """
    name, code = body.__name__, body.__code__
    if not isinstance(signature, Signature):
        signature = Signature.parse(signature, entry=name)
    made = []
    for one in signature:
        of = None if one.dtype is None else as_type(one.dtype)
        if of is None or one.kind not in ("pointer", "scalar") or one.name is None:
            raise ArgumentTypeError(
                f"{name}: expected numbers and pointers with names, as in 'u32 n, const f32* x', "
                f"got '{one}'. Use types of uhal.ptx."
            )
        made.append(ParameterType(one.name, of, one.kind == "pointer", bool(one.is_const)))
    wanted, own = [one.name for one in made], list(code.co_varnames[: code.co_argcount])
    if own != wanted:
        raise ArgumentTypeError(
            f"{name}: expected the function's parameters to match the signature, "
            f"({', '.join(wanted)}), got ({', '.join(own)}). Make them agree. "
            f"{location((code.co_filename, code.co_firstlineno))}"
        )
    return made


def build(
    program: Program,
    name: str,
    body: Body,
    parameters: Sequence[ParameterType],
    space: str,
    returns: Type | None = None,
) -> str:
    """Run a function once; return its statements, in braces. Pointers point into `space`."""
    check_flow(body.__code__)
    builder = Builder(program, name)
    # Parameters and the end have the line of the function's head.
    head = builder.head = body.__code__.co_filename, body.__code__.co_firstlineno
    values = [one.value(builder, f"{name}_{i}", space) for i, one in enumerate(parameters)]
    builder.head = None
    with building(builder):
        result = body(*values)
        builder.head = head
        if returns is not None:
            text = operand(result, returns, f"{body.__name__}, result")
            builder.emit(f"st.param.{returns.register}", f"[{name}_result]", text)
        elif result is not None:
            hint = "Store it, or say returns=… of a `function`."
            refuse(f"{body.__name__}: expected no result, got {result!r}. {hint}")
        builder.emit("ret")
    return builder.body()
