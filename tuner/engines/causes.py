"""Find what a log accuses: signatures that match and count, deaths that it shows, lines that must not decide."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property

from tuner.domain.outcome import FailureClass, Observation, Phase
from tuner.engines.logs import Hit, Level, LogDocument
from tuner.engines.phasemarks import Timeline, is_later
from tuner.engines.signatures import Signature, SignatureBook, compile_pattern

STOPPED_CODES = frozenset({0, -2, 130, -15, 143})
"""Exit codes of a server that was asked to end: clean, SIGINT, SIGTERM."""

_NEAR = 12
_TRACEBACK_LINES = 200
# So many quiet lines after an error show that the server lives.
_CALM_LINES = 2
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception)(?::|$)")


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known beside the log.

    Attributes:
        exit_code: of the server process; negative for a signal; None while it runs or when nobody knows.
        settings: variables and flags that the trial set, with their values.
        observation: how the launch ended as seen from outside; None when only the log is known.
        phase: where the launch was, if known.
    """

    exit_code: int | None
    settings: Mapping[str, str]
    observation: Observation | None
    phase: Phase | None

    @property
    def stuck(self) -> bool:
        """Whether the launch was ended for lack of progress."""
        return self.observation in (Observation.HUNG, Observation.DEADLINE)

    @property
    def broke_off(self) -> bool:
        """Whether the process ended, and not because it was asked to."""
        failed = self.exit_code is not None and self.exit_code not in STOPPED_CODES
        return failed or self.observation is Observation.EXITED

    def set_by_trial(self, patterns: Iterable[str]) -> list[str]:
        """Names of the trial's settings that fit one of the patterns (`NCCL_*_FILE`, `--tp-size`)."""
        wanted = [plain_name(pattern) for pattern in patterns]
        return [name for name in self.settings if any(fnmatch(plain_name(name), pattern) for pattern in wanted)]


@dataclass(frozen=True, slots=True)
class Cause:
    """A signature that matched and counts.

    Attributes:
        first_line: where it matched first.
        hit: the match to show: the exception itself rather than the source line that raised it.
        order: place of the row among all.
    """

    row: Signature
    first_line: int
    hit: Hit
    order: int
    failure: FailureClass
    phase: Phase | None

    @property
    def rank(self) -> tuple[bool, bool, int, int]:
        """Own errors before those that follow from others, specific rows before general ones, then the first."""
        return self.failure is FailureClass.UNKNOWN, self.row.weak, self.first_line, self.order


def plain_name(name: str) -> str:
    """A flag or variable in one spelling: `--max_num_seqs`, `max-num-seqs` and `--max-num-seqs` are one."""
    return name.lstrip("-").replace("_", "-").lower()


