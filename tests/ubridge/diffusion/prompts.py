"""CLIP's tokenizer of transformers as the reference: a small vocabulary, and 400 random texts.

`python -m tests.ubridge.diffusion.prompts` needs transformers. It learns the vocabulary from this
project's pages, and writes a digest of the tokens of each text.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from tests.ubridge.diffusion.judging import DATA, SEED

TOKENIZER = DATA / "tokenizer"
COUNT = 400
_SIZE = 1000
_PIECES = (
    *(
        "a photo of an astronaut",
        " riding",
        " a horse",
        "It's",
        " we'll",
        "THEY'RE",
        "I'D",
        "o'clock",
    ),
    *(
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        "\xa0",
        "\u2003",
        "\u3000",
        "\x1c",
        "\x85",
        "\u200b",
        "\u2028",
    ),
    *("1", "42", " 2026", "\xbd", "\u0664\u0665", "\u2167", "3.14", "10%", "e-5", "#1"),
    *(
        ".",
        ",",
        "!!",
        "?!",
        "...",
        "(((",
        "))",
        "[x:0.8]",
        "--",
        "\u2014",
        "\u201c",
        "\u201d",
        "*",
        "_",
        "\\",
    ),
    *(
        "caf\xe9",
        "cafe\u0301",
        "\xc5ngstr\xf6m",
        "STRASSE",
        "stra\xdfe",
        "\u0130stanbul",
        "I\u0307",
    ),
    *(
        "\u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3",
        "\u0441\u043e\u0431\u0430\u043a\u0430",
        "\u4e2d\u6587",
        "\u65e5\u672c\u8a9e",
    ),
    *(
        "\ud55c\uad6d\uc5b4",
        "\u0939\u093f\u0928\u094d\u0926\u0940",
        "\u0627\u0644\u0639",
        "\U0001f680",
        "\U0001f468\u200d\U0001f469",
    ),
    *(
        "<|startoftext|>",
        "<|endoftext|>",
        "<|EndOfText|>",
        "<|endoftext",
        "</w>",
        "\ufb01",
        "\u1e9e",
        "\0",
    ),
    *(
        "kernel",
        " launches",
        " devices",
        "Buffer",
        " greg rutkowski",
        "4k",
        " 8K",
        "hd,",
        "trending",
    ),
)


def texts() -> list[str]:
    """Return the texts: runs of words, marks, blanks and scripts, and random characters."""
    rng = np.random.default_rng([SEED, 400])
    found = []
    for _ in range(COUNT):
        pieces = [_PIECES[one] for one in rng.integers(0, len(_PIECES), rng.integers(0, 12))]
        if rng.random() < 0.3:
            codes = rng.integers(1, 0x3000, 4)
            pieces.insert(int(rng.integers(0, len(pieces) + 1)), "".join(map(chr, codes)))
        found.append("".join(pieces))
    return found


def digest(tokens: list[int]) -> str:
    """Return a digest of tokens."""
    return hashlib.sha256(json.dumps(tokens).encode()).hexdigest()[:12]


def main() -> int:
    """Write the vocabulary, and the digests of the tokens of transformers."""
    import tokenizers
    from transformers import CLIPTokenizer

    whole = tokenizers.Tokenizer(tokenizers.models.BPE(end_of_word_suffix="</w>"))
    whole.normalizer = tokenizers.normalizers.Lowercase()
    pattern = tokenizers.Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+")
    whole.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(pattern, "removed", invert=True),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=_SIZE, end_of_word_suffix="</w>", show_progress=False
    )
    pages = sorted(Path("docs").rglob("*.md"))
    whole.train_from_iterator([one.read_text("utf-8") for one in pages], trainer)
    merges = [" ".join(one) for one in json.loads(whole.to_str())["model"]["merges"]]
    signs = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    names = [*signs, *(f"{sign}</w>" for sign in signs)]
    kept = []
    for merge in merges:
        joined = merge.replace(" ", "")
        if len(names) < _SIZE - 2 and joined not in names:
            names.append(joined)
            kept.append(merge)
    names += ["<|startoftext|>", "<|endoftext|>"]
    TOKENIZER.mkdir(parents=True, exist_ok=True)
    numbers = {name: number for number, name in enumerate(names)}
    (TOKENIZER / "vocab.json").write_text(json.dumps(numbers) + "\n", "utf-8")
    (TOKENIZER / "merges.txt").write_text("\n".join(["#version: 0.2", *kept]) + "\n", "utf-8")
    judge = CLIPTokenizer.from_pretrained(TOKENIZER)
    found = [judge(text).input_ids for text in texts()]
    told = {"seed": SEED, "tokens": sum(map(len, found)), "digests": [digest(one) for one in found]}
    (DATA / "prompts.json").write_text(json.dumps(told) + "\n", "utf-8")
    print(told["tokens"], "tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
