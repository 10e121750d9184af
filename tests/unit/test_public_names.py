"""`help` of every public name: a signature, and a text for each attribute."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import types
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ubridge
import ubridge.backends
import uhal
import uhal.frameworks
from tests.unit.test_words import long_sentences
from uhal import _lane

STUB = Path(uhal.__file__).with_name("_lane.pyi")
OURS = ("uhal", "ubridge")
PUBLIC = (uhal, uhal.frameworks, ubridge, ubridge.backends)
LONGEST_FIRST_LINE = 12
"""Limit of words for a docstring's first line, which API lists show alone."""


def is_ours(found: type) -> bool:
    return found.__module__.partition(".")[0] in OURS


def classes() -> dict[str, type]:
    """Every public class, and every class of the compiled lane that has a public name."""
    found = [getattr(module, name) for module in PUBLIC for name in module.__all__]
    found += [one for name, one in vars(_lane).items() if not name.startswith("_")]
    named = {one.__qualname__: one for one in found if isinstance(one, type) and is_ours(one)}
    return dict(sorted(named.items()))


def attributes(of: type) -> Iterator[tuple[str, Any]]:
    """Yield the public attributes that our classes define, base classes included."""
    for name in dir(of):
        owner = next((one for one in of.__mro__ if name in vars(one)), None)
        # A class lacks the names that only have advice.
        is_there = not name.startswith("_") and hasattr(of, name)
        if is_there and owner is not None and is_ours(owner):
            yield name, inspect.getattr_static(of, name)


def stubbed() -> dict[str, ast.arguments]:
    """The parameters of each constructor that the stub of the lane declares."""
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    return {
        one.name: function.args
        for one in tree.body
        if isinstance(one, ast.ClassDef)
        for function in one.body
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
    }


def texts() -> dict[str, str]:
    """Return the text of every public name and attribute."""
    found: dict[str, str] = {}
    for module in PUBLIC:
        for name in module.__all__:
            one = getattr(module, name)
            if not isinstance(one, types.ModuleType):
                found[name] = inspect.getdoc(one) or ""
    for name, of in classes().items():
        found[name] = inspect.getdoc(of) or ""
        for attribute, one in attributes(of):
            one = getattr(one, "__func__", one)
            if inspect.isdatadescriptor(one) or callable(one):
                found[f"{name}.{attribute}"] = inspect.getdoc(one) or ""
    return found


@pytest.mark.parametrize("name", list(classes()))
def test_classes_and_their_methods_have_signatures(name: str) -> None:
    of = classes()[name]
    if not issubclass(of, Warning):  # Python has no signature for its own warnings
        inspect.signature(of)
    for attribute, _ in attributes(of):
        found = getattr(of, attribute)
        if callable(found):
            inspect.signature(found)


@pytest.mark.parametrize("name", list(classes()))
def test_public_attributes_have_texts(name: str) -> None:
    without = []
    for attribute, found in attributes(classes()[name]):
        of_class = isinstance(found, (classmethod, staticmethod))
        asked = found.__func__ if of_class else found
        if (inspect.isdatadescriptor(asked) or callable(asked)) and not inspect.getdoc(asked):
            # Python does not return the docstring of a slot; it is in the class's `__slots__`.
            texts = getattr(classes()[name], "__slots__", ())
            if not (isinstance(texts, dict) and texts.get(attribute)):
                without.append(attribute)
    assert not without


