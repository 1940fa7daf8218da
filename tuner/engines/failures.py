"""Say why a launch failed, from its log, its exit code and what was observed.

The rules were forced by public failure reports of both engines:

* the first fatal cause in time decides, whichever rank wrote it; wrappers and tear-down follow it and never decide;
* an error that the launch survived (it became ready afterwards) and lines known as harmless never decide;
* a general text decides only when nothing specific matches;
* the same text means another class in another phase, or when the trial itself set what it complains about;
* what no rule explains is `unknown`, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from string import Formatter

from tuner.domain.outcome import FAILURES, Failure, FailureClass, Observation, Phase
from tuner.engines.causes import Cause, Circumstances, Investigation, plain_name
from tuner.engines.logs import Hit, Level, LogDocument, parse_line
from tuner.engines.signatures import Direction, HangRule, Signature, any_of, compile_pattern, load_book
from tuner.secrets import redact

_LAST_LINES = 6
_EVIDENCE_CHARS = 500
_EVIDENCE_LINES = 4
_MOVES = 3
# What a signal says by itself, when the log gives no cause: SIGKILL from outside, SIGBUS on a full /dev/shm.
_SIGNALS = {
    -9: FailureClass.HOST_OOM,
    137: FailureClass.HOST_OOM,
    -7: FailureClass.SHM_TOO_SMALL,
    135: FailureClass.SHM_TOO_SMALL,
}
_SEEN = {
    Observation.HUNG: "no progress",
    Observation.DEADLINE: "over the deadline",
    None: "the log ends",
}


def explain(
    log: Path | Iterable[str],
    *,
    engine: str,
    exit_code: int | None = None,
    settings: Mapping[str, str] | None = None,
    observation: Observation | None = None,
    phase: Phase | None = None,
    seen: str = "",
) -> Failure | None:
    """Why a launch failed, or None when nothing shows but a server that runs, or ended as it was asked to.

    Args:
        log: the server's log file, or its lines.
        engine: name of the engine, for its signatures.
        exit_code: of the server process; negative for a signal; None while it runs or when nobody knows.
        settings: variables and flags that the trial set; they decide between classes, and are blamed first.
        observation: how the launch ended as seen from outside; None when only the log is known.
        phase: where the launch was, if known; a phase that the log itself tells for a line is preferred.
        seen: the same as the observation, in the words of who saw it; of a launch that was stuck it tells more than the
            last lines of its log.

    Raises:
        OSError: when the log cannot be read.
        SpecError: when the engine's signature file is wrong.
    """
    known = Circumstances(exit_code, settings or {}, observation, phase)
    return _Verdict(Investigation(LogDocument.of(log), load_book(engine), known), seen).failure()


def is_fatal_line(engine: str) -> Callable[[str], bool]:
    """A function that tells whether, after a raw log line, waiting for the server is useless.

    Conservative: only rows marked `fatal` count, so that a warning never ends a launch that would have come up.

    Raises:
        SpecError: when the engine's signature file is wrong.
    """
    book = load_book(engine)
    fatal = [row.match for row in book.signatures if row.fatal] + [row.match for row in book.wrappers if row.fatal]
    deadly = any_of(tuple(fatal))
    harmless = any_of(tuple(row.match for row in book.harmless))

    def is_fatal(line: str) -> bool:
        return any(
            deadly.search(piece.text) is not None
            and (piece.level is None or piece.level >= Level.ERROR)
            and harmless.search(piece.text) is None
            for piece in parse_line(line)
        )

    return is_fatal


def is_compiling_line(engine: str) -> Callable[[str], bool]:
    """A function that tells whether a raw log line says that the server compiled something while it served.

    Raises:
        SpecError: when the engine's signature file is wrong.
    """
    told = any_of(tuple(row.match for row in load_book(engine).compiling))
    return lambda line: any(told.search(piece.text) is not None for piece in parse_line(line))


class _Verdict:
    """Turns what an investigation found into a Failure."""

    def __init__(self, found: Investigation, seen: str) -> None:
        self._found, self._known, self._seen = found, found.known, seen

    def failure(self) -> Failure | None:
        cause = self._found.cause()
        own = cause if cause is not None and cause.failure is not FailureClass.UNKNOWN else None
        if self._known.stuck:
            # A general text in the log of a hung server is no cause: its process was still there.
            return self._from_cause(own) if own is not None and not own.row.weak else self._hang()
        if own is not None:
            return self._from_cause(own)
        if self._known.broke_off:
            return self._from_exit(cause)
        if self._known.observation is Observation.RUNNING or self._known.exit_code is not None:
            return None
        if cause is not None:
            return self._from_cause(cause)
        if self._found.shows_death:
            return self._unknown()
        # Only a log is known: does it end in the middle of a step that a working engine finishes and reports?
        return self._hang() if self._found.timeline.waits_since() is not None else None

    @property
    def _phase(self) -> Phase:
        return self._known.phase or self._found.timeline.last or Phase.SPAWN

    def _from_cause(self, cause: Cause) -> Failure:
        groups = cause.hit.match.groupdict()
        blames = self._blames(cause.row, groups.get("blame"))
        detail = _detail(cause.failure, cause.row.say, groups, blames)
        return self._failed(cause.failure, cause.phase or self._phase, self._evidence(cause.hit), blames, detail)

    def _from_exit(self, follows: Cause | None) -> Failure:
        """The process ended and its log has no cause of its own, at most an error that follows from another."""
        code = self._known.exit_code
        if code in _SIGNALS and follows is None and not self._found.wrapped:
            return self._failed(_SIGNALS[code], self._phase, (f"exit code {code} without an error in the log",))
        return self._from_cause(follows) if follows is not None else self._unknown()

    def _hang(self) -> Failure:
        """The class of a launch that stopped making progress."""
        lines = self._found.document.lines[-_LAST_LINES:]
        text = "\n".join(line.text for line in lines)
        rule = next(rule for rule in self._found.book.hangs if _fits(rule, self._phase, text))
        shown = tuple(_shown(line.raw) for line in lines[-2:])
        words = f"{_SEEN[self._known.observation]} in phase {self._phase.value}"
        evidence = (self._seen, *shown) if self._seen else (*shown, words)
        blames = self._blames(rule)
        return self._failed(rule.failure, self._phase, evidence, blames, _detail(rule.failure, rule.say, {}, blames))

    def _unknown(self) -> Failure:
        lines = self._found.document.lines
        line = self._found.last_exception
        if line is None:
            line = self._found.wrapped[0] if self._found.wrapped else len(lines) - 1
        evidence = [_shown(lines[line].raw)] if lines else []
        if self._known.exit_code is not None:
            evidence.append(f"exit code {self._known.exit_code}")
        return self._failed(FailureClass.UNKNOWN, self._phase, tuple(evidence))

    def _failed(
        self,
        failure: FailureClass,
        phase: Phase,
        evidence: tuple[str, ...],
        blames: Iterable[str] = (),
        detail: str = "",
    ) -> Failure:
        words = detail or FAILURES[failure].words
        return Failure(failure, phase, evidence, tuple(blames), words, self._known.exit_code)

    def _evidence(self, hit: Hit) -> tuple[str, ...]:
        last = min(hit.last, hit.first + _EVIDENCE_LINES - 1)
        return tuple(_shown(self._found.document.lines[number].raw) for number in range(hit.first, last + 1))

    def _blames(self, row: Signature | HangRule, named: str | None = None) -> dict[str, Direction | None]:
        """Whom to blame: what the message names, then the row's settings that the trial set, then its others."""
        blames = self._found.book.settings_of(row.blames)
        patterns = {**blames, **dict.fromkeys(row.if_set if isinstance(row, Signature) else (), None)}
        ordered: dict[str, Direction | None] = {named: None} if named else {}
        for pattern, direction in patterns.items():
            for name in self._known.set_by_trial([pattern]):
                ordered.setdefault(name, direction)
        known = {plain_name(name) for name in ordered}
        rest = {name: way for name, way in blames.items() if "*" not in name and plain_name(name) not in known}
        return {**ordered, **rest}


def _fits(rule: HangRule, phase: Phase, last_lines: str) -> bool:
    if rule.phases and phase not in rule.phases:
        return False
    return rule.last_lines is None or compile_pattern(rule.last_lines).search(last_lines) is not None


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
