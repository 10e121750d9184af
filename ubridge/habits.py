"""Advice for names of numpy, CuPy and PyTorch that ubridge lacks or spells differently."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import find_spec
from typing import NoReturn

from uhal.habits import by_name, refuse_call

_FUNCTIONS = (
    "argsort cos embedding exp flip floor gather gelu log log_softmax masked_fill matmul maximum "
    "minimum relu round scatter sigmoid silu sin softmax sort split sqrt square take tanh topk "
    "where"
)
"""Functions that are methods in PyTorch or numpy."""
OF_MODULE = by_name(
    {
        "Tensor ndarray to_gpu": "Write ubridge.array(values).",
        "asnumpy": "Write x.to_numpy().",
        "bmm dot mm": "Write ubridge.matmul(x, y).",
        "cuda mps xpu": (
            'Write uhal.Device(name), such as "cuda:1", and uhal.Stream(device=device) for streams.'
        ),
        "synchronize": "Write uhal.Device().synchronize().",
        "nn": "Layers are functions, such as ubridge.linear(x, weight, bias).",
        "autograd enable_grad grad no_grad": "ubridge computes no gradients.",
        "manual_seed seed": "Pass seed= to ubridge.rand and ubridge.randn.",
        "choice permutation randint": "Write ubridge.asarray(values) with numpy's random values.",
        "allclose array_equal isclose": "Compare on the host: np.allclose(x.to_numpy(), values).",
        "compile jit": "Record operations with a block: with ubridge.trace() as graph.",
        "ElementwiseKernel RawKernel RawModule ReductionKernel": (
            "Compile the source with uhal.compile, and load it with uhal.Module.from_bytes."
        ),
        "bfloat16 complex64 complex128 double float float16 float32 float64 half int int8 int16 "
        "int32 int64 long uint8 uint16 uint32 uint64": (
            'Write a dtype as a text, such as "f32", or as numpy\'s, np.float32.'
        ),
    }
)
"""Names in the package `ubridge`."""
OF_TENSOR = by_name(
    {
        "cpu get numpy": "Write x.to_numpy() for an array on the host.",
        "cuda xpu": 'Write x.to_device(name), such as "cuda:1".',
        "to": "Write x.to_device(device) or x.astype(dtype).",
        "bfloat16 double float half int long type": 'Write x.astype(dtype), such as "f32".',
        "dim": "Write x.ndim.",
        "wait synchronize": "Write uhal.Device().synchronize(), or stream.synchronize().",
        "numel": "Write x.size.",
        "view": "Write x.reshape(shape).",
        "unsqueeze": "Write x.expand_dims(axis).",
        "clone": "Write x.copy().",
        "backward detach grad requires_grad requires_grad_": "ubridge computes no gradients.",
        "t": "Write x.T.",
        "data_ptr ptr gpudata": "Write x.buffer.as_device_ptr().",
        "set copy_": "Write x.copy_from(source).",
        "fill_ zero_": "Write x.fill(value).",
        "add_ div_ mul_ sub_": "Write an operator, such as x += y.",
        "dot mm bmm": "Write x @ y.",
        **{name: f"Write ubridge.{name}(x, …)." for name in _FUNCTIONS.split()},
    }
)
"""Names of a `DeviceTensor`."""
OF_MODEL = by_name(
    {
        "from_pretrained from_file from_gguf": "Write Model.load(path).",
        "to cuda cpu half float": "Write Model.load(path, device=device, dtype=dtype).",
        "forward": "Write model(tokens), or model.logits(tokens, cache).",
        "config": "Write model.design.",
        "vocab_size n_vocab": "Write model.vocabulary.",
        "eos_token_id": "Write model.end_tokens.",
        "max_length n_ctx": "Write model.context.",
        "stream": "Write for piece in model.generate(prompt).",
        "encode tokenize": "Write model.tokenizer.encode(text).",
        "decode": "Write model.tokenizer.decode(tokens).",
        "create_chat_completion": "Write model.chat(messages).",
        "create_completion": "Write model.generate(prompt).",
        "eval train parameters state_dict": "Models only run; ubridge computes no gradients.",
        "save save_pretrained": "Write python -m ubridge.files convert FOLDER out.gguf.",
    }
)
"""Names of a `Model`."""
OF_GENERATION = by_name(
    {
        "text content output result": "Write generation.read().",
        "next": "Write next(generation), or iterate over generation.",
        "encode endswith lower replace split splitlines startswith strip upper": (
            "A generation is no text: write generation.read()."
        ),
    }
)
"""Names of a `Generation`."""
OF_CACHE = by_name(
    {
        "append add": "model.logits(tokens, cache) appends tokens.",
        "clear reset": "Write cache.truncate(0).",
        "seq_len seen_tokens": "Write cache.length.",
    }
)
"""Names of a `Cache`."""
OF_SESSION = by_name(
    {
        "ask reply send": 'Write session.chat([{"role": "user", "content": text}]).',
        "clear reset": "Write session.close(); the next text begins anew.",
    }
)
"""Names of a `Session`."""
OF_TOKENIZER = by_name(
    {
        "vocab_size n_vocab": "Write tokenizer.vocabulary.",
        "eos_token_id eos_token": "Write tokenizer.end.",
        "bos_token_id bos_token": "Write tokenizer.begin.",
        "tokenize": "Write tokenizer.encode(text).",
        "detokenize": "Write tokenizer.decode(tokens).",
        "apply_chat_template": "Write session.prompt_of(messages).",
    }
)
"""Names of a `Tokenizer`."""
_CALLED = {
    "device": 'Write uhal.Device("cuda"), or pass device="cuda".',
    "tensor": OF_MODULE["Tensor"],
}
"""Modules whose names are functions in PyTorch."""


def refuse_name(package: str, name: str, methods: Iterable[str]) -> NoReturn:
    """Raise the error for a name that a package lacks; a traceback adds a similar name.

    `methods` are names of a tensor.
    """
    advice = OF_MODULE.get(name, "")
    if name in methods and not advice:
        advice = f"Write x.{name}."
    if not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
        advice = f"Write import {package}.{name} first."
    message = f"module {package!r} has no attribute {name!r}"
    message = f"{message}. {advice}" if advice else message
    raise AttributeError(message, name=name, obj=sys.modules[package])


def refuse_calls(package: str) -> None:
    """Let the package's modules with such names give advice when they are called."""
    for name, advice in _CALLED.items():
        refuse_call(f"{package}.{name}", advice)
