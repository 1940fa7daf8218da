"""What an engine's log lines mean: the rows of `launchers/<engine>/failures.yaml`.

A row is a regular expression, what it means, and a real line as proof. Patterns are written for the text of one message
without the prefixes of loggers and containers (`tuner.engines.logs` takes those off). A blank in a pattern stands for
any white space or quote, line breaks included, so that a message that was wrapped, or split over several source lines,
still matches. Gaps must be bounded (`.{0,80}`, never `.*`): a message may be joined over lines, and a log can be large.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from tuner import yamlfile
from tuner.domain.faults import problems_of
from tuner.domain.numbers import WHOLE
from tuner.domain.outcome import FailureClass, Phase
from tuner.domain.written import FILE_MODEL
from tuner.errors import Problem, SpecError
from tuner.resources import launchers_dir

FILE_NAME = "failures.yaml"
# A repeat without bound where a pattern or an alternative begins, in a pattern whose escapes and sets are written x.
_LEADING_REPEAT = re.compile(r"(?:^|\|)(?:\((?:\?[^()x]*[:>])?)*x[*+]")
_NAMED_GROUP = re.compile(r"\(\?P<\w+>")
_ROLE = re.compile(r"[a-z][a-z-]*")
_CHARACTER_CLASS = re.compile(r"\\.|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])")


class Direction(StrEnum):
    """Which way to move a blamed setting."""

    RAISE = "raise"
    LOWER = "lower"
    CHANGE = "change"
    DROP = "drop"


def _checked(pattern: str) -> str:
    sets = [match["set"] for match in _CHARACTER_CLASS.finditer(pattern) if match["set"]]
    if any(" " in characters for characters in sets):
        raise ValueError(r"write \s instead of a blank inside [...]")
    outside = _CHARACTER_CLASS.sub("x", pattern)
    if ".*" in outside or ".+" in outside:
        raise ValueError("bound the gap: write .{0,80} instead of .* or .+")
    if _LEADING_REPEAT.search(outside):
        raise ValueError(r"begin with something fixed, or bound the repeat: \w+ at the start makes searching slow")
    try:
        found = compile_pattern(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    if found.search(""):
        raise ValueError("matches an empty line")
    return pattern


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of a signature file; a blank matches any run of white space and string quotes, or nothing."""
    return re.compile(pattern.replace(" ", r"(?:[\s\"']|f[\"'])*"), re.MULTILINE)


