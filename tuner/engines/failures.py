"""Say why a launch failed, from its log, its exit code and what was observed.

The rules were forced by public failure reports of both engines:

* the first fatal cause in time decides, whichever rank wrote it; wrappers and tear-down follow it and never decide;
* an error that the launch survived (it became ready afterwards) and lines known as harmless never decide;
* a general text decides only when nothing specific matches;
* the same text means another class in another phase, or when the trial itself set what it complains about;
* what no rule explains is `unknown`, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from string import Formatter

from tuner.domain.outcome import FAILURES, Failure, FailureClass, Observation, Phase
from tuner.engines.logs import Hit, Level, LogDocument, parse_line
from tuner.engines.phasemarks import Timeline, is_later
from tuner.engines.signatures import Direction, HangRule, Signature, SignatureBook, compile_pattern, load_book
from tuner.secrets import redact

_NEAR = 12
_TRACEBACK_LINES = 200
_LAST_LINES = 6
_EVIDENCE_CHARS = 500
_EVIDENCE_LINES = 4
_MOVES = 3
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):")
# Exit codes of a server that was asked to end: clean, SIGINT, SIGTERM.
_STOPPED = frozenset({0, -2, 130, -15, 143})
_KILLED = frozenset({-9, 137})
_BUS_ERROR = frozenset({-7, 135})


def explain(
    log: Path | Iterable[str],
    *,
    engine: str,
    exit_code: int | None = None,
    settings: Mapping[str, str] | None = None,
    observation: Observation | None = None,
    phase: Phase | None = None,
) -> Failure | None:
    """Why a launch failed, or None when the log shows nothing but a server that runs (or ended as asked).

    Args:
        log: the server's log file, or its lines.
        engine: name of the engine, for its signatures.
        exit_code: of the server process; negative for a signal; None while it runs or when nobody knows.
        settings: variables and flags that the trial set; they decide between classes, and are blamed first.
        observation: how the launch ended as seen from outside; None when only the log is known.
        phase: where the launch was, if known; a phase that the log itself tells for a line is preferred.

    Raises:
        OSError: when the log cannot be read.
        SpecError: when the engine's signature file is wrong.
    """
    reader = _Reader(LogDocument.of(log), load_book(engine), exit_code, settings or {}, observation, phase)
    failure = reader.verdict()
    return None if failure is None else replace(failure, exit_code=exit_code)


def is_fatal_line(engine: str) -> Callable[[str], bool]:
    """A function that tells whether, after a raw log line, waiting for the server is useless.

    Conservative: only rows marked `fatal` count, so that a warning never ends a launch that would have come up.

    Raises:
        SpecError: when the engine's signature file is wrong.
    """
    book = load_book(engine)
    fatal = [row.regex for row in book.signatures if row.fatal] + [row.regex for row in book.wrappers if row.fatal]
    harmless = [row.regex for row in book.harmless]

    def is_fatal(line: str) -> bool:
        return any(
            any(regex.search(piece.text) for regex in fatal)
            and (piece.level is None or piece.level >= Level.ERROR)
            and not any(regex.search(piece.text) for regex in harmless)
            for piece in parse_line(line)
        )

    return is_fatal


@dataclass(frozen=True, slots=True)
class _Cause:
    """A signature that matched."""

    row: Signature
    hit: Hit
    order: int
    failure: FailureClass
    phase: Phase | None

    @property
    def rank(self) -> tuple[bool, bool, int, int]:
        """Own errors before those that follow from others, specific rows before general ones, then the first."""
        return self.failure is FailureClass.UNKNOWN, self.row.weak, self.hit.first, self.order


class _Reader:
    """One reading of one log."""

    def __init__(
        self,
        document: LogDocument,
        book: SignatureBook,
        exit_code: int | None,
        settings: Mapping[str, str],
        observation: Observation | None,
        phase: Phase | None,
    ) -> None:
        self._document, self._book = document, book
        self._exit_code, self._settings = exit_code, settings
        self._observation, self._phase = observation, phase
        self._timeline = Timeline(document, book)
        self._harmless = self._harmless_lines()
        self._wrapped = [
            hit.first for row in book.wrappers for hit in document.find(row.regex) if hit.first not in self._harmless
        ]

    # -- the decision ------------------------------------------------------------------------------------------------

    def verdict(self) -> Failure | None:
        """The failure, or None."""
        cause = min(self._causes(), key=lambda cause: cause.rank, default=None)
        if cause is not None and cause.failure is not FailureClass.UNKNOWN:
            general = cause.row.weak and self._stuck
            return self._hang() if general else self._from_cause(cause)
        if self._stuck:
            return self._hang()
        if self._exit_code is not None and self._exit_code not in _STOPPED:
            return self._from_exit_code(cause)
        if self._observation is Observation.RUNNING or (self._exit_code is not None and not self._observation):
            return None
        if cause is not None:
            return self._from_cause(cause)
        if self._observation is Observation.EXITED or self._dies_in_log:
            return self._unknown("")
        return self._silent_end()

    @property
    def _stuck(self) -> bool:
        return self._observation in (Observation.HUNG, Observation.DEADLINE)

    @property
    def _dies_in_log(self) -> bool:
        """Whether the log itself shows a death: a wrapper, or a traceback that nothing follows."""
        return any(not self._timeline.reached_after(line, Phase.SERVING) for line in self._wrapped) or (
            self._final_exception is not None
        )

    @property
    def _died(self) -> bool:
        ended = self._exit_code is not None and self._exit_code not in _STOPPED
        return ended or self._observation is Observation.EXITED or self._dies_in_log

    # -- causes ------------------------------------------------------------------------------------------------------

    def _causes(self) -> Iterator[_Cause]:
        for order, row in enumerate(self._book.signatures):
            if row.if_set and not self._set_by_trial(row.if_set):
                continue
            for hit in self._document.find(row.regex):
                phase = self._phase_at(hit.first)
                if self._counts(row, hit, phase):
                    failure = row.class_in.get(phase, row.failure) if phase else row.failure
                    yield _Cause(row, hit, order, failure, phase)
                    break

    def _counts(self, row: Signature, hit: Hit, phase: Phase | None) -> bool:
        line = self._document.lines[hit.first]
        if hit.first in self._harmless or hit.last in self._harmless:
            return False
        if line.level is not None and line.level < Level.ERROR and not row.any_level:
            return False
        if row.only_error and (line.level is None or line.level < Level.ERROR):
            return False
        if row.only_in and phase not in row.only_in:
            return False
        if row.near is not None and not self._is_near(row, hit):
            return False
        if row.needs_death and not self._died:
            return False
        return not self._survived(hit.first, phase)

    def _survived(self, line: int, phase: Phase | None) -> bool:
        """Whether the server became ready after this line, or the line only accompanies an orderly end."""
        if phase is Phase.TEARDOWN:
            return self._exit_code is None or self._exit_code in _STOPPED
        before_ready = phase is None or is_later(Phase.SERVING, phase)
        return before_ready and self._timeline.reached_after(line, Phase.SERVING)

    def _is_near(self, row: Signature, hit: Hit) -> bool:
        assert row.near is not None
        lines = self._document.lines[max(0, hit.first - _NEAR) : hit.last + _NEAR + 1]
        return compile_pattern(row.near).search("\n".join(line.text for line in lines)) is not None

    def _phase_at(self, line: int) -> Phase | None:
        return self._timeline.at(line) or self._phase

    def _set_by_trial(self, patterns: Iterable[str]) -> list[str]:
        """Names of the trial's settings that fit one of the patterns."""
        wanted = [_plain(pattern) for pattern in patterns]
        return [name for name in self._settings if any(fnmatch(_plain(name), pattern) for pattern in wanted)]

    def _harmless_lines(self) -> frozenset[int]:
        lines = set[int]()
        blocks = list(_tracebacks(self._document))
        for row in self._book.harmless:
            for hit in self._document.find(row.regex):
                lines.update(range(hit.first, hit.last + 1))
                for first, last in blocks:
                    if first - row.heads_traceback <= hit.last and hit.first <= last:
                        lines.update(range(first, last + 1))
        return frozenset(lines)

    @property
    def _final_exception(self) -> int | None:
        """The line of an exception after which the log shows nothing but its surroundings, or None."""
        last = None
        for first, end in _tracebacks(self._document):
            if end not in self._harmless and first not in self._harmless:
                last = end
        if last is None:
            return None
        goes_on = any(milestone.line > last for milestone in self._timeline.milestones)
        calm = [line for line in self._document.lines[last + 1 :] if line.level in (Level.INFO, Level.DEBUG)]
        return None if goes_on or len(calm) > 2 else last

    # -- failures ----------------------------------------------------------------------------------------------------

    def _from_cause(self, cause: _Cause) -> Failure:
        groups = cause.hit.match.groupdict()
        blames = self._blames(cause.row, groups.get("blame"))
        detail = _detail(cause.failure, cause.row.say, groups, blames)
        phase = cause.phase or self._phase or Phase.SPAWN
        return Failure(cause.failure, phase, self._evidence(cause.hit), tuple(blames), detail)

    def _from_exit_code(self, cause: _Cause | None) -> Failure:
        code = self._exit_code
        phase = self._last_phase
        if code in _KILLED and cause is None and not self._dies_by_itself:
            return Failure(
                FailureClass.HOST_OOM,
                phase,
                (f"exit code {code}: killed from outside",),
                detail=FAILURES[FailureClass.HOST_OOM].words,
            )
        if code in _BUS_ERROR:
            return Failure(
                FailureClass.SHM_TOO_SMALL,
                phase,
                (f"exit code {code}: bus error",),
                detail=FAILURES[FailureClass.SHM_TOO_SMALL].words,
            )
        if cause is not None:
            return self._from_cause(cause)
        return self._unknown(f"exit code {code}")

    @property
    def _dies_by_itself(self) -> bool:
        return bool(self._wrapped)

    def _unknown(self, observed: str) -> Failure:
        line = self._final_exception
        if line is None and self._wrapped:
            line = min(self._wrapped)
        if line is None and self._document.lines:
            line = len(self._document.lines) - 1
        shown = () if line is None else (_shown(self._document.lines[line].raw),)
        evidence = shown + ((observed,) if observed else ())
        return Failure(FailureClass.UNKNOWN, self._last_phase, evidence, detail=FAILURES[FailureClass.UNKNOWN].words)

    @property
    def _last_phase(self) -> Phase:
        return self._phase or self._timeline.last or Phase.SPAWN

    def _hang(self) -> Failure:
        """The class of a launch that stopped making progress."""
        phase = self._last_phase
        lines = self._document.lines[-_LAST_LINES:]
        text = "\n".join(line.text for line in lines)
        rule = next(rule for rule in self._book.hangs if _fits(rule, phase, text))
        seen = {Observation.HUNG: "no progress", Observation.DEADLINE: "over its deadline", None: "the log ends"}
        evidence = (*(_shown(line.raw) for line in lines[-2:]), f"{seen[self._observation]} in phase {phase.value}")
        blames = self._blames(rule)
        return Failure(rule.failure, phase, evidence, tuple(blames), _detail(rule.failure, rule.say, {}, blames))

    def _silent_end(self) -> Failure | None:
        """Only a log is known, and it ends in the middle of a step that a working engine finishes and reports."""
        return self._hang() if self._timeline.waits_since() is not None else None

    def _evidence(self, hit: Hit) -> tuple[str, ...]:
        last = min(hit.last, hit.first + _EVIDENCE_LINES - 1)
        return tuple(_shown(self._document.lines[number].raw) for number in range(hit.first, last + 1))

    def _blames(self, row: Signature | HangRule, named: str | None = None) -> dict[str, Direction | None]:
        """Whom to blame: what the message names; then, of the row's settings, those that the trial set; then the rest."""
        blames = self._book.settings_of(row.blames)
        patterns = {**blames, **dict.fromkeys(row.if_set if isinstance(row, Signature) else (), None)}
        ordered: dict[str, Direction | None] = {named: None} if named else {}
        for pattern, direction in patterns.items():
            for name in self._set_by_trial([pattern]):
                ordered.setdefault(name, direction)
        known = {_plain(name) for name in ordered}
        rest = {name: way for name, way in blames.items() if "*" not in name and _plain(name) not in known}
        return {**ordered, **rest}


