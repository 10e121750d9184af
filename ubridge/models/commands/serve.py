"""`python -m uhal serve MODEL`: answers over HTTP as OpenAI's interface does.

It listens on the loopback address unless --host says otherwise, which needs a key. Ctrl-C ends it.
Under a launcher, as in `mpirun -n 2 python -m uhal serve MODEL`, the ranks share the model, and
rank 0 listens.
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from ubridge.core.fits import require
from ubridge.files.settings import text_of_file
from ubridge.models.commands.options import add_loading, loaded
from ubridge.models.commands.ranks import Ranks
from ubridge.models.serving.engine import Engine
from uhal.errors import NotFoundError

_GRACE = 5
"""Seconds for which open answers may continue after the first Ctrl-C."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def port_number(text: str) -> int:
    """Read a TCP port."""
    port = int(text)
    if not 0 <= port < 2**16:
        raise argparse.ArgumentTypeError(f"expected 0 to 65535, got {port}")
    return port


def run(arguments: Sequence[str]) -> int:
    """Load a model, and serve it until a signal."""
    summary, _, usage = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m uhal serve", description=summary, epilog=usage.strip()
    )
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="a folder of Hugging Face's, or a GGUF file")
    add("--host", default=_LOOPBACK[0], metavar="HOST", help=f"default: {_LOOPBACK[0]}")
    add(
        "--port",
        type=port_number,
        default=8000,
        metavar="PORT",
        help="default: 8000; 0: any free port",
    )
    add("--key-file", type=Path, metavar="FILE", help="its first line is the key of every request")
    add("--name", metavar="NAME", help="the model's name; default: its file's")
    add("--sequences", type=int, default=16, metavar="N", help="texts that run at once")
    add("--pages", type=int, metavar="N", help="pages of keys and values; default: four contexts")
    add("--page-size", type=int, default=16, metavar="N", help="tokens of a page (default 16)")
    add("--speculate", type=int, default=0, metavar="N", help="drafted tokens a step (default 0)")
    add("--max-tokens", type=int, default=4096, metavar="N", help="most tokens of an answer")
    add("--max-requests", type=int, default=64, metavar="N", help="most texts that wait and run")
    add("--max-body", type=int, default=1 << 20, metavar="BYTES", help="most bytes of a request")
    add("--tokenizer-file", type=Path, metavar="FILE", help="instead of the model's own")
    add_loading(parser)
    options = parser.parse_args(arguments)
    key = None if options.key_file is None else _key_of(options.key_file)
    require(
        key is not None or options.host in _LOOPBACK,
        f"--host {options.host}: expected --key-file FILE with an address that others can reach. "
        "Give a key, or listen on 127.0.0.1.",
    )
    ranks = Ranks()
    with ranks.quiet():
        if ranks.is_first:
            _serve(options, key, ranks)
        else:
            loaded(options, options.model, options.tokenizer_file, ranks=ranks).follow()
        ranks.end()
    return 0


def _serve(options: argparse.Namespace, key: str | None, ranks: Ranks) -> None:
    try:
        import uvicorn

        from ubridge.models.serving.server import application
        from ubridge.models.serving.state import ServerLimits
    except ImportError as error:
        raise NotFoundError(f"{error}. Run: pip install 'uhal-py[serve]'") from None
    limits = ServerLimits(options.max_tokens, options.max_requests, options.max_body)
    # A port in use is refused before the weights are read.
    with socket.create_server(
        (options.host, options.port),
        family=socket.AF_INET6 if ":" in options.host else socket.AF_INET,
    ) as listening:
        model = loaded(options, options.model, options.tokenizer_file, ranks=ranks)
        engine = Engine(
            model,
            pages=options.pages,
            page_size=options.page_size,
            sequences=options.sequences,
            speculate=options.speculate,
        )
        name = options.name or options.model.resolve().name
        app = application(model, engine, name, key=key, limits=limits)
        host = f"[{options.host}]" if ":" in options.host else options.host
        print(
            f"{name}: http://{host}:{listening.getsockname()[1]}/ (Ctrl-C ends it)",
            file=sys.stderr,
            flush=True,
        )
        config = uvicorn.Config(
            app, log_level="warning", lifespan="on", timeout_graceful_shutdown=_GRACE
        )
        uvicorn.Server(config).run(sockets=[listening])


def _key_of(path: Path) -> str:
    """The first line of a file, without blanks around it."""
    key = text_of_file(path).partition("\n")[0].strip()
    require(len(key) >= 8, f"--key-file {path}: expected a key of at least 8 characters.")
    return key
