"""`tuner export`: write a measured configuration out, so that it can be served."""

from __future__ import annotations

import hashlib
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.choice import CONFIRMED, confirmation, resolved_pick
from tuner.cli.options import JsonOption, StorageOption
from tuner.cli.output import console, print_json
from tuner.domain.front import PICKS
from tuner.domain.study import AttemptRecord, ExportRecord, StudyRecord
from tuner.errors import UsageError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tuner.export.base import Export
    from tuner.store import Store

_FILE_FORMATS = ("sh", "compose", "systemd", "json")
_TABLE_FORMATS = ("md", "csv")


def export(
    study: Annotated[str, typer.Argument(help="Study name.", show_default=False)],
    pick: Annotated[
        str,
        typer.Option("--pick", help=f"Which configuration: {', '.join((CONFIRMED, *PICKS))}, or a trial number."),
    ] = CONFIRMED,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="sh: bash script; compose; systemd: service; json: manifest; md, csv: the whole front as a table.",
        ),
    ] = "sh",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write. [default: stdout]", show_default=False)
    ] = None,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a measured configuration as a script, compose file, service or manifest that starts the same server.

    With --json: one document with `study`, `trial`, `format`, `path`, `sha256`, `simulated`; it needs -o.
    `trial` is null for a table, which holds every configuration.
    """
    from tuner.store import open_store
    from tuner.study.looked_at import launches_looked_at

    if form not in (*_FILE_FORMATS, *_TABLE_FORMATS):
        known = ", ".join((*_FILE_FORMATS, *_TABLE_FORMATS))
        raise UsageError(f"no such format: {form}", hint=f"choose one of {known}")
    if as_json and output is None:
        raise UsageError("--json describes the written file: say which with -o", hint="or take --format json alone")
    with open_store(storage, create=False) as store:
        record = store.study(study)
        attempts = launches_looked_at(store, record)
        chosen = None if form in _TABLE_FORMATS else _gather(record, attempts, pick)
        text = _table(record, attempts, form) if chosen is None else _text(chosen, form)
        if output is None:
            sys.stdout.write(text)
            return
        digest = _write_file(output, text, executable=form == "sh")
        if chosen is not None:
            _remember(store, chosen, form, output, digest)
    simulated = record.simulated if chosen is None else chosen.simulated
    if as_json:
        print_json(
            {
                "study": study,
                "trial": None if chosen is None else chosen.trial,
                "format": form,
                "path": str(output),
                "sha256": digest,
                "simulated": simulated,
            }
        )
        return
    label = ", simulated" if simulated else ""
    what = "the front" if chosen is None else f"trial {chosen.trial}"
    console().print(f"{output}: {what} of {study} ({form}{label})")
    if chosen is not None:
        for caution in _cautions(chosen):
            console().print(f"warning: trial {chosen.trial} {caution}", style="yellow")


def _cautions(chosen: Export) -> Iterator[str]:
    if chosen.broken:
        yield f"breaks {', '.join(chosen.broken)}"
    if chosen.changes and not any(number.confirmed for number in chosen.numbers):
        command = f"`tuner study confirm {shlex.quote(chosen.study)}`"
        yield f"is not confirmed: the best of a search is partly lucky, and {command} says what is real"


def write_default_export(store: Store, record: StudyRecord) -> Path:
    """Write the script of the confirmed configuration (else the default pick) beside the study's run directories.

    Returns:
        The script's path.

    Raises:
        UserError: it cannot be written.
    """
    attempts = store.attempts(record.name)
    chosen = _gather(record, attempts, CONFIRMED)
    # Run directories are RUNS/STUDY/TRIAL/ATTEMPT.
    folder = next(Path(a.run_dir).parents[1] for a in attempts if a.trial == chosen.trial)
    path = folder / "serve.sh"
    _remember(store, chosen, "sh", path, _write_file(path, _text(chosen, "sh"), executable=True))
    return path


def _gather(record: StudyRecord, attempts: Sequence[AttemptRecord], pick: str) -> Export:
    from tuner.export.base import export_of

    return export_of(record, attempts, resolved_pick(record, attempts, pick), confirmation(record, attempts))


def _text(chosen: Export, form: str) -> str:
    from tuner.export.formats import FORMATS

    return FORMATS[form](chosen)


def _table(record: StudyRecord, attempts: Sequence[AttemptRecord], form: str) -> str:
    from tuner.export.standings import front_of
    from tuner.export.table import TABLES

    return TABLES[form](front_of(record.space, attempts), confirmation(record, attempts))


def _remember(store: Store, chosen: Export, form: str, path: Path, digest: str) -> None:
    store.record_export(
        ExportRecord(chosen.study, chosen.trial, form, str(path.absolute()), digest, created_at=time.time())
    )


def _write_file(path: Path, text: str, *, executable: bool) -> str:
    """Write a file; the hash of what was written."""
    content = text.encode()
    try:
        path.write_bytes(content)
        if executable:
            path.chmod(0o755)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", hint="give another file with -o") from error
    return hashlib.sha256(content).hexdigest()
