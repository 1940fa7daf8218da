"""The server's log, in the dress of the engine that a flavor imitates.

Formats were read off real logs: SGLang 0.5.16 and vLLM 0.26 on two GPUs, checked against the format strings of
SGLang 0.5.23 and vLLM 0.33.
"""

from __future__ import annotations

import os
import sys
import time

BANNER = (
    "tuner simulated engine: speeds follow the model {model}; NO HARDWARE IS MEASURED "
    "(flavor {flavor}, time scale {scale:g})"
)


class Journal:
    """Writes log lines to standard error, unbuffered, as the engines do.

    Args:
        flavor: whose prefixes to use.
        quiet: leave out progress while serving.
    """

    def __init__(self, flavor: str, *, quiet: bool = False) -> None:
        self._vllm, self.quiet = flavor == "vllm", quiet
        self._pid = os.getpid()

    def raw(self, text: str) -> None:
        """Text as it is, with a line end."""
        self.bytes(text.encode() + b"\n")

    def bytes(self, data: bytes) -> None:
        """Bytes as they are."""
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()

    def main(self, text: str, *, source: str = "api_server.py:673") -> None:
        """A line of the front-end process."""
        self._lines("APIServer", "", text, source)

    def core(self, text: str, *, source: str = "core.py:340") -> None:
        """A line of the engine core; SGLang has none, so its scheduler speaks."""
        self._lines("EngineCore", " TP0", text, source)

    def worker(self, text: str, *, source: str = "model_runner.py:305", level: str = "INFO") -> None:
        """A line of rank 0."""
        self._lines("Worker_TP0", " TP0", text, source, level)

    def uvicorn(self, text: str, *, level: str = "INFO") -> None:
        """A line of the HTTP server."""
        label = f"{level}:".ljust(10)
        self.raw(f"(APIServer pid={self._pid}) {label}{text}" if self._vllm else f"[{self._stamp()}] {label}{text}")

    def _lines(self, process: str, rank: str, text: str, source: str, level: str = "INFO") -> None:
        if self._vllm:
            head = f"({process} pid={self._pid}) {level} {time.strftime('%m-%d %H:%M:%S')} [{source}] "
        else:
            head = f"[{self._stamp()}{rank}] "
        self.raw("\n".join(head + line for line in text.split("\n")))

    @staticmethod
    def _stamp() -> str:
        return time.strftime("%Y-%m-%d %H:%M:%S")
