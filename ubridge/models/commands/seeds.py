"""Settings of commands by a model's name, equal to Candle's and Ubridge's examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ubridge.models.text.generation import Generation


@dataclass(frozen=True)
class Seed:
    """One command: accepted models, defaults, and the format of its speed."""

    architectures: tuple[str, ...]
    """Rows of the table of architectures."""
    kinds: tuple[str, ...] = ()
    """Values of `--which` and `--model`; a configuration beside the weights takes precedence."""
    temperature: float | None = None
    """None for the most probable token."""
    top_p: float | None = None
    repeat_penalty: float | None = 1.1
    """None for a command without the two options of the repetition penalty."""
    repeat_last_n: int = 64
    decimals: int | None = 2
    """Decimals of tokens/s. None prints all decimals, and does not count the prompt and the first
    token."""

    def rate(self, generation: Generation) -> str:
        """Return tokens per second, as the command writes them."""
        if self.decimals is None:
            seconds = generation.seconds - generation.prompt_seconds
            return repr((len(generation.tokens) - 1) / seconds if seconds else 0.0)
        return f"{len(generation.tokens) / max(generation.seconds, 1e-9):.{self.decimals}f}"


_MISTRALS = tuple(f"7b-{kind}v0.{minor}" for kind in ("", "instruct-") for minor in (1, 2))
_STABLE_LMS = ("v1-orig", "v1", "v1-zephyr", "v2", "v2-zephyr", "code")

SEEDS: Mapping[str, Seed] = {
    "llama": Seed(("llama",), temperature=0.8, repeat_last_n=128, decimals=None),
    "mistral": Seed(("mistral", "llama"), _MISTRALS),
    "mixtral": Seed(("mixtral",)),
    "phi": Seed(("phi", "phi3"), ("1", "1.5", "2", "3", "3-medium", "4-mini")),
    "yi": Seed(("llama",), ("6b", "34b")),
    "stable-lm": Seed(("stablelm",), _STABLE_LMS),
    "bigcode": Seed(("gpt_bigcode",), ("1b",), repeat_penalty=None, decimals=3),
    "starcoder2": Seed(("starcoder2",)),
    "chatglm": Seed(("chatglm",)),
    "glm4": Seed(
        ("glm4", "glm", "chatglm"),
        ("glm4-old", "glm4-new"),
        temperature=0.8,
        top_p=0.8,
        repeat_penalty=1.2,
    ),
    "qwen": Seed(("qwen2", "qwen3", "qwen3_moe")),
    "falcon": Seed(("falcon",), repeat_penalty=1.0),
    "gemma": Seed(("gemma", "gemma2")),
    "rwkv": Seed(("rwkv5",), ("world1b5", "world3b", "eagle7b"), temperature=1.0, top_p=0.5),
}
"""Settings by the name of a command."""
