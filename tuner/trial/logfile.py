"""A server log of bounded size that keeps its head and its tail; standard library only, because the guard imports it.

While the server runs, the log is a chain of segments: `server.log` (the head, never dropped), then `server.log.1`,
`server.log.2` … of which the newest two are kept. When the launch ends they are joined into one `server.log`, with a
line that says how many bytes were left out. Bytes are never decoded here: invalid UTF-8 passes unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from tuner.trial.blindfold import Blindfold

HEAD_BYTES = 32 * 1024 * 1024
SEGMENT_BYTES = 16 * 1024 * 1024
KEPT_SEGMENTS = 2

_LONGEST_LINE = 64 * 1024
_READ_BYTES = 256 * 1024
_MOST_BEHIND = 4 * 1024 * 1024
_STARTUP_LINES = 20_000


def segment_path(log: Path, number: int) -> Path:
    """The file of segment `number`; 0 is the head."""
    return log if number == 0 else log.with_name(f"{log.name}.{number}")


class LogWriter:
    """Appends bytes and drops the middle of a flood.

    A full disk does not raise: bytes that cannot be written are counted in `lost`, because a server must never block
    on its log.
    """

    def __init__(
        self,
        path: Path,
        *,
        hidden: Iterable[str] = (),
        head_bytes: int = HEAD_BYTES,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.path = path
        self.lost = 0
        self._blindfold = Blindfold(hidden)
        self._dropped = 0
        self._limits = (head_bytes, segment_bytes)
        self._number = 0
        self._written = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def write(self, data: bytes) -> None:
        """Append, beginning a new segment where the present one is full."""
        self._append(self._blindfold.hide(data))

    def _append(self, data: bytes) -> None:
        while data:
            limit = self._limits[min(self._number, 1)]
            if self._written >= limit:
                self._next_segment()
                continue
            piece, data = data[: limit - self._written], data[limit - self._written :]
            try:
                done = os.write(self._file, piece)
            except OSError:
                self.lost += len(piece)
                continue
            self._written += done
            data = piece[done:] + data

    def close(self) -> None:
        """Close the file and join the segments."""
        self._append(self._blindfold.rest())
        os.close(self._file)
        join_segments(self.path, left_out=self.lost + self._dropped)

    def _next_segment(self) -> None:
        self._number += 1
        try:
            new = os.open(
                segment_path(self.path, self._number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644
            )
        except OSError:
            self._number -= 1
            self._written = 0  # no room for another file: go on in this one rather than lose the tail
            return
        os.close(self._file)
        self._file, self._written = new, 0
        dropped = segment_path(self.path, self._number - KEPT_SEGMENTS)
        if self._number > KEPT_SEGMENTS:
            dropped.unlink(missing_ok=True)
            self._dropped += self._limits[1]


def _tail_segments(log: Path) -> list[tuple[int, Path]]:
    found = []
    for path in log.parent.glob(f"{log.name}.*"):
        suffix = path.name.removeprefix(f"{log.name}.")
        if suffix.isdigit():
            found.append((int(suffix), path))
    return sorted(found)


def join_segments(log: Path, *, left_out: int = 0) -> None:
    """Append the kept segments to the head, with a line that says what is missing; harmless when done already."""
    segments = _tail_segments(log)
    has_gap = left_out > 0 or (bool(segments) and segments[0][0] > 1)
    try:
        with log.open("ab") as joined:
            if has_gap:
                size = f"{left_out} bytes" if left_out else "the middle"
                joined.write(f"\n[tuner: {size} of a flood left out here]\n".encode())
            for _, path in segments:
                with path.open("rb") as source:
                    while chunk := source.read(_READ_BYTES):
                        joined.write(chunk)
                path.unlink()
    except OSError:
        return  # the disk is full: the segments stay beside the head


@dataclass(slots=True)
class LogFollower:
    """Reads the lines of a log that grows, at bounded cost.

    A carriage return ends a line as a newline does, so that a progress bar counts as progress. When the server
    writes faster than lines can be looked at, the follower jumps ahead: the file keeps the bytes for later.

    Attributes:
        seen_bytes: bytes that have arrived since the beginning, jumped ones included.
    """

    log: Path
    seen_bytes: int = 0
    _number: int = 0
    _offset: int = 0
    _partial: bytes = field(default=b"", repr=False)

    def lines(self) -> list[str]:
        """Complete lines that arrived since the last call, without their ends; at most some 256 KiB of them."""
        data = self._partial + b"".join(self._chunks())
        pieces = data.replace(b"\r", b"\n").split(b"\n")
        self._partial = pieces.pop()
        if len(self._partial) > _LONGEST_LINE:
            pieces.append(self._partial)
            self._partial = b""
        return [piece.decode("utf-8", errors="replace") for piece in pieces if piece.strip()]

    def rest(self) -> list[str]:
        """Everything up to the end, an unfinished last line included; for after the server's death."""
        lines: list[str] = []
        while batch := self.lines():
            lines += batch
        if self._partial.strip():
            lines.append(self._partial.decode("utf-8", errors="replace"))
            self._partial = b""
        return lines

    def _chunks(self) -> Iterator[bytes]:
        budget = _READ_BYTES
        while budget > 0:
            chunk = self._read_here(budget)
            if chunk:
                budget -= len(chunk)
                yield chunk
            elif not self._advance():
                return

    def _read_here(self, limit: int) -> bytes:
        try:
            with segment_path(self.log, self._number).open("rb") as file:
                behind = os.fstat(file.fileno()).st_size - self._offset
                if behind > _MOST_BEHIND:
                    jump = behind - limit
                    self._offset += jump
                    self.seen_bytes += jump
                    self._partial = b""
                file.seek(self._offset)
                chunk = file.read(limit)
        except OSError:
            return b""
        self._offset += len(chunk)
        self.seen_bytes += len(chunk)
        return chunk

    def _advance(self) -> bool:
        later = [number for number, _ in _tail_segments(self.log) if number > self._number]
        if not later:
            return False
        self._number, self._offset = later[0], 0
        return True


def first_lines(path: Path) -> list[str]:
    """What a server wrote at its start: 20,000 lines at most, since a log may grow by gigabytes afterwards."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return list(islice(file, _STARTUP_LINES))
