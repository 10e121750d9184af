"""`python -m uhal chat MODEL`: a talk with a model.

Ctrl-C ends an answer, Ctrl-D or /exit the chat; /reset forgets the conversation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ubridge.files.settings import text_of_file
from ubridge.models.commands.options import (
    add_loading,
    add_sampling,
    loaded,
    sampling_of,
    text_given,
)
from ubridge.models.text.sampling import Sampling
from ubridge.models.text.session import Session
from uhal.errors import ArgumentValueError

_PROMPT = "> "


def run(arguments: Sequence[str]) -> int:
    """Load a model, and answer each line."""
    summary, _, usage = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m uhal chat", description=summary, epilog=usage.strip()
    )
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="a folder of Hugging Face's, or a GGUF file")
    add("--system", metavar="TEXT", help="the system prompt")
    add("-n", "--sample-len", "--max-tokens", type=int, metavar="N", help="of each answer")
    add("--tokenizer-file", type=Path, metavar="FILE", help="instead of the model's own")
    add("--template", type=Path, metavar="FILE", help="a chat template instead of the model's own")
    add_sampling(parser, temperature=0.7)
    add_loading(parser)
    options = parser.parse_args(arguments)
    sampling = sampling_of(options)
    first = []
    if options.system:
        first.append({"role": "system", "content": text_given("--system", options.system)})
    model = loaded(options, options.model, options.tokenizer_file)
    if options.template is not None:
        model.tokenizer.chat_template = text_of_file(options.template)
    # Refuse now, not after the first question.
    session = model.session()
    session.prompt_of([*first, {"role": "user", "content": ""}])
    _make_history()
    messages = list(first)
    while True:
        try:
            line = input(_PROMPT if sys.stdin.isatty() else "").strip()
        except EOFError:
            return 0
        except KeyboardInterrupt:
            print()
            continue
        if line == "/exit":
            return 0
        if line == "/reset":
            messages = list(first)
        elif line:
            try:
                asked = [*messages, {"role": "user", "content": text_given("this line", line)}]
                answer = _answered(session, asked, options.sample_len, sampling)
            except ArgumentValueError as error:
                # A line that cannot be answered, for example if too long, does not end the chat.
                print(f"chat: {error}", file=sys.stderr)
            else:
                messages = [*asked, {"role": "assistant", "content": answer}]


def _answered(
    session: Session, messages: list[dict[str, str]], max_tokens: int | None, sampling: Sampling
) -> str:
    """Write an answer, up to its end or to Ctrl-C, and return it."""
    told = []
    generation = session.chat(messages, max_tokens=max_tokens, sampling=sampling)
    if generation.left_out:
        print(f"({generation.left_out} of the oldest messages no longer fit)", file=sys.stderr)
    try:
        for piece in generation:
            told.append(piece)
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        generation.close()
    print(flush=True)
    return "".join(told)


def _make_history() -> None:
    """Enable line editing and history, if Python supports it."""
    with suppress(ImportError):
        import readline  # noqa: F401  # input() finds it
