"""`tuner study …`: start, watch, stop, resume and look into studies."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import insight, knobs, proof, report
from tuner.cli.asking import YesOption, ask
from tuner.cli.options import (
    AddressOption,
    GpuHoursOption,
    JsonOption,
    OtherMachineOption,
    StopBelowOption,
    StorageOption,
    TimeoutOption,
    duration_s,
    share,
)
from tuner.cli.output import console, out
from tuner.domain.study import StudyState
from tuner.domain.values import MAX_GPUS, MAX_INT, MAX_TRIALS, counted
from tuner.errors import Stopped, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuner.store import Store
    from tuner.study.agenda import StudyEnd
    from tuner.study.options import BudgetOptions, RunOptions
    from tuner.study.preparing import Prepared
    from tuner.study.warmstart import Teachers

app = typer.Typer(no_args_is_help=True, help="Start, watch, stop, resume and look into studies.", rich_markup_mode=None)

NameArgument = Annotated[str, typer.Argument(help="Study name.", show_default=False)]
ParallelOption = Annotated[
    int,
    typer.Option("--parallel", min=1, max=MAX_GPUS, help="Launches at a time; they share the host, so measure with 1."),
]

WarmOption = Annotated[
    bool, typer.Option("--warm/--no-warm", help="Fork search launches from a process that holds the engine's imports.")
]


def _budget(trials: int | None, timeout: str | None, gpu_hours: float | None, stop_below: str | None) -> BudgetOptions:
    from tuner.study.options import BudgetOptions

    if gpu_hours is not None and not 0 < gpu_hours < math.inf:
        raise typer.BadParameter(f"{gpu_hours} GPU-hours are no budget")
    return BudgetOptions(
        trials=trials,
        timeout_s=None if timeout is None else duration_s(timeout),
        gpu_hours=gpu_hours,
        stop_below=None if stop_below is None else share(stop_below),
    )


@app.command()
def start(
    space: Annotated[str, typer.Option("--space", help="Space file, or the bare name of a shipped one.")],
    name: Annotated[str | None, typer.Option(help="Study name. [default: space name and time]")] = None,
    storage: StorageOption = None,
    trials: Annotated[
        int | None, typer.Option(min=1, max=MAX_TRIALS, help="Launches in all. [default: the space's]")
    ] = None,
    timeout: TimeoutOption = None,
    gpu_hours: GpuHoursOption = None,
    stop_below: StopBelowOption = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_INT, help="Seed of proposals and prompts.")] = 0,
    model: Annotated[str | None, typer.Option(help="Model path or name instead of the space's.")] = None,
    engine: Annotated[
        list[str] | None, typer.Option(help="Only this engine of the space; may be repeated. [default: all]")
    ] = None,
    sampler: Annotated[str, typer.Option(help="Search method: tuner, tpe, nsga2, gp, random, grid …")] = "tuner",
    warm_start: Annotated[
        list[str] | None,
        typer.Option("--warm-start", help="Let this earlier study teach this one; may be repeated."),
    ] = None,
    ray_address: AddressOption = None,
    parallel: ParallelOption = 1,
    warm: WarmOption = False,
    gpus: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_GPUS, help="GPUs per launch, where the space has `{gpus}`. [default: the space's]"),
    ] = None,
    probe: Annotated[
        bool | None,
        typer.Option("--probe/--no-probe", help="Measure all-reduces first (docs/probe.md). [default: the space's]"),
    ] = None,
    yes: YesOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and the first launch; start nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Search for a faster configuration: launch, benchmark, record, and export the best."""
    from tuner.cli import plan_view
    from tuner.store import open_store
    from tuner.study.options import RunOptions, StartOptions
    from tuner.study.preparing import prepare_start
    from tuner.study.session import start_study

    options = StartOptions(
        space=space,
        name=name,
        budget=_budget(trials, timeout, gpu_hours, stop_below),
        seed=seed,
        model=model,
        engines=tuple(engine or ()),
        sampler=sampler,
        warm_start=tuple(warm_start or ()),
        probe=probe,
        gpus=gpus,
    )
    prepared = prepare_start(options, elsewhere=ray_address is not None, only_plan=dry_run)
    teachers = _teachers(prepared, storage, new=not dry_run)
    if dry_run:
        plan_view.show(prepared, teachers, as_json=as_json, script=True)
        return
    plan_view.show(prepared, teachers, as_json=False, script=False)
    ask("Start?", yes=yes)
    with open_store(storage) as store:
        _run(start_study, prepared, store, RunOptions(ray_address, parallel, warm), storage, as_json=as_json)


