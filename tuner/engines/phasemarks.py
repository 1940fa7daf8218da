"""Which phase a launch is in, told from its log."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tuner.domain.outcome import Phase
from tuner.engines.logs import LogDocument, parse_line
from tuner.engines.signatures import PhaseMark, SignatureBook, any_of, load_book

# Lines of one traceback, and of the message that some engines print before its frames.
_TRACEBACK_REACH = 120
_AFTER_REACH = 12
_FRAME = re.compile(r"\s|Traceback \(")

# Profiling compiles: lines of the two phases alternate, so neither is ahead of the other.
_RANK = {phase: number for number, phase in enumerate(Phase)} | {Phase.COMPILE: list(Phase).index(Phase.PROFILE)}


def is_later(a: Phase, b: Phase) -> bool:
    """Whether phase `a` comes after `b` in a launch."""
    return _RANK[a] > _RANK[b]


def phase_of_line(engine: str) -> Callable[[str], Phase | None]:
    """A function that gives the phase which a raw log line announces, or None.

    Raises:
        SpecError: when the engine's signature file is wrong.
    """
    marks = load_book(engine).phases
    union = any_of(tuple(mark.match for mark in marks))

    def phase(line: str) -> Phase | None:
        found = None
        for piece in parse_line(line):
            if match := union.search(piece.text):
                assert match.lastgroup is not None
                found = marks[int(match.lastgroup[1:])].phase
        return found

    return phase


@dataclass(frozen=True, slots=True)
class Milestone:
    """A phase marker found in a log."""

    line: int
    mark: PhaseMark


class Timeline:
    """The phases of one log, in order."""

    def __init__(self, document: LogDocument, book: SignatureBook) -> None:
        self._document, self._book = document, book
        # Of several marks on one line the latest phase counts.
        found = {
            Milestone(hit.first, mark).line: Milestone(hit.first, mark)
            for mark in sorted(book.phases, key=lambda mark: _RANK[mark.phase])
            for hit in document.find(mark.regex)
        }
        self.milestones = [found[line] for line in sorted(found)]

    def at(self, line: int) -> Phase | None:
        """The phase in which a line was written, or None when no marker came before it.

        Frames of the traceback around the line are more exact than the last marker, which may be another rank's.
        """
        marked = self._marked(line)
        framed = self._framed(line)
        if framed is None or (marked is not None and is_later(marked, framed) and marked is not Phase.TEARDOWN):
            return marked
        return framed

    def _marked(self, line: int) -> Phase | None:
        phase: Phase | None = None
        for milestone in self.milestones:
            if milestone.line > line:
                break
            new = milestone.mark.phase
            # A slower rank's earlier marker does not take the launch back; a new launch in the same file does.
            if phase is None or not is_later(phase, new) or new in (Phase.SPAWN, Phase.PARSE):
                phase = new
        return phase

    def _framed(self, line: int) -> Phase | None:
        """The phase that the frames tell: those before the line, as in a traceback, or else those right after it."""
        lines = self._document.lines
        source = lines[line].source
        before = []
        for number in range(line - 1, max(0, line - _TRACEBACK_REACH) - 1, -1):
            if lines[number].source != source:
                continue
            if not _FRAME.match(lines[number].text):
                break
            before.append(lines[number].text)
        after = [one.text for one in lines[line : line + _AFTER_REACH] if one.source == source]
        return self._phase_of_frames(before) or self._phase_of_frames(after)

    def _phase_of_frames(self, texts: list[str]) -> Phase | None:
        text = "\n".join(texts)
        return next((mark.phase for mark in self._book.frames if mark.regex.search(text)), None)

    @property
    def last(self) -> Phase | None:
        """The phase at the end of the log."""
        return self._marked(len(self._document.lines))

    def reached_after(self, line: int, phase: Phase) -> bool:
        """Whether a marker of a phase stands after a line."""
        return any(milestone.line > line and milestone.mark.phase is phase for milestone in self.milestones)

    def waits_since(self) -> Milestone | None:
        """The marker of a silent step that nothing in the log ends, or None."""
        last = self.milestones[-1] if self.milestones else None
        return last if last is not None and last.mark.waits else None