@cache
def any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One pattern that tries all, so that a live log can be read line by line at little cost.

    The group `m<number>` around the pattern that matched is the match's `lastgroup`.
    """
    nameless = [_NAMED_GROUP.sub("(?:", pattern) for pattern in patterns]
    return compile_pattern("|".join(f"(?P<m{n}>{pattern})" for n, pattern in enumerate(nameless)) or "(?!)")


Pattern = Annotated[str, AfterValidator(_checked)]
RowId = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]


class Row(BaseModel):
    """A pattern with a line that it is known to match.

    Attributes:
        match: regular expression; see the module's text for what a blank means.
        proof: a real message (without logger prefixes) that must match.
    """

    model_config = FILE_MODEL

    match: Pattern
    proof: str

    @model_validator(mode="after")
    def _proven(self) -> Self:
        if not self.regex.search(self.proof):
            raise ValueError("match does not match its own proof")
        return self

    @property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return compile_pattern(self.match)


class PhaseMark(Row):
    """A line that tells where a launch is.

    Attributes:
        phase: the phase that begins (or goes on) with this line.
        waits: the engine is silent after this line until the step is done: a log that ends here tells of a hang.
    """

    phase: Phase
    waits: bool = False


class Harmless(Row):
    """A line, or the traceback that holds it, that looks like an error and is none.

    Attributes:
        heads_traceback: the line stands right before the harmless traceback, not within.
    """

    id: RowId
    heads_traceback: bool = False


class Wrapper(Row):
    """A line that follows some other error and never is the cause.

    Attributes:
        fatal: once seen, the server will not come up (or back): waiting on is useless.
    """

    id: RowId
    fatal: bool = False


class Compiling(Row):
    """A line that a server writes when it compiles something while it serves."""


class Signature(Row):
    """A cause of failure.

    Attributes:
        id: name of the row; unique over an engine's files.
        failure: the class (`class` in the file); `unknown` marks an error that only follows from another one.
        class_in: another class in these phases.
        only_in: the row counts in these phases only, and not where the phase is unknown.
        never_in: the row does not count in these phases.
        near: some line within twelve lines must match this too.
        if_set: the row counts only when the trial set one of these variables or flags (`NCCL_*_FILE`).
        at_end: the row counts only when this many last lines of the log match it.
        weak: counts only when no other row does; for general texts.
        needs_death: counts only when the server died (a fatal wrapper, a final traceback, an exit code).
        any_level: counts also in lines logged below ERROR.
        only_error: counts only in lines that are logged as ERROR or worse.
        fatal: once seen, waiting on is useless.
        blames: setting → direction, most likely first; a group `blame` in `match` comes before them. A setting is a
            flag (`--tp-size`), a variable (`NCCL_ALGO`; `NCCL_*` = those that the trial set) or a role (`memory-share`)
            that an engine's file translates.
        say: sentence for the user instead of the class's own; `{name}` is filled from the groups of `match`.
    """

    id: RowId
    failure: Annotated[FailureClass, Field(alias="class")]
    class_in: Mapping[Phase, FailureClass] = {}
    only_in: tuple[Phase, ...] = ()
    never_in: tuple[Phase, ...] = ()
    near: Pattern | None = None
    if_set: tuple[str, ...] = ()
    at_end: Annotated[int, Field(ge=0), WHOLE] = 0
    weak: bool = False
    needs_death: bool = False
    any_level: bool = False
    only_error: bool = False
    fatal: bool = False
    blames: Mapping[str, Direction] = {}
    say: str | None = None


class HangRule(BaseModel):
    """What it means when a launch stops making progress.

    Attributes:
        phases: where it stopped; empty = anywhere.
        last_lines: the end of the log must match this.
        failure: the class (`class` in the file).
        blames: see `Signature`.
        say: see `Signature`.
    """

    model_config = FILE_MODEL

    phases: Annotated[tuple[Phase, ...], Field(alias="in")] = ()
    last_lines: Pattern | None = None
    failure: Annotated[FailureClass, Field(alias="class")]
    blames: Mapping[str, Direction] = {}
    say: str | None = None


class SignatureFile(BaseModel):
    """One `failures.yaml`.

    Attributes:
        extends: folders beside this one whose file is read after it.
        roles: what a setting is for → the engine's flags and variables for it.
        phases: log line → phase.
        frames: source files and functions in a traceback → phase in which they run; the first match counts.
        wrappers: lines that follow an error.
        harmless: lines that never decide.
        compiling: lines that tell of a compilation while requests waited for it.
        signatures: causes; of two that match one line, the earlier row wins.
        hangs: what a hang means, the first rule that fits.
    """

    model_config = FILE_MODEL

    extends: tuple[str, ...] = ()
    roles: Mapping[str, tuple[str, ...]] = {}
    phases: tuple[PhaseMark, ...] = ()
    frames: tuple[PhaseMark, ...] = ()
    wrappers: tuple[Wrapper, ...] = ()
    harmless: tuple[Harmless, ...] = ()
    compiling: tuple[Compiling, ...] = ()
    signatures: tuple[Signature, ...] = ()
    hangs: tuple[HangRule, ...] = ()


@dataclass(frozen=True)
class SignatureBook:
    """The rows of one engine: its own file first, then those that it extends."""

    files: tuple[SignatureFile, ...]

    @cached_property
    def phases(self) -> tuple[PhaseMark, ...]:
        """Phase markers in reading order."""
        return tuple(row for file in self.files for row in file.phases)

    @cached_property
    def frames(self) -> tuple[PhaseMark, ...]:
        """Traceback frames that tell a phase."""
        return tuple(row for file in self.files for row in file.frames)

    @cached_property
    def wrappers(self) -> tuple[Wrapper, ...]:
        """Lines that follow an error."""
        return tuple(row for file in self.files for row in file.wrappers)

    @cached_property
    def harmless(self) -> tuple[Harmless, ...]:
        """Lines that never decide."""
        return tuple(row for file in self.files for row in file.harmless)

    @cached_property
    def compiling(self) -> tuple[Compiling, ...]:
        """Lines that tell of a compilation while serving."""
        return tuple(row for file in self.files for row in file.compiling)

    @cached_property
    def signatures(self) -> tuple[Signature, ...]:
        """Causes, in order of preference."""
        return tuple(row for file in self.files for row in file.signatures)

    @cached_property
    def hangs(self) -> tuple[HangRule, ...]:
        """What a hang means."""
        return tuple(row for file in self.files for row in file.hangs)

    def settings_of(self, blames: Mapping[str, Direction]) -> dict[str, Direction]:
        """Blamed settings with roles replaced by this engine's flags and variables; foreign roles fall away."""
        named: dict[str, Direction] = {}
        for name, direction in blames.items():
            for setting in self._flags_for(name) if _ROLE.fullmatch(name) else (name,):
                named.setdefault(setting, direction)
        return named

    def _flags_for(self, role: str) -> tuple[str, ...]:
        return tuple(setting for file in self.files for setting in file.roles.get(role, ()))


def load_book(engine: str) -> SignatureBook:
    """The signatures of an engine.

    Raises:
        SpecError: when a file is missing or wrong, with every problem and its place.
    """
    return _book(launchers_dir(), engine)


@cache
def _book(folder: Path, engine: str) -> SignatureBook:
    book = SignatureBook(tuple(_chain(folder, engine)))
    ids = [row.id for row in book.wrappers] + [row.id for row in book.harmless] + [row.id for row in book.signatures]
    file = str(folder / engine / FILE_NAME)
    if twice := [row_id for row_id, count in Counter(ids).items() if count > 1]:
        raise SpecError([Problem(file, 0, 0, row_id, "two rows have this id") for row_id in twice])
    return book


def _chain(folder: Path, engine: str) -> Iterator[SignatureFile]:
    """A file, those that it extends, those that these extend …, each once: what is shared comes last."""
    waiting, seen = [engine], {engine}
    for name in waiting:
        file = _load(folder / name / FILE_NAME)
        yield file
        new = [other for other in file.extends if other not in seen]
        seen.update(new)
        waiting.extend(new)


def _load(path: Path) -> SignatureFile:
    document = yamlfile.load(path)
    try:
        return SignatureFile.model_validate(document.data or {})
    except ValidationError as error:
        raise SpecError(problems_of(document, document.data, error, SignatureFile)) from error