def _fits(rule: HangRule, phase: Phase, last_lines: str) -> bool:
    if rule.phases and phase not in rule.phases:
        return False
    return rule.last_lines is None or compile_pattern(rule.last_lines).search(last_lines) is not None


def _plain(name: str) -> str:
    """A flag or variable in one spelling: `--max_num_seqs`, `max-num-seqs` and `--max-num-seqs` are one."""
    return name.lstrip("-").replace("_", "-").lower()


def _shown(raw: str) -> str:
    return redact(raw)[:_EVIDENCE_CHARS]


def _detail(
    failure: FailureClass,
    say: str | None,
    groups: Mapping[str, str | None],
    blames: Mapping[str, Direction | None],
) -> str:
    """The row's own sentence where its groups were found, else the class's words; then which way to move what."""
    text = FAILURES[failure].words
    if say is not None and all(groups.get(name) for _, name, _, _ in Formatter().parse(say) if name):
        text = say.format_map({name: value or "" for name, value in groups.items()})
    moves = [f"{direction.value} {name}" for name, direction in blames.items() if direction is not None]
    return f"{text} ({' or '.join(moves[:_MOVES])})" if moves else text


def _tracebacks(document: LogDocument) -> Iterator[tuple[int, int]]:
    """First and last line of every Python traceback; the last is the exception's."""
    lines = document.lines
    for first, line in enumerate(lines):
        if not _TRACEBACK.match(line.text):
            continue
        for last in range(first + 1, min(len(lines), first + _TRACEBACK_LINES)):
            text = lines[last].text
            if lines[last].source == line.source and not text.startswith(" "):
                yield first, last
                break
