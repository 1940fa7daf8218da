"""`tuner study confirm`, `ablate` and `compare`: is the gain real, what made it, and which engine is faster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.asking import YesOption, ask
from tuner.cli.choice import CONFIRMED, resolved_pick
from tuner.cli.options import AddressOption, JsonOption, OtherMachineOption, StorageOption
from tuner.cli.output import console, print_json
from tuner.cli.stale import stale_exports
from tuner.domain.values import MAX_LAUNCHES
from tuner.errors import NothingFeasible, Stopped, StudyError, TunerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuner.domain.candidate import Candidate
    from tuner.domain.study import AttemptRecord, StudyRecord
    from tuner.store import Store
    from tuner.study.agenda import StudyEnd
    from tuner.study.loop import Coordinator
    from tuner.study.planned import Planned
    from tuner.study.preparing import Prepared

_NameArgument = Annotated[str, typer.Argument(help="Study name.", show_default=False)]
_LaunchesOption = Annotated[
    int | None,
    typer.Option(
        min=2,
        max=MAX_LAUNCHES,
        help="Launches of each configuration; more show smaller gains. [default: the space's confirm_launches]",
        show_default=False,
    ),
]
_DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what is known and planned; launch nothing.")]

_FALLBACK_ROUNDS = 3


def confirm(
    name: _NameArgument,
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Finalists besides the baseline. [default: those of a confirmation that was begun, else 3]",
            show_default=False,
        ),
    ] = None,
    launches: _LaunchesOption = None,
    storage: StorageOption = None,
    ray_address: AddressOption = None,
    other_machine: OtherMachineOption = False,
    yes: YesOption = False,
    dry_run: _DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Launch baseline and finalists again, interleaved in random order, and say which gains are real.

    A confirmation that was begun goes on; more --launches than before add rounds to it.
    """
    from tuner.cli import proof_view
    from tuner.cli.insight import search_of
    from tuner.export.standings import front_of
    from tuner.store import open_store
    from tuner.study.confirm import ConfirmAgenda, confirmation_of, finalists_begun
    from tuner.study.extent import FINALISTS, Extent
    from tuner.study.looked_at import launches_looked_at
    from tuner.study.summary import baselines_of

    with open_store(storage, create=False) as store:
        record = store.study(name)
        attempts = launches_looked_at(store, record)
        finalists = top or finalists_begun(attempts, baselines_of(attempts)) or FINALISTS
        extent = Extent(finalists, _rounds(record, launches), len(record.space.engines))
        where = _Where(ray_address, storage, other_machine)
        prepared = None if dry_run else where.prepare(store, name)
        search, attempts = search_of(name, storage)
        agenda = ConfirmAgenda(record, search=search, baselines=baselines_of(attempts), extent=lambda _attempts: extent)
        planned = agenda.planned(attempts)
        error = None
        if prepared is not None:
            error = _launch(prepared, store, where, planned, lambda c: c.confirm(extent), yes=yes)
        attempts = launches_looked_at(store, record)
        found = confirmation_of(record.space, attempts, baselines_of(attempts))
        stale = stale_exports(store, record)
        proof_view.print_confirmation(record, found, planned if dry_run else None, stale, as_json=as_json)
        front = front_of(record.space, attempts)
    if error is not None:
        raise error
    if found is None and not dry_run and not front.members:
        raise front.nothing_feasible()


