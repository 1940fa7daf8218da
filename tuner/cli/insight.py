"""`tuner study importance` and `tuner study explain`: what the search has learned, and why it proposed a trial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from tuner.cli.options import JsonOption, StorageOption
from tuner.cli.output import out, print_json
from tuner.cli.wording import number
from tuner.domain.values import counted
from tuner.errors import StudyError

if TYPE_CHECKING:
    from tuner.domain.study import AttemptRecord
    from tuner.search.base import Search


def search_of(name: str, storage: str | None) -> tuple[Search, list[AttemptRecord]]:
    """The search of a stored study, opened to be asked, not to go on; and the study's launches.

    Raises:
        StudyError: no such study, or it has launched nothing: opening its search would begin it.
    """
    from tuner.search.study import open_search
    from tuner.store import default_url, driver_url, open_store
    from tuner.study.looked_at import launches_looked_at
    from tuner.study.restating import restated
    from tuner.study.summary import baselines_of

    with open_store(storage, create=False) as store:
        record = store.study(name)
        attempts = launches_looked_at(store, record)
    if not attempts:
        raise StudyError(f"{name} has launched nothing yet", hint=f"tuner study resume {name}")
    search = open_search(
        record.space,
        storage_url=driver_url(storage or default_url()),
        study_name=name,
        baselines=baselines_of(attempts),
        seed=record.seed,
        sampler=record.sampler,
    )
    search.restate(restated(record.space, attempts))
    return search, attempts


def importance(
    name: Annotated[str, typer.Argument(help="Study name.", show_default=False)],
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Which knobs matter for which objective, with 95 % intervals; knobs that never acted are left out.

    Left out are knobs whose condition never held, and those of which the running servers said that they do nothing.
    """
    from tuner.study.silence import never_active

    search, attempts = search_of(name, storage)
    silent = never_active(attempts)
    rows = [row for row in search.importance() if (row.engine, row.knob) not in silent]
    if as_json:
        documents = [
            {
                "engine": row.engine,
                "knob": row.knob,
                "objective": row.objective,
                "effect": row.effect,
                "low": row.low,
                "high": row.high,
                "best": row.best,
                "trials": row.trials,
            }
            for row in rows
        ]
        print_json({"study": name, "importance": documents})
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("objective", "knob", "effect", "95 % interval", "best value", "launches"):
        table.add_column(column, justify="left" if column in ("objective", "knob", "best value") else "right")
    for row in rows:
        interval = f"[{row.low * 100:.1f}, {row.high * 100:.1f}] %"
        table.add_row(row.objective, row.knob, f"{row.effect * 100:.1f} %", interval, row.best, str(row.trials))
    out().print(table if rows else "too few launches to tell")


def explain(
    name: Annotated[str, typer.Argument(help="Study name.", show_default=False)],
    trial: Annotated[int, typer.Argument(help="Trial number.", show_default=False)],
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Why a trial was proposed: what was expected of it, how likely it was to fail, what it would teach."""
    found = search_of(name, storage)[0].explain(trial)
    if as_json:
        predictions = [
            {"objective": p.objective, "center": p.center, "low": p.low, "high": p.high} for p in found.predictions
        ]
        print_json(
            {
                "study": name,
                "trial": trial,
                "settings": dict(found.candidate.values),
                "why": found.why,
                "predictions": predictions,
                "failure_chance": found.failure_chance,
                "suspects": dict(found.suspects),
                "teaches": dict(found.teaches),
                "likely": dict(found.likely),
                "hints": dict(found.hints),
                "earlier": [
                    {
                        "study": e.study,
                        "trial": e.trial,
                        "gains": dict(e.gains),
                        "doubt": e.doubt,
                        "failure": None if e.failure is None else e.failure.value,
                    }
                    for e in found.earlier
                ],
            }
        )
        return
    out().print(f"trial {trial}: {found.why}")
    for prediction in found.predictions:
        interval = f"[{number(prediction.low)}, {number(prediction.high)}]"
        out().print(f"  expected {prediction.objective}: {number(prediction.center)} {interval}")
    if found.failure_chance is not None:
        out().print(f"  chance of failure: {found.failure_chance * 100:.0f} %")
    for rule, chance in found.suspects.items():
        out().print(f"    {rule}: {chance * 100:.0f} %")
    if found.teaches:
        open_sd = ", ".join(f"{setting} (±{sd * 100:.1f} % open)" for setting, sd in found.teaches.items())
        out().print(f"  would teach: {open_sd}")
    for setting, reason in found.likely.items():
        out().print(f"  expected to be good by the space file: {setting}: {reason}")
    for study, count in found.hints.items():
        out().print(f"  warm start: {counted(count, 'launch')} of {study} taken into account")
    for e in found.earlier:
        gains = ", ".join(f"{label} {gain * 100:+.1f} %" for label, gain in e.gains.items())
        seen = f"failed there: {e.failure.value}" if e.failure is not None else f"{gains} there, ±{e.doubt:.0%} here"
        out().print(f"  seen before in {e.study}, trial {e.trial}: {seen}")