class Investigation:
    """One log under one set of circumstances."""

    def __init__(self, document: LogDocument, book: SignatureBook, known: Circumstances) -> None:
        self.document, self.book, self.known = document, book, known
        self.timeline = Timeline(document, book)

    def cause(self) -> Cause | None:
        """The cause that decides, or None."""
        return min(self._causes(), key=lambda cause: cause.rank, default=None)

    @cached_property
    def wrapped(self) -> list[int]:
        """Lines that follow some error, of which the server died."""
        return sorted(
            hit.first
            for row in self.book.wrappers
            for hit in self.document.find(row.regex)
            if hit.first not in self.harmless and not self.timeline.reached_after(hit.first, Phase.SERVING)
        )

    @cached_property
    def last_exception(self) -> int | None:
        """The line of an exception after which the log shows nothing but its surroundings, or None."""
        lines = self.document.lines
        exceptions = [last for first, last in self._tracebacks if first not in self.harmless]
        if self.timeline.waits_since() is None:
            # Without its traceback, within a silent step, an exception may as well have been swallowed.
            exceptions += [number for number, line in enumerate(lines) if _EXCEPTION.match(line.text)]
        last = max((number for number in exceptions if number not in self.harmless), default=None)
        if last is None:
            return None
        goes_on = any(milestone.line > last for milestone in self.timeline.milestones)
        calm = [line for line in lines[last + 1 :] if line.level in (Level.INFO, Level.DEBUG)]
        return None if goes_on or len(calm) > _CALM_LINES else last

    @property
    def shows_death(self) -> bool:
        """Whether the log itself shows that the server died."""
        return bool(self.wrapped) or self.last_exception is not None

    @cached_property
    def harmless(self) -> frozenset[int]:
        """Lines that must not decide: known noise, and the tracebacks that belong to it."""
        lines = set[int]()
        for row in self.book.harmless:
            for hit in self.document.find(row.regex):
                lines.update(range(hit.first, hit.last + 1))
                for first, last in self._tracebacks:
                    if first - row.heads_traceback <= hit.last and hit.first <= last:
                        lines.update(range(first, last + 1))
        return frozenset(lines)

    @cached_property
    def _tracebacks(self) -> list[tuple[int, int]]:
        """First and last line of every Python traceback; the last is the exception's."""
        lines, found = self.document.lines, []
        for first, line in enumerate(lines):
            if not _TRACEBACK.match(line.text):
                continue
            for last in range(first + 1, min(len(lines), first + _TRACEBACK_LINES)):
                if lines[last].source == line.source and not lines[last].text.startswith(" "):
                    found.append((first, last))
                    break
        return found

    def _causes(self) -> Iterator[Cause]:
        for order, row in enumerate(self.book.signatures):
            if row.if_set and not self.known.set_by_trial(row.if_set):
                continue
            for hit in self.document.find(row.regex):
                phase = self._phase_at(hit.first)
                if self._counts(row, hit, phase):
                    failure = row.class_in.get(phase, row.failure) if phase else row.failure
                    yield Cause(row, hit.first, self._exception_of(row, hit), order, failure, phase)
                    break

    def _exception_of(self, row: Signature, hit: Hit) -> Hit:
        """The match in the exception that ends a traceback, for one in a source line of that traceback."""
        lines = self.document.lines
        if not lines[hit.first].text.startswith(" "):
            return hit
        last = next((last for first, last in self._tracebacks if first < hit.first < last), None)
        return next((later for later in self.document.find(row.regex) if later.first == last), hit)

    def _phase_at(self, line: int) -> Phase | None:
        """The phase of a line; where the launch ended is as good when no later marker contradicts it."""
        told, ended = self.timeline.at(line), self.known.phase
        if told is None or ended is None:
            return told or ended
        final = not any(milestone.line > line for milestone in self.timeline.milestones)
        return ended if final and is_later(ended, told) else told

    def _counts(self, row: Signature, hit: Hit, phase: Phase | None) -> bool:
        if hit.first in self.harmless or hit.last in self.harmless:
            return False
        level = self.document.lines[hit.first].level
        if level is None:
            if row.only_error:
                return False
        elif level < Level.ERROR and not row.any_level:
            return False
        if row.at_end and not self._ends_with(row):
            return False
        if phase in row.never_in or (row.only_in and phase not in row.only_in):
            return False
        if row.near is not None and not self._is_near(row.near, hit):
            return False
        if row.needs_death and not (self.known.broke_off or self.shows_death):
            return False
        return not self._survived(hit.first, phase)

    def _ends_with(self, row: Signature) -> bool:
        last = self.document.lines[-row.at_end :]
        return len(last) == row.at_end and all(row.regex.search(line.text) for line in last)

    def _is_near(self, pattern: str, hit: Hit) -> bool:
        lines = self.document.lines[max(0, hit.first - _NEAR) : hit.last + _NEAR + 1]
        return compile_pattern(pattern).search("\n".join(line.text for line in lines)) is not None

    def _survived(self, line: int, phase: Phase | None) -> bool:
        """Whether the server became ready after this line, or the line only accompanies an orderly end."""
        if phase is Phase.TEARDOWN:
            return not self.known.broke_off
        before_ready = phase is None or is_later(Phase.SERVING, phase)
        return before_ready and self.timeline.reached_after(line, Phase.SERVING)
