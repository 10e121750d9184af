"""A model that remembers what it has read: prompts and chats that go on where the last one ended.

The next prompt shares a beginning with the last one more often than not, a chat always: what the
cache holds of it is not read again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import ubridge as ub
from ubridge.files.errors import InvalidFileError
from ubridge.files.settings import MOST, Settings, shown
from ubridge.models.text.generation import Generation, Limits, tokens_of
from ubridge.models.text.protocol import CacheLike, LanguageModel
from ubridge.models.text.sampler import Hook
from ubridge.models.text.sampling import Sampling
from ubridge.models.text.shared_cache import SharedCache
from ubridge.models.text.templates import render
from ubridge.models.tokenizers.tokenizer import Tokenizer
from uhal.dtypes import i64
from uhal.errors import ArgumentTypeError, ArgumentValueError

_FORMAT = "ubridge cache 1"
_PARTS_FOR_AN_ANSWER = 4
"""Of a chat whose answer has no limit, the context keeps this part free for it."""


class Session:
    """A model, its tokenizer and one cache, on which prompts follow each other.

    One thread at a time may use it. A text that is begun while another one is being made takes the
    cache over; the other goes on with a cache of its own, and both come out as they should.
    """

    def __init__(
        self, model: LanguageModel[Any], tokenizer: Tokenizer, capacity: int | None = None
    ) -> None:
        """With room for `capacity` tokens, by default what the model says; none is taken yet."""
        self.model = model
        self.tokenizer = tokenizer
        self._shared = SharedCache(lambda: model.cache(capacity))

    @property
    def cache(self) -> CacheLike:
        """What was read last; made when it is first asked for."""
        return self._shared.cache

    def generate(
        self,
        prompt: str | Iterable[int],
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        hook: Hook | None = None,
        ignore_end: bool = False,
        log_probabilities: int | None = None,
        sampling: Sampling | None = None,
        **options: Any,
    ) -> Generation:
        """Return pieces of text that follow a prompt, which is a text or tokens.

        `sampling`, or the fields of `Sampling` as `options`, say how tokens are chosen: the most
        probable one unless a temperature is given. `hook` is called with the logits, on the device,
        and all tokens before them; what it returns is taken in their place. With
        `log_probabilities=n` the `choices` of the generation tell each token's and the n best.

        A prompt longer than the context is refused. When the context is full the text ends, and
        `finish` says `context`: nothing is ever dropped from what the model sees.

        Raises `ArgumentTypeError` and `ArgumentValueError`, before anything runs.
        """
        limits = Limits(
            max_tokens, (stop,) if isinstance(stop, str) else tuple(stop),
            ignore_end, log_probabilities,
        )  # fmt: skip
        chosen = _sampling(sampling, options)
        tokens = tokens_of(self.tokenizer, prompt)
        return Generation(self.model, self.tokenizer, tokens, self._shared, limits, chosen, hook)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        template: str | None = None,
        names: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Generation:
        """Return pieces of the answer to messages, each with a `role` and a `content`.

        They become a prompt by the model's template, or by the one given; `names` are handed to it,
        such as `tools`. Options are those of `generate`. Where the messages leave less room than
        the answer may take (`max_tokens`, at most half the context; without it a quarter), the
        oldest behind the system's are left out, a question with its answer at a time, and
        `left_out` says how many.
        """
        Limits(options.get("max_tokens"))
        tokens, left_out = self._fitting(messages, template, dict(names or {}), options)
        made = self.generate(tokens, **options)
        made.left_out = left_out
        return made

    def prompt_of(
        self,
        messages: Sequence[Mapping[str, Any]],
        template: str | None = None,
        **names: Any,
    ) -> str:
        """Return the prompt of messages by the model's template, or the one given.

        Raises `ArgumentValueError` where there is none, or it refuses them.
        """
        tokenizer = self.tokenizer
        form = template or tokenizer.chat_template
        if form is None:
            raise ArgumentValueError(
                f"chat: this model ({self.model.architecture}) comes without a chat template, so "
                "it may never have learned to chat: give template=, or use generate()"
            )
        for name, value in tokenizer.template_names.items():
            names.setdefault(name, value)
        for name, token in (("bos_token", tokenizer.begin), ("eos_token", tokenizer.end)):
            names.setdefault(name, "" if token is None else tokenizer.spelling_of(token))
        return render(form, messages, **names)

    def _fitting(
        self,
        messages: Sequence[Mapping[str, Any]],
        template: str | None,
        names: dict[str, Any],
        options: Mapping[str, Any],
    ) -> tuple[list[int], int]:
        """The tokens of as many messages as fit, and how many had to be left out."""
        capacity = self.cache.capacity
        wanted = options.get("max_tokens")
        answer = capacity // _PARTS_FOR_AN_ANSWER if wanted is None else min(wanted, capacity // 2)
        kept, left_out = list(messages), 0
        while True:
            prompt = self.prompt_of(kept, template, **names)
            tokens = self.tokenizer.encode(prompt, add_special=False)
            if len(tokens) + answer <= capacity:
                return tokens, left_out
            turns = [index for index, one in enumerate(kept) if one["role"] == "user"]
            if len(turns) < 2:
                # The last question alone: less room for the answer is better than none.
                return tokens, left_out
            del kept[turns[0] : turns[1]]
            left_out += turns[1] - turns[0]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what the cache holds to a safetensors file, with the tokens it is of."""
        cache = self.cache
        ub.save(
            path,
            {
                **cache.tensors,
                "tokens": np.array(cache.tokens, np.int64),
                "turned": np.array(getattr(cache, "turned", ()), np.int64),
            },
            metadata={
                "format": _FORMAT,
                "of": json.dumps(self._described(cache)),
                "model": getattr(self.model, "description", self.model.architecture),
                "weights": getattr(self.model, "fingerprint", ""),
                "room": str(cache.room),
                "kept": str(cache.kept),
            },
        )

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Take the cache from a file that `save` wrote, of the same model.

        Raises `InvalidFileError` for another file, `ArgumentValueError` for one of another model or
        capacity, or of the same model with other weights; the cache is then as it was.
        """
        saved = ub.load(path, device=self.model.device)
        if saved.metadata.get("format") != _FORMAT:
            raise InvalidFileError(f"{path}: expected a file that Session.save wrote")
        told = _settings(path, saved.metadata)
        room = told.integer("room")
        found = self.cache if self.cache.room == room else self._shared.another()
        try:
            found.make_room(min(room, found.capacity))
            self._require_ours(told, saved, found)
            tokens = _integers(path, saved, "tokens", found.capacity, self.model.vocabulary - 1)
            turned = _integers(path, saved, "turned", len(tokens))
            kept = told.integer("kept", most=len(tokens))
            values: dict[str, Any] = {name: saved[name] for name in found.tensors}
        except BaseException:
            if found is not self.cache:
                found.close()
            raise
        self._shared.replace(found)
        cache = self._shared.take(self)
        # Nothing counts as kept until everything is.
        cache.kept = 0
        for name, tensor in cache.tensors.items():
            tensor.copy_from(values[name])
        cache.tokens[:] = tokens
        cache.kept = kept
        if hasattr(cache, "turned"):
            cache.turned[:] = turned

    def _require_ours(self, told: Settings, saved: ub.Weights, cache: CacheLike) -> None:
        """Refuse a file of another model, or without a part of the cache."""
        ours, theirs = self._described(cache), told.value("of")
        if ours != theirs:
            raise ArgumentValueError(
                f"{told.where}: expected a cache of {ours}, got one of {shown(theirs)}"
            )
        weights = getattr(self.model, "fingerprint", "")
        if saved.metadata.get("weights", "") != weights:
            mine = getattr(self.model, "description", self.model.architecture)
            raise ArgumentValueError(
                f"{told.where}: expected a cache of {mine}, got one of "
                f"{saved.metadata.get('model', 'a model without a name')}, which has the same "
                "shape and other weights. Read the text anew."
            )
        for name, expected in ours["tensors"].items():
            entry = saved.entries.get(name)
            given = None if entry is None else [entry.kind_name, *entry.shape]
            if given != expected:
                raise InvalidFileError(f"{told.where}: {name}: expected {expected}, got {given}")

    def close(self) -> None:
        """Let go of the cache's memory; the next prompt makes another one."""
        self._shared.close()

    def _described(self, cache: CacheLike) -> dict[str, Any]:
        """What a cache has to agree in."""
        return {
            "architecture": self.model.architecture,
            "vocabulary": self.model.vocabulary,
            "tensors": {name: [one.dtype.name, *one.shape] for name, one in cache.tensors.items()},
        }