def ablate(
    name: _NameArgument,
    trial: Annotated[
        int | None,
        typer.Option(
            min=0, help="Trial to take apart. [default: the confirmed one, else the front's]", show_default=False
        ),
    ] = None,
    launches: _LaunchesOption = None,
    storage: StorageOption = None,
    ray_address: AddressOption = None,
    other_machine: OtherMachineOption = False,
    yes: YesOption = False,
    dry_run: _DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Which settings carry the gain: each taken out of the winner and put into the baseline, the rest dropped.

    An ablation that was begun goes on; more --launches than before add rounds to it.
    """
    from tuner.cli import proof_view
    from tuner.store import open_store
    from tuner.study.ablate import AblationPlan
    from tuner.study.looked_at import launches_looked_at
    from tuner.study.planned import Planned
    from tuner.study.summary import baselines_of

    with open_store(storage, create=False) as store:
        record = store.study(name)
        attempts = launches_looked_at(store, record)
        try:
            winner = _winner(record, attempts, trial)
        except NothingFeasible as none:
            if as_json:
                nothing = Planned((), str(none)) if dry_run else None
                print_json(proof_view.ablation_document(record, None, nothing))
            raise
        baseline = baselines_of(attempts)[winner.engine]
        plan = AblationPlan(
            record, baseline=baseline, winner=winner, rounds=_rounds(record, launches), attempts=attempts
        )
        planned, error = plan.planned(attempts), None
        if not dry_run:
            where = _Where(ray_address, storage, other_machine)
            error = _launch(where.prepare(store, name), store, where, planned, lambda c: c.ablate(plan), yes=yes)
        found = plan.result(launches_looked_at(store, record))
        proof_view.print_ablation(record, found, planned if dry_run else None, as_json=as_json)
    if error is not None:
        raise error


def compare(name: _NameArgument, storage: StorageOption = None, as_json: JsonOption = False) -> None:
    """The confirmed best of each engine side by side, from launches made in the same rounds."""
    from tuner.cli import proof_view
    from tuner.store import open_store
    from tuner.study.confirm import confirmation_of
    from tuner.study.looked_at import launches_looked_at
    from tuner.study.summary import baselines_of

    with open_store(storage, create=False) as store:
        record = store.study(name)
        attempts = launches_looked_at(store, record)
    if len(record.space.engines) < 2:
        raise StudyError(f"{name} has one engine only", hint=f"its result: tuner study confirm {name} --dry-run")
    found = confirmation_of(record.space, attempts, baselines_of(attempts))
    if found is None:
        raise StudyError(f"{name} was not confirmed yet", hint=f"tuner study confirm {name}")
    proof_view.print_engines(record, found, as_json=as_json)


def _rounds(record: StudyRecord, launches: int | None) -> int:
    return launches or record.space.budget.confirm_launches or _FALLBACK_ROUNDS


def _winner(record: StudyRecord, attempts: list[AttemptRecord], trial: int | None) -> Candidate:
    from tuner.domain.study import AttemptState
    from tuner.export.standings import front_of

    if trial is not None:
        launches = [a for a in attempts if a.trial == trial]
        if not launches:
            raise StudyError(f"{record.name} has no trial {trial}", hint=f"tuner study trials {record.name}")
        if all(a.state is not AttemptState.MEASURED for a in launches):
            hint = f"choose one that works: tuner study front {record.name}"
            raise StudyError(f"trial {trial} of {record.name} was not measured", hint=hint)
        return launches[0].candidate
    return front_of(record.space, attempts).pick(resolved_pick(record, attempts, CONFIRMED)).candidate


@dataclass(frozen=True, slots=True)
class _Where:
    """On which cluster launches are made, where they are remembered, and whether another machine may go on."""

    ray_address: str | None
    storage: str | None
    other_machine: bool

    def prepare(self, store: Store, name: str) -> Prepared:
        """Check that the study can go on there, and that nobody else runs it."""
        from tuner.study.resuming import prepare_resume

        store.refuse_running(name)
        return prepare_resume(store, name, elsewhere=self.ray_address is not None, other_machine=self.other_machine)


def _launch(
    prepared: Prepared,
    store: Store,
    where: _Where,
    planned: Planned,
    work: Callable[[Coordinator], StudyEnd],
    *,
    yes: bool,
) -> TunerError | None:
    """Show the plan, ask, and launch one at a time under the live view.

    Returns:
        Why it ended early; to be raised once what was found so far is told.

    Raises:
        Stopped: the answer was no.
    """
    from tuner.cli.live import watching
    from tuner.cli.logs import configure_logging
    from tuner.cli.planned_view import print_planned
    from tuner.study.options import RunOptions
    from tuner.study.session import run_study

    print_planned(prepared.record, planned, console(), will=True)
    if not planned.launches:
        return None
    ask("Start?", yes=yes)
    configure_logging()
    with watching(prepared, planned.launches) as (view, stop):
        end = run_study(
            prepared,
            store,
            RunOptions(where.ray_address),
            storage_url=where.storage,
            notify=view.notify,
            stop=stop,
            work=work,
        )
    console().print(f"{prepared.record.name}: {end.reason}", style="bold")
    if end.error is None and stop.urgency:
        return Stopped("stopped; every finished launch is kept", hint="the same command goes on")
    return end.error
