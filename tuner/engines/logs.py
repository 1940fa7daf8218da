"""Server logs as they are found in the wild, made comparable.

Colours, progress bars and the prefixes of containers, journals, Ray and the engines' own loggers are taken off;
messages that a terminal wrapped (even inside a word) or that span several source lines can be searched as one text;
invalid UTF-8 and gigabytes are read within bounds.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import TypeVar

MAX_LINE = 8_192
"""Characters kept of one line."""
HEAD_BYTES = 1 << 20
TAIL_BYTES = 2 << 20
MIDDLE_CHARS = 1 << 20
MAX_REPEATS = 6
"""Lines that differ in digits only are kept this often: a flood must not hide the rest."""

MIN_TERMINAL = 40
"""Columns of the narrowest terminal whose wrapping is undone."""
MIN_BROKEN = 2
"""So many lines must look broken before any is put together."""

# What errors and the warnings worth reading contain, cut so that case at the start does not matter. Few, for speed.
_TROUBLE = (b"rror", b"xception", b"raceback", b"ailed", b"WARN", b"illed", b"memory", b"died", b"imeout", b"timed out")
_CHUNK = 1 << 20

# Real escape sequences, and colours whose escape character was lost or spelled out when a log was copied.
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])"
    r"|(?:ESC|\^\[|\\x1b|\\033|\\u001b)\[[\d;]*m"
)
_BAR_END = re.compile(r"(?<=(?:it/s|s/it)\])(?=\s?\S)")
_DIGITS = re.compile(r"\d+")


class Level(IntEnum):
    """Severity that a logger printed."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


_LEVELS = {
    "DEBUG": Level.DEBUG, "INFO": Level.INFO, "WARNING": Level.WARNING, "WARN": Level.WARNING, "ERROR": Level.ERROR,
    "CRITICAL": Level.ERROR, "FATAL": Level.ERROR,
    "I": Level.INFO, "W": Level.WARNING, "E": Level.ERROR, "F": Level.ERROR,
}  # fmt: skip
_LEVEL = r"(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)"

# One prefix each; they are taken off one after another for as long as one fits.
_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:\[[\w.-]+\]|[A-Za-z][\w.-]*)\s*\|(?:\s|$)",  # docker and podman compose: `vllm-1  | `, `[vllm] | `
        r"\[pod/[^\]]+\]\s?",  # kubectl logs --prefix
        r"[A-Z][a-z]{2}\s+\d{1,2} \d\d:\d\d:\d\d \S+ [\w@.-]+(?:\[\d+\])?:\s?",  # journald, syslog
        r"\+\d+\.\d+\s",  # seconds since start
        # docker -t, CRI
        r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\s(?:std(?:out|err) [FP]\s)?\s*",
        r"\((?P<source>[A-Za-z][\w:.-]*)?,? ?pid=\d+(?:, ip=[\w.:]+)?\)(?:\s(?=\S)|$|\s)",  # vLLM processes, Ray actors
        r"\((?P<source>EngineCore\w*|Worker\w*|APIServer\w*|ApiServer\w*|VllmWorker\w*|raylet|autoscaler)\)\s?",
        r"\[rank(?P<source>\d+)\]:\s?",  # torch
        r"\[(?P<level>[EWIF])(?:\d{4}|\d{3})? ?[\d:.]* ?[\w.-]+\.(?:cpp|cc|cu|h|hpp|py)(?::\d+)?\]\s?",  # c10 / glog
        r"(?P<level>[EWIF])\d{4} \d\d:\d\d:\d\d\.\d+ \d+ [\w./-]+:\d+\] ",  # torch's Python loggers
        r"\[(?:(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?|\.\.\.)(?P<source>(?: [A-Z]{2,4}\d+)*)\]\s?",  # SGLang
        r"\[(?P<source>(?:[A-Z]{2,4}\d+ ?)+)\]\s?",  # the same without a clock
        rf"{_LEVEL} (?:\d{{4}}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? \[?[\w./-]+:\d+\] ?",  # vLLM
        rf"{_LEVEL} \[[\w./-]+\.py(?::[\d.]+)?\] ?",
        r"\[[\w./-]+\.py:\d+\] ?",
        rf"{_LEVEL}:(?:\s+|[\w.]+:)",  # uvicorn, logging's default
        rf"(?:[\w.]+ )?- (?:[\w.]+ - )?{_LEVEL} - ",  # logging with dashes
        rf"{_LEVEL}\s+(?=\S)",
        r"(?P<source>[\w.-]+:\d+:\d+) \[\d+\]\s",  # NCCL: host:pid:tid [device]
    )
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One message line.

    Attributes:
        text: without prefixes, colours and trailing blanks; leading blanks stay, since they show tracebacks.
        source: process or rank that wrote it, as far as its prefixes tell; "" otherwise.
        level: severity printed by the logger; None without one.
        raw: the line as it stood in the file, cut to `MAX_LINE`.
    """

    text: str
    source: str
    level: Level | None
    raw: str


@dataclass(frozen=True, slots=True)
class Hit:
    """Where a pattern matched: numbers of the first and last line, and the match."""

    first: int
    last: int
    match: re.Match[str]


def parse_line(raw: str) -> Iterator[LogLine]:
    """Normalise one line of a file; a progress bar drawn over itself gives one line per state."""
    for part in _ANSI.sub("", raw.rstrip("\r\n")[:MAX_LINE]).split("\r"):
        for piece in _BAR_END.split(part):
            if piece.strip():
                yield _strip_prefixes(piece)


def _strip_prefixes(piece: str) -> LogLine:
    rest, source, level = piece, "", None
    stripped = True
    while stripped:
        stripped = False
        for prefix in _PREFIXES:
            found = prefix.match(rest)
            if found is None:
                continue
            groups = found.groupdict()
            source = (groups.get("source") or "").strip() or source
            level = _LEVELS.get(groups.get("level") or "", level)
            rest, stripped = rest[found.end() :], True
            break
    return LogLine(rest.rstrip(), source, level, piece.strip())


def read_lines(path: Path) -> Iterator[str]:
    """Lines of a log file within bounds: all of a small file; of a large one the head, the tail and, between them, the
    lines that speak of trouble. Bytes that are not UTF-8 are replaced.

    Raises:
        OSError: when the file cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        if size <= HEAD_BYTES + TAIL_BYTES:
            yield from _decoded(stream.read())
            return
        yield from _decoded(stream.read(HEAD_BYTES))
        middle = _trouble_lines(iter(lambda: stream.read(min(_CHUNK, size - TAIL_BYTES - stream.tell())), b""))
        budget = MIDDLE_CHARS
        for line in _few_of_each(middle, lambda line: line):
            budget -= len(line)
            if budget < 0:
                break
            yield line
        stream.seek(max(size - TAIL_BYTES, HEAD_BYTES))
        yield from _decoded(stream.read(TAIL_BYTES))