@pytest.mark.parametrize("name", sorted(stubbed()))
def test_constructors_are_as_the_stub_says(name: str) -> None:
    stub = stubbed()[name]
    positional = [*stub.posonlyargs, *stub.args][1:]
    expected = [(one.arg, "positional") for one in positional]
    expected += [(stub.vararg.arg, "all")] if stub.vararg else []
    expected += [(one.arg, "keyword") for one in stub.kwonlyargs]
    kinds = {
        inspect.Parameter.POSITIONAL_ONLY: "positional",
        inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional",
        inspect.Parameter.VAR_POSITIONAL: "all",
        inspect.Parameter.KEYWORD_ONLY: "keyword",
    }
    said = inspect.signature(getattr(_lane, name)).parameters.values()
    assert [(one.name, kinds[one.kind]) for one in said] == expected
    required = len(positional) - len(stub.defaults)
    required += sum(one is None for one in stub.kw_defaults)
    optional = (inspect.Parameter.VAR_POSITIONAL,)
    empty = inspect.Parameter.empty
    assert sum(one.default is empty and one.kind not in optional for one in said) == required


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_functions_have_signatures_and_texts(module: Any) -> None:
    for name in module.__all__:
        found = getattr(module, name)
        is_alias = hasattr(found, "__origin__")  # an alias of a type, such as `Configure`
        if callable(found) and not isinstance(found, type) and not is_alias:
            assert inspect.signature(found).parameters is not None
            assert inspect.getdoc(found), name


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_type_checkers_see_the_public_names(module: Any) -> None:
    """In an installed package, pyright evaluates lists and `other.__all__`, but no loop."""
    found: list[str] = []
    for one in ast.parse(inspect.getsource(module)).body:
        if not isinstance(one, (ast.Assign, ast.AugAssign)):
            continue
        target = one.targets[0] if isinstance(one, ast.Assign) else one.target
        if not isinstance(target, ast.Name) or target.id != "__all__":
            continue
        if isinstance(one.value, ast.Attribute):
            assert one.value.attr == "__all__" and isinstance(one.value.value, ast.Name)
            found += vars(module)[one.value.value.id].__all__
        else:
            found += ast.literal_eval(one.value)
    assert found == list(module.__all__)


def test_the_public_names_are_what_dir_shows() -> None:
    assert dir(ubridge) == sorted(ubridge.__all__)
    assert set(uhal.__all__) <= set(dir(uhal))


def test_what_is_called_has_the_signature_of_its_kernel() -> None:
    with uhal.Device(0, backend="host"):
        function = ubridge.load_module("unary").get_function("uexp_f32")
        bound = function[1, 1]
    assert function.signature is not None
    names = [parameter.name for parameter in function.signature]
    assert list(inspect.signature(bound).parameters) == names
    first = inspect.signature(bound).parameters[str(names[0])]
    assert first.annotation == function.signature[0].type_text
    assert repr(function) == f"<Function uexp_f32({function.signature.declaration}) on host:0>"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bound.nothing  # type: ignore[attr-defined]
    sequence = uhal.LaunchSequence([(bound, [uhal.Passed.result()] * len(names))], 1, "f32")
    assert str(inspect.signature(sequence)) == "(stream, out, /, *operands)"


def test_public_functions_are_pickled_and_copied_by_their_names() -> None:
    functions = [getattr(module, name) for module in PUBLIC for name in module.__all__]
    kinds = (
        types.FunctionType,
        types.BuiltinFunctionType,
        _lane.RememberedCall,
        _lane.RememberedCreation,
        _lane.RememberedView,
        _lane.NumberReader,
    )
    functions = [one for one in functions if isinstance(one, kinds)]
    assert len(functions) > 50
    for function in functions:
        assert pickle.loads(pickle.dumps(function)) is function
        assert copy.deepcopy(function) is function
        assert weakref.ref(function)() is function


def test_first_lines_of_public_texts_are_short() -> None:
    lines = {name: text.partition("\n")[0] for name, text in texts().items()}
    found = [
        f"{name}: {one}" for name, one in lines.items() if len(one.split()) > LONGEST_FIRST_LINE
    ]
    assert not found, "\n".join(found)


def test_sentences_of_public_texts_are_short() -> None:
    found = [f"{name}: {one}" for name, text in texts().items() for one in long_sentences(text)]
    assert not found, "\n".join(found)
