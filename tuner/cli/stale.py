"""Exported files that were a study's best configuration when they were written, and are no longer."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.cli.choice import CONFIRMED, resolved_pick
from tuner.cli.output import console
from tuner.domain.study import AttemptRecord, ExportRecord, StudyRecord
from tuner.errors import NothingFeasible, StudyError
from tuner.study.looked_at import launches_looked_at

if TYPE_CHECKING:
    from tuner.domain.front import Standing
    from tuner.store import Store


@dataclass(frozen=True, slots=True)
class StaleExport:
    """A file that was overtaken.

    Attributes:
        record: what was written.
        best: the trial whose configuration is the best one now.
    """

    record: ExportRecord
    best: int

    def command(self, file: str) -> str:
        """What writes the best configuration into the file."""
        form = "" if self.record.format == "sh" else f" --format {self.record.format}"
        return f"tuner export {shlex.quote(self.record.study)}{form} -o {shlex.quote(file)}"

    def words(self, file: str) -> str:
        """For people, the file by the name that they know."""
        return (
            f"{file} (trial {self.record.trial}) is no longer the best configuration of {self.record.study}: trial "
            f"{self.best} is; `{self.command(file)}`"
        )

    @property
    def document(self) -> dict[str, Any]:
        """Keys: path, format, trial, best."""
        return {
            "path": self.record.path,
            "format": self.record.format,
            "trial": self.record.trial,
            "best": self.best,
        }


def stale_exports(store: Store, record: StudyRecord) -> list[StaleExport]:
    """The files of a study that were overtaken, as far as they are still there.

    A file that never was the best configuration, since another pick was asked for, is what it was.
    """
    ended = store.last_ended(record.name)
    written = {one.path: one for one in store.exports(record.name)}
    # What was written after the last launch ended knows all that there is to know.
    older = [one for one in written.values() if ended is not None and one.created_at < ended]
    there = [one for one in older if Path(one.path).exists()]
    return list(_overtaken(record, launches_looked_at(store, record), there)) if there else []


def stale_text(store: Store, record: StudyRecord, sha256: str) -> StaleExport | None:
    """The same of a text that the study wrote, wherever it lies now; None also for a text that it did not write."""
    same = [one for one in store.exports(record.name) if one.sha256 == sha256]
    return next(_overtaken(record, launches_looked_at(store, record), same[-1:]), None) if same else None


def print_stale(found: Sequence[StaleExport]) -> None:
    """A warning for each."""
    for one in found:
        console().print(f"warning: {one.words(one.record.path)}", style="yellow")


def _overtaken(
    record: StudyRecord, attempts: Sequence[AttemptRecord], exports: Sequence[ExportRecord]
) -> Iterator[StaleExport]:
    now = _best(record, attempts)
    if now is None:
        return
    for export in exports:
        known = [a for a in attempts if a.finished_at is not None and a.finished_at <= export.created_at]
        then = _best(record, known)
        was_best = then is not None and export.trial in then.trials
        if then is not None and was_best and then.candidate.fingerprint != now.candidate.fingerprint:
            yield StaleExport(export, now.trial)


def _best(record: StudyRecord, attempts: Sequence[AttemptRecord]) -> Standing | None:
    """What `tuner export` writes where no pick is named."""
    from tuner.export.standings import front_of

    try:
        return front_of(record.space, attempts).pick(resolved_pick(record, attempts, CONFIRMED))
    except (NothingFeasible, StudyError):
        return None