def _decoded(data: bytes) -> list[str]:
    return data.decode("utf-8", errors="replace").split("\n")


def _trouble_lines(chunks: Iterable[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        data = rest + chunk
        cut = data.rfind(b"\n") + 1
        # A line without end is cut rather than gathered.
        data, rest = (data[:cut], data[cut:]) if cut else (data, b"")
        if any(word in data for word in _TROUBLE):
            for line in data.split(b"\n"):
                if any(word in line for word in _TROUBLE):
                    yield line[:MAX_LINE].decode("utf-8", errors="replace")


class LogDocument:
    """A log as a sequence of messages that can be searched across line breaks."""

    def __init__(self, lines: Iterable[str]) -> None:
        pieces = (piece for raw in _unwrapped(lines) for piece in parse_line(raw))
        self.lines: Sequence[LogLine] = list(_few_of_each(pieces, lambda line: line.text))

    @classmethod
    def of(cls, log: Path | Iterable[str]) -> LogDocument:
        """From a file, read within bounds, or from lines.

        Raises:
            OSError: when the file cannot be read.
        """
        return cls(read_lines(log) if isinstance(log, Path) else log)

    @cached_property
    def _plain(self) -> _Text:
        return _Text("\n", list(range(len(self.lines))), [line.text for line in self.lines])

    @cached_property
    def _joined(self) -> list[_Text]:
        """Per source, its lines run together, so that words broken by a wrap are whole again."""
        members: dict[str, list[int]] = defaultdict(list)
        source = ""
        for number, line in enumerate(self.lines):
            # A line without prefix goes on with what was being written.
            source = line.source or source
            members[source].append(number)
        return [_Text("", numbers, [self.lines[n].text.strip() for n in numbers]) for numbers in members.values()]

    def find(self, pattern: re.Pattern[str]) -> Iterator[Hit]:
        """Every match, in order of its first line; matches in joined lines only where they cross a line break."""
        hits = list(self._plain.find(pattern))
        taken = {hit.first for hit in hits}
        for text in self._joined:
            hits += [hit for hit in text.find(pattern) if hit.last > hit.first and hit.first not in taken]
        return iter(sorted(hits, key=lambda hit: (hit.first, hit.last)))


class _Text:
    """Lines joined into one string, with the way back from offsets to line numbers."""

    def __init__(self, separator: str, numbers: list[int], texts: list[str]) -> None:
        self._numbers = numbers
        self._starts = [0]
        for text in texts[:-1]:
            self._starts.append(self._starts[-1] + len(text) + len(separator))
        self._text = separator.join(texts)

    def find(self, pattern: re.Pattern[str]) -> Iterator[Hit]:
        if not self._numbers:
            return
        for match in pattern.finditer(self._text):
            yield Hit(self._number(match.start()), self._number(max(match.start(), match.end() - 1)), match)

    def _number(self, offset: int) -> int:
        return self._numbers[bisect.bisect_right(self._starts, offset) - 1]


def _unwrapped(lines: Iterable[str]) -> Iterator[str]:
    """Put lines together that a terminal broke at its width.

    Its width is the greatest length of a line, if lines of that length are usually followed by one without prefix.
    """
    raws = [_ANSI.sub("", line.rstrip("\r\n")) for line in lines]
    width = max(map(len, raws), default=0)
    full = [number for number, raw in enumerate(raws[:-1]) if len(raw) == width]
    broken = {number + 1 for number in full if not any(prefix.match(raws[number + 1]) for prefix in _PREFIXES)}
    if width < MIN_TERMINAL or len(broken) < MIN_BROKEN or 2 * len(broken) < len(full):
        broken = set()
    whole = ""
    for number, raw in enumerate(raws):
        if number and number not in broken:
            yield whole
            whole = ""
        whole += raw
    yield whole


_Line = TypeVar("_Line")


def _few_of_each(lines: Iterable[_Line], text: Callable[[_Line], str]) -> Iterator[_Line]:
    """Lines without the repeats of those that differ in digits only."""
    seen: Counter[str] = Counter()
    for line in lines:
        mask = _DIGITS.sub("0", text(line))
        seen[mask] += 1
        if seen[mask] <= MAX_REPEATS:
            yield line
