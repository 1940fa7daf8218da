"""`tuner verify`: does an exported script still reach its recorded numbers? For cron and CI, by exit code."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.options import JsonOption, StorageOption
from tuner.cli.output import console, out, print_json
from tuner.cli.steps import StepLines
from tuner.errors import DoesNotHold, MachineUnfit, UserError

if TYPE_CHECKING:
    from tuner.cli.stale import StaleExport
    from tuner.domain.outcome import Failure
    from tuner.study.verify import Verification


def verify(
    script: Annotated[Path, typer.Argument(help="Script that `tuner export` wrote.", show_default=False)],
    launches: Annotated[int, typer.Option(min=1, help="How often it is started; the mean counts.")] = 1,
    tolerance: Annotated[
        float, typer.Option(min=0, max=1, help="Share by which a value may be worse than recorded.")
    ] = 0.05,
    runs: Annotated[
        Path | None, typer.Option("--runs", help="Folder for logs. [default: runs/verify-SCRIPT]", show_default=False)
    ] = None,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start an exported script, measure it again with the recorded workload, and compare.

    It also says when the study has found a better configuration since, where the script's study is stored here.

    Exit code 0: every number was reached again; 3: one was not, or a launch failed; 1: this host denies the script;
    4: what failed was this machine (ports, memory, a killed process), which says nothing about the script.
    """
    from tuner.study.verify import verify as run

    overtaken = _overtaken(script, storage)
    if overtaken is not None:
        console().print(f"warning: {overtaken.words(str(script))}", style="yellow")
    folder = (runs or Path("runs") / f"verify-{script.stem}").absolute()
    found = run(
        script,
        folder,
        launches=launches,
        tolerance=tolerance,
        notify=StepLines(),
    )
    if as_json:
        by = None if overtaken is None else overtaken.best
        print_json({**verification_document(script, found), "overtaken_by": by})
    else:
        _print(script, found)
    if found.undecided is not None:
        raise MachineUnfit(f"{script} could not be measured", hint=_hint(found.undecided, found, folder))
    if not found.holds:
        raise DoesNotHold(
            f"{script} does not hold any more", hint=_hint(next(iter(found.failures), None), found, folder)
        )


def _overtaken(script: Path, storage: str | None) -> StaleExport | None:
    """What the study that wrote the script says of it, where this database knows that study."""
    from tuner.cli.stale import stale_text
    from tuner.domain.recorded import read_recorded
    from tuner.store import open_store

    try:
        content = script.read_bytes()
        name = read_recorded(content.decode(), str(script)).study
        with open_store(storage, create=False) as store:
            return stale_text(store, store.study(name), hashlib.sha256(content).hexdigest())
    except (OSError, UnicodeDecodeError, UserError):
        # What is wrong with the script itself is said by who launches it.
        return None


def _hint(failure: Failure | None, found: Verification, folder: Path) -> str:
    if failure is not None:
        return f"{failure.failure_class.value}: {failure.detail or ''.join(failure.evidence[:1])} (logs: {folder})"
    changed = ", ".join(found.changed)
    return f"changed since: {changed}" if changed else "same machine, same versions: look for heat, neighbours, data"


def verification_document(script: Path, found: Verification) -> dict[str, Any]:
    """Keys: script, study, trial, simulated, holds, tolerance, checks, failures (class, detail), changed.

    A check has metric, unit, level, rate, recorded, low, high, values, change, holds; `changed`: fact → [then, now].
    """
    return {
        "script": str(script),
        "study": found.recorded.study,
        "trial": found.recorded.trial,
        "simulated": found.recorded.simulated,
        "holds": found.holds,
        "tolerance": found.tolerance,
        "checks": [
            {
                "metric": check.recorded.metric.value,
                "unit": check.recorded.metric.unit,
                **check.recorded.load.document,
                "recorded": check.recorded.center,
                "low": check.recorded.low,
                "high": check.recorded.high,
                "values": list(check.values),
                "change": check.change,
                "holds": check.holds,
            }
            for check in found.checks
        ],
        "failures": [{"class": f.failure_class.value, "detail": f.detail} for f in found.failures],
        "changed": {fact: list(pair) for fact, pair in found.changed.items()},
    }


def _print(script: Path, found: Verification) -> None:
    from rich.table import Table

    from tuner.cli.wording import SIMULATED, number

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("", "recorded", "now", "change", "at least / at most"):
        table.add_column(column, justify="left" if not column else "right")
    for check in found.checks:
        recorded = check.recorded
        now = ", ".join(map(number, check.values)) or "–"
        change = "–" if check.change is None else f"{check.change:+.1%}"
        label = f"{recorded.at} [{recorded.metric.unit}]"
        bound = number(check.allowed)
        table.add_row(label, number(recorded.center), now, change, bound, style="" if check.holds else "red")
    out().print(table)
    for fact, (then, now) in found.changed.items():
        out().print(f"changed: {fact}: {then} → {now}", style="yellow")
    label = f" ({SIMULATED})" if found.recorded.simulated else ""
    if found.holds:
        out().print(f"{script}: holds{label}", style="green")
