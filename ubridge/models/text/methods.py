"""What a model with a tokenizer can do; `Model` has these methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ubridge.models.text.generation import Generation
from ubridge.models.text.session import Session
from ubridge.models.tokenizers.tokenizer import Tokenizer


class TextMethods:
    """Text in, text out, for a model that came from a folder or file with its tokenizer."""

    source: Path

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer beside the weights, read when it is first asked for; may be set."""
        return Tokenizer.load(self.source)

    @cached_property
    def session(self) -> Session:
        """What `generate` and `chat` remember between calls, in a cache of the usual capacity."""
        return Session(self, self.tokenizer)  # type: ignore[arg-type]  # the rest is the model's

    def generate(self, prompt: str | Iterable[int], **options: Any) -> Generation:
        """Return pieces of text that follow a prompt; see `Session.generate` for the options.

        for piece in model.generate("Once upon a time", max_tokens=100, temperature=0.8):
            print(piece, end="", flush=True)
        """
        return self.session.generate(prompt, **options)

    def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Generation:
        """Return pieces of the answer to messages; see `Session.chat` for the options.

        model.chat([{"role": "user", "content": "Hello"}]).read()
        """
        return self.session.chat(messages, **options)