def _teachers(prepared: Prepared, storage: str | None, *, new: bool) -> Teachers:
    """Earlier studies that teach this one, and those that could; where there is no database yet, there are none.

    Raises:
        StudyError: a `new` study has the name of an earlier one; whoever reads the plan shall not learn it afterwards.
    """
    from tuner.errors import StorageError
    from tuner.store import open_store
    from tuner.study.warmstart import Teachers, teachers_of, warm_start_names

    try:
        with open_store(storage, create=False) as store:
            if new:
                store.refuse_taken(prepared.record.name)
            return teachers_of(store, prepared)
    except StorageError:
        # A database that cannot be reached stops the study below; named studies must be found now.
        if warm_start_names(prepared.record):
            raise
        return Teachers()


@app.command()
def resume(
    name: NameArgument,
    space: Annotated[
        str | None,
        typer.Option("--space", help="Check that the study still has this space; take the budget from this file."),
    ] = None,
    storage: StorageOption = None,
    trials: Annotated[
        int | None, typer.Option(min=1, max=MAX_TRIALS, help="Launches in all, those so far included.")
    ] = None,
    timeout: TimeoutOption = None,
    gpu_hours: GpuHoursOption = None,
    stop_below: StopBelowOption = None,
    sampler: Annotated[str | None, typer.Option(help="Search method from now on. [default: as before]")] = None,
    ray_address: AddressOption = None,
    parallel: ParallelOption = 1,
    warm: WarmOption = False,
    other_machine: OtherMachineOption = False,
    as_json: JsonOption = False,
) -> None:
    """Go on with a study that was stopped, killed or has ended; every finished trial is kept.

    The budget may be raised or lowered and the sampler changed; knobs, load and objectives may not.
    """
    from tuner.store import open_store
    from tuner.study.options import RunOptions
    from tuner.study.resuming import ResumeOptions, prepare_resume
    from tuner.study.session import run_study
    from tuner.study.stopping import trials_spent

    options = ResumeOptions(space, _budget(trials, timeout, gpu_hours, stop_below), sampler)
    with open_store(storage, create=False) as store:
        prepared = prepare_resume(store, name, options, elsewhere=ray_address is not None, other_machine=other_machine)
        for change in prepared.changes:
            console().print(f"from now on: {change}")
        begun = trials_spent(store.attempts(name))
        _run(run_study, prepared, store, RunOptions(ray_address, parallel, warm), storage, begun, as_json=as_json)


def _run(
    run: Callable[..., StudyEnd],
    prepared: Prepared,
    store: Store,
    options: RunOptions,
    storage: str | None,
    begun: int = 0,
    *,
    as_json: bool,
) -> None:
    """Run with a live view, end with the front and the exported script."""
    from tuner.cli import front_view
    from tuner.cli.live import watching
    from tuner.cli.logs import configure_logging

    configure_logging()
    with watching(prepared, begun=begun) as (view, stop):
        end = run(prepared, store, options, storage_url=storage, notify=view.notify, stop=stop)
    front = front_view.conclude(store, prepared.record.name, end, as_json=as_json)
    if end.error is not None:
        raise end.error
    if stop.urgency and end.state is not StudyState.FINISHED:
        raise Stopped("stopped; every finished trial is kept", hint=f"tuner study resume {prepared.record.name}")
    if not front.members:
        raise front.nothing_feasible()


