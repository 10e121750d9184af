"""Kernels written in Python: their PTX, modules and functions of a device."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

from uhal._lane import BoundLaunch, Context, Function, chosen_context
from uhal.device import DeviceLike
from uhal.errors import ArgumentTypeError, ArgumentValueError, NotSupportedError
from uhal.images.ptx import SIGNATURE_MARK
from uhal.module import Module
from uhal.ptx.builder import Program
from uhal.ptx.parameters import Body, build, parameters_of
from uhal.signature import Signature

_MODULES: weakref.WeakValueDictionary[tuple[Context, bytes], Module] = weakref.WeakValueDictionary()
"""Modules in use, by device and digest of their text."""


class Kernel:
    """A kernel written in Python. Made by `@kernel`; `k[grid, block](…)` launches it.

    Its function runs once, at the first use, to build the text. Any thread may use it.
    """

    def __init__(self, body: Body, signature: str, max_threads: int | None = None) -> None:
        self.name = body.__name__
        self.__doc__ = body.__doc__
        if not self.name.isidentifier():
            raise ArgumentTypeError(f"kernel: expected a named function, got {self.name!r}.")
        self.signature = Signature.parse(signature, entry=self.name)
        self.max_threads = max_threads
        """Most threads of a block, which lets the driver give each more registers."""
        self._parameters = parameters_of(body, self.signature)
        self._body = body
        self._text: str | None = None
        self._lock = threading.RLock()
        self._functions: dict[Context, tuple[Module, Function]] = {}

    @property
    def ptx(self) -> str:
        """Return the PTX of a module with this kernel, for the oldest device that can run it.

        Raises `ArgumentTypeError` or `ArgumentValueError`, with the line of the kernel, for a
        mistake in it.
        """
        with self._lock:
            if self._text is None:
                self._text = text_of(self)
            return self._text

    def module(self, device: DeviceLike | None = None) -> Module:
        """Return the module on a device, by default the current; loaded once for equal texts."""
        return self._loaded(chosen_context(Module, device))[0]

    @property
    def function(self) -> Function:
        """The `uhal.Function` on the current device."""
        return self._loaded(chosen_context(Module, None))[1]

    def __getitem__(self, configuration: Any) -> BoundLaunch:
        """Fix grid, block, shared bytes and stream, as `Function` does; call it to launch."""
        return self._loaded(chosen_context(Module, None))[1][configuration]

    def _loaded(self, context: Context) -> tuple[Module, Function]:
        found = self._functions.get(context)
        if found is None or found[0].closed:
            with self._lock:
                module = _load(self.ptx, context, self.name)
                found = self._functions[context] = (module, module.get_function(self.name))
        return found

    def build(self, program: Program) -> str:
        """Run the function; return the text of the entry."""
        body = build(program, self.name, self._body, self._parameters, "global")
        parameters = ",\n".join(
            f"\t.param .{'u64' if one.is_pointer else one.of.in_memory} {self.name}_{index}"
            for index, one in enumerate(self._parameters)
        )
        bound = "" if self.max_threads is None else f".maxntid {self.max_threads}, 1, 1\n"
        return f".visible .entry {self.name}(\n{parameters}\n)\n{bound}{body}"

    def __repr__(self) -> str:
        return f"<Kernel {self.name}({self.signature.declaration})>"


def kernel(signature: str, *, max_threads: int | None = None) -> Callable[[Body], Kernel]:
    """Decorate a function that is a kernel: `@kernel("u32 n, f32 a, const f32* x, f32* y")`.

    `signature` is written as for `uhal.Signature`, with the function's parameters. Numbers become
    values, pointers become `Pointer` objects into global memory. Variables of the function's
    closure are constant in the kernel, so a function that returns a kernel specialises it.
    """
    wanted = "a signature, as in @kernel('u32 n, f32* x')"
    if not isinstance(signature, str):
        raise ArgumentTypeError(f"kernel: expected {wanted}, got {type(signature).__name__}.")
    return lambda body: Kernel(body, signature, max_threads)


def text_of(*kernels: Kernel) -> str:
    """Return the PTX of one module with all these kernels."""
    names = [one.name for one in kernels]
    if len(set(names)) != len(names) or not kernels:
        given = ", ".join(names) or "none"
        raise ArgumentValueError(f"text_of: expected kernels with different names, got {given}.")
    program = Program()
    bodies = "\n".join(one.build(program) for one in kernels)
    heads = (f"{SIGNATURE_MARK}{one.name}: {one.signature.declaration}\n" for one in kernels)
    return program.text(bodies, "".join(heads))


def load(*kernels: Kernel, device: DeviceLike | None = None) -> Module:
    """Load kernels as one module, on a device or the current one."""
    return _load(text_of(*kernels), chosen_context(Module, device), kernels[0].name)


def _load(text: str, context: Context, name: str) -> Module:
    if context.backend_name != "cuda":
        raise NotSupportedError(
            f"{name}: expected a CUDA device, real or simulated, got {context.backend_name}. Open "
            "one with Api.quick_init(backend='cuda'); docs/guide/testing-without-a-gpu.md shows "
            "how to simulate it."
        )
    image = text.encode()
    key = (context, hashlib.sha256(image).digest())
    module = _MODULES.get(key)
    if module is None or module.closed:
        module = Module.from_bytes(image, device=context.device)
        _MODULES[key] = module
    return module
