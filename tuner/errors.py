"""Every error that tuner raises on purpose, and the exit code that each family gives the shell.

    TunerError
    ├── UserError            1   something the user wrote or asked for cannot be done
    │   ├── SpecError            a space file, workload or launch command is wrong (carries every Problem)
    │   ├── StudyError           the study asked for is unknown, taken, changed or busy
    │   ├── StorageError         the database cannot be reached, written or understood
    │   └── OwnShortage          tuner's own process may not open what it needs to measure
    ├── UsageError           2   the command line itself is wrong
    ├── NothingFeasible      3   the study ended without one configuration that works
    ├── DoesNotHold          3   a recorded result was not reached when it was measured again
    ├── MachineUnfit         4   GPUs, driver, engine or ports do not allow a study here
    ├── InternalError        5   a defect of tuner
    └── Stopped            130   the user stopped it

A command prints one red line for each of these; the traceback goes to the log only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class TunerError(Exception):
    """Base of all deliberate errors.

    Args:
        message: what is wrong, and where, in one line.
        hint: what to do about it, or None.
    """

    exit_code = 5

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UserError(TunerError):
    """Something that the user wrote or asked for cannot be done."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a file: `file:line:col path: message`, with the line it stands on.

    Lines and columns count from 1; line 0 means that the problem belongs to the file as a whole: `file: message`.
    """

    file: str
    line: int
    column: int
    path: str
    message: str
    source_line: str = ""
    hint: str | None = None

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}" if self.line else f"{self.file}:"
        what = f"{self.path}: {self.message}" if self.path else self.message
        return f"{where} {what}" + (f" ({self.hint})" if self.hint else "")


class SpecError(UserError):
    """A file is wrong; `problems` holds everything found, in file order, never only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        if not problems:
            raise ValueError("a SpecError needs at least one problem")
        self.problems = tuple(sorted(problems, key=lambda p: (p.file, p.line, p.column)))
        super().__init__("\n".join(str(p) for p in self.problems))


class StudyError(UserError):
    """The study asked for is unknown, its name is taken, its space changed, or it is in use."""


class StorageError(UserError):
    """The database cannot be reached or written, or holds a schema that this version does not know."""


class OwnShortage(UserError):
    """This process may open no more files, memory or ports, so that it cannot measure; no server is to blame."""


class UsageError(TunerError):
    """The command line itself is wrong."""

    exit_code = 2


class NothingFeasible(TunerError):
    """The study ended without one configuration that works."""

    exit_code = 3


class DoesNotHold(TunerError):
    """A recorded result was not reached when it was measured again."""

    exit_code = 3


class MachineUnfit(TunerError):
    """GPUs, driver, engine or ports do not allow a study on this machine."""

    exit_code = 4


class InternalError(TunerError):
    """A defect of tuner; please report it with the log."""

    exit_code = 5


class Stopped(TunerError):
    """The user stopped the command."""

    exit_code = 130
