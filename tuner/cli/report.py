"""`tuner study report`: everything that a study found, in one file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import JsonOption, StorageOption
from tuner.cli.output import console, print_json
from tuner.errors import UsageError, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.domain.proof import Ablation
    from tuner.domain.study import AttemptRecord, StudyRecord
    from tuner.export.report import Findings
    from tuner.store import Store

_TABLES = ("csv", "parquet")
_FORMATS = ("html", "md", "json", *_TABLES)


def report(
    name: Annotated[str, typer.Argument(help="Study name.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write. [default: NAME-report.html, else stdout]", show_default=False
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="html: one page that opens offline; md; json; csv, parquet: every measurement as a row. "
            "[default: by the file's name, else html]",
            show_default=False,
        ),
    ] = None,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the report: result, proof, front, load curves, failures, activity, output check, machine and commands.

    With --json: one document with `study`, `format`, `path`, `simulated`.
    """
    from tuner.store import open_store

    chosen = _format(form, output)
    if output is None and (chosen in ("html", "parquet") or as_json):
        output = Path(f"{name}-report.{chosen}")
    with open_store(storage, create=False) as store:
        record = store.study(name)
        content = _content(store, name, chosen)
    if output is None:
        sys.stdout.buffer.write(content)
        return
    _write(output, content)
    if as_json:
        print_json({"study": name, "format": chosen, "path": str(output), "simulated": record.simulated})
    else:
        label = ", simulated" if record.simulated else ""
        console().print(f"{output}: report of {name} ({chosen}{label})")


def _format(form: str | None, output: Path | None) -> str:
    """The format asked for, or the one that the file's name ends with."""
    by_name = output.suffix.lstrip(".").lower() if output is not None else ""
    chosen = form or (by_name if by_name in _FORMATS else "html")
    if chosen not in _FORMATS:
        raise UsageError(f"no such format: {chosen}", hint=f"choose one of {', '.join(_FORMATS)}")
    return chosen


def findings_of(store: Store, name: str) -> Findings:
    """Everything that the stored launches of a study say; of metrics that no page shows, nothing.

    Raises:
        StudyError: no such study.
    """
    from tuner.export.report import Findings
    from tuner.export.report_load import SHOWN
    from tuner.export.standings import front_of
    from tuner.study.confirm import confirmation_of
    from tuner.study.looked_at import launches_looked_at
    from tuner.study.summary import baselines_of
    from tuner.study.warnings import warnings_of

    record = store.study(name)
    attempts = launches_looked_at(store, record, also=SHOWN)
    front = front_of(record.space, attempts)
    found = confirmation_of(record.space, attempts, baselines_of(attempts))
    return Findings(
        study=record,
        attempts=attempts,
        cautions=warnings_of(record.space, attempts, front, found),
        confirmation=found,
        ablation=_ablation(record, attempts),
        probe=store.probe(name),
    )


def _ablation(record: StudyRecord, attempts: Sequence[AttemptRecord]) -> Ablation | None:
    """The study's last ablation."""
    from tuner.study.ablate import AblationPlan, taken_apart
    from tuner.study.summary import baselines_of

    baselines = baselines_of(attempts)
    winner = taken_apart(attempts, baselines)
    if winner is None:
        return None
    plan = AblationPlan.as_launched(record, baseline=baselines[winner.engine], winner=winner, attempts=attempts)
    return plan.result(attempts)


def _content(store: Store, name: str, form: str) -> bytes:
    if form in _TABLES:
        from tuner.export.measurement_table import TABLES

        return TABLES[form](store.each_measured(name), store.settings_measured(name))
    from tuner.export import report_formats as formats

    pages = {"html": formats.report_html, "md": formats.report_markdown, "json": formats.report_json}
    return pages[form](findings_of(store, name)).encode()


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", hint="give another file with -o") from error
