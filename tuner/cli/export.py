"""`tuner export`: write a measured configuration out, so that it can be served."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.choice import CONFIRMED, confirmation, resolved_pick
from tuner.cli.options import JsonOption, StorageOption
from tuner.cli.output import console, print_json
from tuner.domain.front import PICKS
from tuner.domain.study import ExportRecord, StudyRecord
from tuner.errors import UsageError, UserError

if TYPE_CHECKING:
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
    """
    from tuner.store import open_store

    if form not in (*_FILE_FORMATS, *_TABLE_FORMATS):
        known = ", ".join((*_FILE_FORMATS, *_TABLE_FORMATS))
        raise UsageError(f"no such format: {form}", hint=f"choose one of {known}")
    if as_json and output is None:
        raise UsageError("--json describes the written file: say which with -o", hint="or take --format json alone")
    with open_store(storage, create=False) as store:
        record = store.study(study)
        if form in _TABLE_FORMATS:
            _export_table(store, record, form, output)
            return
        chosen = _gather(store, record, pick)
        text = _text(chosen, form)
        if output is None:
            sys.stdout.write(text)
            return
        digest = _write(store, chosen, form, output, text)
    if as_json:
        print_json(
            {
                "study": study,
                "trial": chosen.trial,
                "format": form,
                "path": str(output),
                "sha256": digest,
                "simulated": chosen.simulated,
            }
        )
    else:
        label = ", simulated" if chosen.simulated else ""
        console().print(f"{output}: trial {chosen.trial} of {study} ({form}{label})")
        if chosen.broken:
            console().print(f"warning: trial {chosen.trial} breaks {', '.join(chosen.broken)}", style="yellow")


def write_default_export(store: Store, record: StudyRecord) -> Path:
    """Write the script of the confirmed configuration (else the default pick) beside the study's run directories.

    Returns:
        The script's path.

    Raises:
        UserError: it cannot be written.
    """
    attempts = store.attempts(record.name)
    chosen = _gather(store, record, CONFIRMED)
    # Run directories are RUNS/STUDY/TRIAL/ATTEMPT.
    folder = next(Path(a.run_dir).parents[1] for a in attempts if a.trial == chosen.trial)
    path = folder / "serve.sh"
    _write(store, chosen, "sh", path, _text(chosen, "sh"))
    return path


def _gather(store: Store, record: StudyRecord, pick: str) -> Export:
    from tuner.export.base import export_of

    attempts = store.attempts(record.name)
    return export_of(record, attempts, resolved_pick(record, attempts, pick), confirmation(record, attempts))


def _text(chosen: Export, form: str) -> str:
    from tuner.export.formats import FORMATS

    return FORMATS[form](chosen)


def _write(store: Store, chosen: Export, form: str, path: Path, text: str) -> str:
    """Write and remember an export; the hash of what was written."""
    content = text.encode()
    _write_file(path, content, executable=form == "sh")
    digest = hashlib.sha256(content).hexdigest()
    store.record_export(
        ExportRecord(chosen.study, chosen.trial, form, str(path.absolute()), digest, created_at=time.time())
    )
    return digest


def _write_file(path: Path, content: bytes, *, executable: bool) -> None:
    try:
        path.write_bytes(content)
        if executable:
            path.chmod(0o755)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", hint="give another file with -o") from error


def _export_table(store: Store, record: StudyRecord, form: str, output: Path | None) -> None:
    from tuner.export.standings import front_of
    from tuner.export.table import front_table

    text = front_table(front_of(record.space, store.attempts(record.name)), "md" if form == "md" else "csv")
    if output is None:
        sys.stdout.write(text)
    else:
        _write_file(output, text.encode(), executable=False)
        console().print(f"{output}: the front of {record.name} ({form})")