@app.command()
def stop(name: NameArgument, storage: StorageOption = None) -> None:
    """Ask the running coordinator, wherever it is, to end after the present trial."""
    from tuner.store import open_store

    with open_store(storage, create=False) as store:
        store.request_stop(name)
        running = store.coordinator(name) is not None
    if running:
        console().print(f"{name}: will stop after the running trial")
    else:
        console().print(f"{name}: nobody runs it now")


@app.command("list")
def list_studies(storage: StorageOption = None, as_json: JsonOption = False) -> None:
    """All studies of a database."""
    from tuner.cli import study_views
    from tuner.store import open_store

    with open_store(storage, create=False) as store:
        rows = study_views.study_rows(store)
    study_views.print_studies(rows, as_json=as_json)


@app.command()
def status(name: NameArgument, storage: StorageOption = None, as_json: JsonOption = False) -> None:
    """Where a study is: state, trials, failures, who runs it."""
    from tuner.cli import study_views
    from tuner.store import open_store

    with open_store(storage, create=False) as store:
        study_views.print_status(store, name, as_json=as_json)


@app.command()
def trials(name: NameArgument, storage: StorageOption = None, as_json: JsonOption = False) -> None:
    """Every launch of a study: configuration, result with spread, failure."""
    from tuner.cli import study_views
    from tuner.store import open_store

    with open_store(storage, create=False) as store:
        study_views.print_trials(store, name, as_json=as_json)


@app.command()
def show(
    name: NameArgument,
    trial: Annotated[int | None, typer.Argument(help="Trial number; without it, the study itself.")] = None,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """One trial in full (settings, metrics per level, phases, files), or the study's space."""
    from tuner.cli import study_views
    from tuner.store import open_store

    with open_store(storage, create=False) as store:
        study_views.print_one(store, name, trial, as_json=as_json)


@app.command()
def failures(name: NameArgument, storage: StorageOption = None, as_json: JsonOption = False) -> None:
    """Failures by class: how many, at which phase, what they cost, one line of evidence and the log."""
    from tuner.cli import failures_view
    from tuner.store import open_store

    with open_store(storage, create=False) as store:
        failures_view.print_failures(store, name, as_json=as_json)


@app.command()
def front(name: NameArgument, storage: StorageOption = None, as_json: JsonOption = False) -> None:
    """The Pareto front: the configurations within all limits that no other beats.

    One beats another where it is at least as good on every objective, and better beyond noise on one of them: what
    noise cannot tell apart stays.
    """
    from tuner.cli import front_view
    from tuner.store import open_store

    with open_store(storage, create=False) as store:
        front_view.print_front(store, name, as_json=as_json)


@app.command()
def delete(name: NameArgument, storage: StorageOption = None, yes: YesOption = False) -> None:
    """Forget a study and its trials; its run directories stay."""
    from tuner.search.study import delete_search
    from tuner.store import default_url, driver_url, open_store

    if not yes and not sys.stdin.isatty():
        raise UsageError(f"delete {name}: not on a terminal, so nobody can be asked", hint="add --yes")
    with open_store(storage, create=False) as store:
        count = len(store.attempts(name, metrics=()))
        ask(f"Delete study {name} with {counted(count, 'launch')}?", yes=yes, refused="nothing was deleted")
        store.delete_study(name)
    delete_search(driver_url(storage or default_url()), name)
    out().print(f"{name}: deleted ({counted(count, 'launch')}; the run directories stay)")


app.command("importance")(insight.importance)
app.command("explain")(insight.explain)
app.command("confirm")(proof.confirm)
app.command("ablate")(proof.ablate)
app.command("compare")(proof.compare)
app.command("report")(report.report)
app.command("verify-knobs")(knobs.verify_knobs)
