"""A well-behaved answer on its way to the client. `misbehave` holds the others."""

from __future__ import annotations

from tuner.engines.simulated.completions import Asked, Writer
from tuner.engines.simulated.wire import Connection

DONE = b"data: [DONE]\n\n"


class Reply:
    """Sends one answer as its tokens become due.

    Args:
        connection: where to.
        asked: what was asked.
        writer: makes the documents.
    """

    def __init__(self, connection: Connection, asked: Asked, writer: Writer) -> None:
        self.connection, self.asked, self.writer = connection, asked, writer
        self.produced = 0

    def begin(self) -> None:
        """The request was accepted."""
        if self.asked.stream:
            self.connection.start_stream()
            if self.asked.chat:
                self.connection.stream(self.writer.role_chunk())

    def emit(self, count: int) -> None:
        """`count` more tokens are there (fewer when the answer ends)."""
        start, self.produced = self.produced, min(self.produced + count, self.asked.tokens)
        if self.asked.stream:
            self.tokens(start, self.produced, last=self.produced >= self.asked.tokens)
        if self.produced >= self.asked.tokens:
            self.finish()

    def tokens(self, start: int, end: int, *, last: bool) -> None:
        """Stream tokens `start` to `end`."""
        self.connection.stream(self.writer.chunk(start, end, last=last))

    def finish(self) -> None:
        """All tokens are out."""
        if not self.asked.stream:
            self.connection.send_json(200, self.writer.document(self.produced))
            return
        if self.asked.include_usage:
            self.connection.stream(self.writer.usage_chunk(self.produced))
        self.connection.stream(DONE)
        self.connection.end_stream()
