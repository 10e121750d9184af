"""Classes of `ubridge.models` refuse extreme numbers by errors of ubridge's.

The tests find the parameters in the signatures. The first test fails if a parameter is missing from
the calls below.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.sampling import SOAK
from tests.ubridge.test_hostile_numbers import EXTREMES, NUMBERS, little_memory
from ubridge import models
from ubridge.models import Engine, Model, PagedCache, Sampling, Session
from ubridge.models.making import make_model
from uhal import Device
from uhal.errors import DeviceError

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

INTERNAL = {
    *("Model.__init__", "Generation.__init__", "Cache.__init__", "Cache.make_room"),
    *("Cache.read_one", "Cache.stretch", "Model.paged", "EngineStats.__init__"),
    *("Request.__init__", "Request.take", "Request.drafts"),
}
"""Methods that other classes call with checked numbers."""
MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    with Device(0, backend="host") as host:
        return Model.load(
            make_model(tmp_path_factory.mktemp("model") / "made", seed=1).folder,
            device=host,
            context=16,
        )


def public_parameters() -> set[tuple[str, str]]:
    found = set()
    for name in models.__all__:
        kind = getattr(models, name)
        for method in dir(kind) if inspect.isclass(kind) else ():
            called = getattr(kind, method, None)  # names that only have advice raise
            is_public = method[0] != "_" or method in ("__init__", "__call__")
            if f"{name}.{method}" in INTERNAL or not is_public or not callable(called):
                continue
            for one in inspect.signature(called).parameters.values():
                if NUMBERS.search(str(one.annotation)) and "Callable" not in str(one.annotation):
                    found.add((f"{name}.{method}", one.name))
    return found


def calls(model: Model) -> dict[str, Callable[..., Any]]:
    """Return each method with its numbers; generation is started, but its text is not read."""
    cache = model.cache(8)
    model.logits([1, 2, 3], cache)
    tokenizer = model.tokenizer

    def generate(one: Model | Session, prompt: Any = "Once", **options: Any) -> None:
        next(iter(one.generate(prompt, **options)), "")

    def chat(one: Model | Session, **options: Any) -> None:
        next(one.chat(MESSAGES, template="{{ messages[0].content }}", **options), "")

    session = model.session(8)
    engine = Engine(model, sequences=2, context=8)
    source = engine.submit("Once", max_tokens=2)
    pages = PagedCache(8, 4)
    sequence = pages.allocate()
    return {
        "Engine.__init__": lambda **numbers: Engine(model, **numbers).close(),
        "Engine.submit": lambda prompt="Once", **numbers: engine.submit(prompt, **numbers).close(),
        "Engine.fork": lambda **numbers: engine.fork(source, **numbers).close(),
        "PagedCache.__init__": lambda pages=4, page_size=4: PagedCache(pages, page_size),
        "PagedCache.allocate": lambda prompt: pages.free(pages.allocate(prompt)),
        "PagedCache.append": partial(pages.append, sequence),
        "PagedCache.found": pages.found,
        "PagedCache.needed": partial(pages.needed, sequence),
        "PagedCache.needed_apart": partial(pages.needed_apart, sequence),
        "PagedCache.truncate": partial(pages.truncate, sequence),
        "PagedSequence.slots": lambda first=0, count=0: sequence.slots(first, count),
        "Model.__call__": model,
        "Model.logits": lambda tokens: model.logits(tokens, model.cache(4)),
        "Model.cache": model.cache,
        "Model.session": model.session,
        "Model.load": lambda context: Model.load(
            model.source, device=model.device, context=context
        ),
        "Model.generate": partial(generate, model),
        "Model.chat": partial(chat, model),
        "Cache.truncate": cache.truncate,
        "Sampling.__init__": Sampling,
        "Session.__init__": lambda capacity: Session(model, tokenizer, capacity).cache,
        "Session.generate": partial(generate, session),
        "Session.chat": partial(chat, session),
        "Tokenizer.decode": tokenizer.decode,
        "Tokenizer.require_token": tokenizer.require_token,
        "Tokenizer.spelling_of": tokenizer.spelling_of,
        "Tokenizer.stream": lambda after: tokenizer.stream(after).push(1),
    }


def test_every_number_has_a_call(model: Model) -> None:
    assert {name for name, _ in public_parameters()} == set(calls(model))


def test_extreme_numbers_are_refused_in_our_words(model: Model, rng: np.random.Generator) -> None:
    """Test a sample of the values for each parameter, alone and in a list; in a soak all."""
    of_models = calls(model)
    with little_memory(model.device):
        for name, parameter in sorted(public_parameters()):
            chosen = rng.permutation(len(EXTREMES))[: None if SOAK else 8]
            for value in (EXTREMES[one] for one in chosen):
                for given in (value, [value]):
                    try:
                        of_models[name](**{parameter: given})
                    except (DeviceError, IndexError):
                        pass
                    except Exception as error:
                        error.add_note(f"{name}({parameter}={given!r})")
                        raise
