"""Options of `generate` and `chat`: types for checkers, defaults and signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypedDict, TypeVar, cast, get_type_hints

from ubridge.models.text.assembling import Limits
from ubridge.models.text.sampler import Hook
from ubridge.models.text.sampling import Sampling
from uhal.errors import ArgumentTypeError


class GenerateOptions(TypedDict, total=False):
    """Keyword arguments of `generate`: the fields of `Limits` and of `Sampling`, and two more.

    The two dataclasses hold the defaults and document each field.
    """

    max_tokens: int | None
    stop: str | Sequence[str]
    ignore_end: bool
    log_probabilities: int | None
    hook: Hook | None
    sampling: Sampling | None
    temperature: float
    top_k: int | None
    top_p: float
    min_p: float
    repetition_penalty: float
    repetition_window: int | None
    presence_penalty: float
    frequency_penalty: float
    seed: int | None


class ChatOptions(GenerateOptions, total=False):
    """Keyword arguments of `chat`: arguments of `generate`, and of the template."""

    template: str | None
    names: Mapping[str, Any] | None


class RequestOptions(GenerateOptions, total=False):
    """Keyword arguments of `Engine.submit`: arguments of `generate`, and of the scheduler."""

    priority: int


_LIMITS = {field.name: field.default for field in fields(Limits)}
_SAMPLING = {field.name: field.default for field in fields(Sampling)}
_Method = TypeVar("_Method", bound=Callable[..., Any])


def takes(options: type) -> Callable[[_Method], _Method]:
    """Show each option in the signature of a method that has them as `**options`.

    `help` and the reference then list names, types and defaults. A type checker reads them from
    `Unpack`, which Python 3.10 does not have at run time.
    """
    hints = get_type_hints(options)

    def shown(method: _Method) -> _Method:
        function = cast(Any, method)
        signature = inspect.signature(method)
        kept = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        defaults = {**_LIMITS, **_SAMPLING, "priority": 0}
        listed = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(name),
                annotation=hint,
            )
            for name, hint in hints.items()
        ]
        function.__signature__ = signature.replace(parameters=[*kept, *listed])
        del function.__annotations__["options"]
        function.__annotations__.update(hints)
        return method

    return shown


def settled(
    operation: str,
    options: Mapping[str, object],
    known: Iterable[str] = GenerateOptions.__annotations__,
) -> tuple[Limits, Sampling, Hook | None]:
    """Return the limits, the sampling and the hook of `GenerateOptions`.

    Raises `ArgumentTypeError` or `ArgumentValueError` for options that contradict each other or
    have a wrong value, and for an unknown option. The message then lists the `known` options of the
    operation.
    """
    given: dict[str, Any] = dict(options)
    hook, sampling = given.pop("hook", None), given.pop("sampling", None)
    limits = {name: given.pop(name) for name in _LIMITS if name in given}
    unknown = [name for name in given if name not in _SAMPLING]
    if unknown:
        raise ArgumentTypeError(
            f"{operation}: expected an option of {', '.join(known)}, got {unknown[0]}"
        )
    if sampling is not None and given:
        raise ArgumentTypeError(
            f"{operation}: expected either sampling= or {', '.join(given)}, got both"
        )
    if sampling is not None and not isinstance(sampling, Sampling):
        raise ArgumentTypeError(f"sampling: expected a Sampling, got {type(sampling).__name__}")
    return Limits(**limits), sampling or Sampling(**given), hook