def _settings(path: str | os.PathLike[str], metadata: Mapping[str, str]) -> Settings:
    """The values of a file's metadata, which are texts of JSON."""
    values: dict[str, Any] = {}
    for key in ("room", "kept", "of"):
        try:
            values[key] = json.loads(metadata.get(key, "null"))
        except (ValueError, RecursionError):
            values[key] = metadata[key]
    return Settings(os.fspath(path), values)


def _integers(
    path: str | os.PathLike[str], saved: ub.Weights, name: str, most: int, largest: int = MOST
) -> list[int]:
    """The integers of a tensor: at most so many, of 0 to the largest."""
    entry = saved.entries.get(name)
    if entry is None or entry.kind != i64 or len(entry.shape) != 1 or entry.elements > most:
        given = "none" if entry is None else f"{entry.kind_name} of {entry.shape}"
        raise InvalidFileError(f"{path}: {name}: expected i64 of at most ({most},), got {given}")
    found: list[int] = np.frombuffer(saved.raw(name), np.int64).tolist()
    if found and not 0 <= min(found) <= max(found) <= largest:
        raise InvalidFileError(
            f"{path}: {name}: expected 0 to {largest}, got {min(found)} to {max(found)}"
        )
    return found


def _sampling(given: Sampling | None, options: Mapping[str, Any]) -> Sampling:
    if given is not None and options:
        raise ArgumentTypeError(
            f"generate: expected either sampling= or {', '.join(options)}, got both"
        )
    unknown = sorted(set(options) - set(Sampling.__dataclass_fields__))
    if unknown:
        raise ArgumentTypeError(
            f"generate: there is no option {', '.join(unknown)}; those of sampling are "
            f"{', '.join(Sampling.__dataclass_fields__)}"
        )
    if given is not None and not isinstance(given, Sampling):
        raise ArgumentTypeError(f"sampling: expected a Sampling, got {type(given).__name__}")
    return given or Sampling(**options)
