"""What the dashboard shows beside each trial: notes on its launches, their logs and scripts, and the study's report."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tuner.cli.report import findings_of
from tuner.cli.wording import SIMULATED
from tuner.domain.measurement import Measured, MeasuredInPart
from tuner.domain.outcome import FAILURES, Failure
from tuner.domain.study import AttemptRecord, StudyRecord
from tuner.domain.trial import Activity, TrialReport
from tuner.domain.warnings import WarningCode
from tuner.search.board_files import Shown, ShownFile
from tuner.secrets import redact
from tuner.store import Store
from tuner.study.looked_at import launches_looked_at

if TYPE_CHECKING:
    from typing_extensions import Buffer

_REPORT = "report.html"
_TYPES = {".json": "application/json", ".jsonl": "application/x-ndjson", ".html": "text/html; charset=utf-8"}
_TEXT = "text/plain; charset=utf-8"
_LINES_BYTES = 1 << 16
_PACKED = frozenset({".gz", ".zst", ".npz", ".parquet"})


def shown_of(store: Store, record: StudyRecord) -> Shown:
    """Notes and files of a study and its trials; files that are not on this machine are left out."""
    attempts = launches_looked_at(store, record)
    by_trial: dict[int, list[AttemptRecord]] = {}
    for attempt in attempts:
        by_trial.setdefault(attempt.trial, []).append(attempt)
    report = ShownFile(_REPORT, _TYPES[".html"], partial(_report, store, record.name))
    notes: dict[int | None, str] = {None: _study_note(record)}
    files: dict[int | None, list[ShownFile]] = {None: [report] if attempts else []}
    for trial, launches in by_trial.items():
        notes[trial] = "\n\n".join(map(_note, launches))
        files[trial] = [file for launch in launches for file in _files(launch)]
    return Shown(notes, files)


def _report(store: Store, name: str) -> BinaryIO:
    """The study's page as it would be written now, drawings included."""
    from tuner.export.report_formats import report_html

    return io.BytesIO(report_html(findings_of(store, name)).encode())


def _study_note(record: StudyRecord) -> str:
    label = f" **{SIMULATED}: a model's numbers, no measurement.**" if record.simulated else ""
    return f"{record.space.description or record.space.name}{label}\n\n{record.state.value}: {record.reason or '–'}"


def _note(attempt: AttemptRecord) -> str:
    """One launch in Markdown: what it was for, what came of it, and what else is worth knowing."""
    head = f"**launch {attempt.attempt}** ({attempt.purpose.value}): {attempt.state.value}"
    report = attempt.report
    return head if report is None else "\n".join([head, *(f"- {line}" for line in _lines(report))])


def _lines(report: TrialReport) -> Iterator[str]:
    outcome = report.outcome
    if isinstance(outcome, Failure):
        told = outcome.detail or FAILURES[outcome.failure_class].words
        yield f"{outcome.failure_class.value} while {outcome.phase.value}: {told}"
        yield from (f"`{_plain(line)}`" for line in outcome.evidence)
    if isinstance(outcome, MeasuredInPart):
        yield outcome.reason
    if isinstance(outcome, Measured | MeasuredInPart):
        yield from _warnings([code for level in outcome.levels for code in level.warnings])
    for found in report.activity:
        if found.state is Activity.INACTIVE:
            yield f"{found.knob} did not act: {found.reason}"
    yield from report.notes


def _warnings(codes: Sequence[str]) -> Iterator[str]:
    known = set(WarningCode)
    # A database may hold codes of another version.
    yield from (WarningCode(code).words for code in dict.fromkeys(codes) if code in known)


def _plain(line: str) -> str:
    """A log line that cannot end the code span it stands in."""
    return line.replace("`", "'")


def _files(attempt: AttemptRecord) -> Iterator[ShownFile]:
    for path in (attempt.report.artifacts if attempt.report is not None else {}).values():
        file = Path(attempt.run_dir) / path
        if file.is_file():
            name = f"launch {attempt.attempt}: {path}"
            yield ShownFile(name, _mimetype(file), partial(_open_log if file.suffix == ".log" else _open, file))


def _open(file: Path) -> BinaryIO:
    return file.open("rb")


def _open_log(file: Path) -> BinaryIO:
    return io.BufferedReader(_Redacted(file))


class _Redacted(io.RawIOBase):
    """A log as everybody may read it: an engine may print in its log what it was given in confidence."""

    def __init__(self, file: Path) -> None:
        self._source = file.open("rb")
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        space = memoryview(buffer)
        if not self._ready:
            # Whole lines, so that none is cut within a secret.
            lines = b"".join(self._source.readlines(_LINES_BYTES))
            self._ready = redact(lines.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        size = min(len(space), len(self._ready))
        space[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def close(self) -> None:
        self._source.close()
        super().close()


def _mimetype(file: Path) -> str:
    return "application/octet-stream" if file.suffix in _PACKED else _TYPES.get(file.suffix, _TEXT)
