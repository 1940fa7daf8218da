"""`tuner study verify-knobs`: a short launch that tells which settings act."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.choice import CONFIRMED, resolved_pick
from tuner.cli.options import JsonOption, OtherMachineOption, StorageOption
from tuner.cli.output import console, out, print_json
from tuner.cli.steps import StepLines
from tuner.errors import DoesNotHold, StudyError

if TYPE_CHECKING:
    from tuner.domain.study import AttemptRecord
    from tuner.study.verify_knobs import KnobCheck


def verify_knobs(
    name: Annotated[str, typer.Argument(help="Study name.", show_default=False)],
    trial: Annotated[
        int | None,
        typer.Option(min=0, help="Which trial. [default: the confirmed one, else the front's]", show_default=False),
    ] = None,
    storage: StorageOption = None,
    other_machine: OtherMachineOption = False,
    as_json: JsonOption = False,
) -> None:
    """Launch a configuration once more with NCCL's own log on, and say which of its settings act.

    What is found is kept with the study: reports, ablations and the search take it into account. The launch gives no
    number. Exit code 3: the launch failed.
    """
    from tuner.export.standings import front_of
    from tuner.store import open_store
    from tuner.study.looked_at import launches_looked_at
    from tuner.study.resuming import prepare_resume
    from tuner.study.runs import runs_root
    from tuner.study.verify_knobs import verify_and_record

    with open_store(storage, create=False) as store:
        record = store.study(name)
        attempts = launches_looked_at(store, record)
        pick = resolved_pick(record, attempts, CONFIRMED)
        number = front_of(record.space, attempts).pick(pick).trial if trial is None else trial
        store.tell_when_away(lambda text: console().print(text, style="yellow"))
        prepared = prepare_resume(store, name, other_machine=other_machine)
        found = verify_and_record(
            prepared,
            store,
            _of_trial(attempts, name, number).candidate,
            _folder(runs_root(name, attempts), number),
            storage_url=storage,
            notify=StepLines(),
        )
    if as_json:
        print_json(_document(name, number, found))
    else:
        _print(found)
    if found.failure is not None:
        raise DoesNotHold(f"the launch failed: {found.failure.failure_class.value}", hint=found.failure.detail)


def _folder(root: Path, trial: int) -> Path:
    """A fresh folder beside the trial's own launches."""
    taken = len(list(root.glob(f"knobs-{trial:04d}-*")))
    return root / f"knobs-{trial:04d}-{taken + 1}"


def _of_trial(attempts: list[AttemptRecord], name: str, trial: int) -> AttemptRecord:
    found = next((attempt for attempt in attempts if attempt.trial == trial), None)
    if found is None:
        raise StudyError(f"{name} has no trial {trial}", hint=f"tuner study trials {name}")
    return found


def _document(name: str, trial: int, found: KnobCheck) -> dict[str, Any]:
    """Keys: study, trial, knobs (knob, state, reason), nccl (version, channels, variables), own_all_reduce, failure."""
    version = found.nccl.version
    return {
        "study": name,
        "trial": trial,
        "knobs": [{"knob": k.knob, "state": k.state.value, "reason": k.reason} for k in found.activity],
        "nccl": {
            "version": None if version is None else ".".join(map(str, version)),
            "channels": found.nccl.channels,
            "variables": dict(found.nccl.variables),
        },
        "own_all_reduce": found.own,
        "failure": None if found.failure is None else found.failure.failure_class.value,
    }


def _print(found: KnobCheck) -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("knob", "state", "reason"):
        table.add_column(column, overflow="fold")
    styles = {"inactive": "yellow", "active": "green"}
    for item in found.activity:
        table.add_row(item.knob, item.state.value, item.reason, style=styles.get(item.state.value, ""))
    out().print(table if found.activity else "the configuration sets no knob")
    if found.nccl.version is None:
        out().print("no process of the server wrote a line of NCCL's", style="dim")
