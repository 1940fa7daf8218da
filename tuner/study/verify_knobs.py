"""A short launch of its own in which NCCL tells what it does: which of a configuration's settings act."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from tuner.domain.candidate import Candidate
from tuner.domain.landing import landing_of
from tuner.domain.measurement import MeasuredInPart
from tuner.domain.outcome import Failure
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord
from tuner.domain.trial import Activity, KnobActivity, Purpose, TrialEvent, TrialReport, TrialRequest
from tuner.domain.values import spell
from tuner.domain.workload import Workload
from tuner.engines.catalogue import load_catalogue
from tuner.engines.definition import load_definition
from tuner.engines.model_shape import model_shape
from tuner.engines.nccl_log import (
    NcclReading,
    own_all_reduce,
    read_nccl_log,
    variable_activity,
    verification_env,
)
from tuner.search.base import Search
from tuner.search.study import open_search
from tuner.store import Store, default_url, driver_url
from tuner.store.owner import this_process
from tuner.study.claim import LEASE_S, whole_launch_s
from tuner.study.preparing import Prepared
from tuner.trial.logfile import first_lines
from tuner.trial.process import LOG
from tuner.trial.runner import run_trial

_SMALL_MESSAGE_BYTES = 1 << 20
"""Where the model's width is unknown: all-reduces up to this size count as those of decode steps."""


_WHY_NO_NUMBER = "launched to see which settings act, with NCCL's log on"


@dataclass(frozen=True, slots=True)
class KnobCheck:
    """What the launch showed.

    Attributes:
        activity: every knob that the configuration sets.
        nccl: what NCCL said; empty where no process loaded it.
        own: the engine's own all-reduce that comes first, if its log names one.
        report: what the worker reported, with this activity and without a number: the log slows the server down.
    """

    activity: tuple[KnobActivity, ...]
    nccl: NcclReading
    own: str | None
    report: TrialReport

    @property
    def failure(self) -> Failure | None:
        """Why the launch failed, or None."""
        return self.report.outcome if isinstance(self.report.outcome, Failure) else None


def verify_and_record(
    prepared: Prepared,
    store: Store,
    candidate: Candidate,
    run_dir: Path,
    *,
    storage_url: str | None,
    notify: Callable[[TrialEvent], None] = lambda event: None,
) -> KnobCheck:
    """Check a configuration of a study, and keep what was found with the study, as a launch without a number.

    Args:
        prepared: the study; nobody may be running it.
        store: where it is stored.
        candidate: the configuration.
        run_dir: folder for the launch's files.
        storage_url: of the database, as the user gave it; None for the default.
        notify: called with every step.

    Raises:
        StudyError: the study is being run.
        MachineUnfit: engine or GPUs are missing.
    """
    record, owner = prepared.record, this_process()
    store.acquire_coordinator(record.name, owner, whole_launch_s(record.space.budget))
    try:
        check = verify_knobs(record.space, candidate, run_dir, gpus=prepared.gpus, notify=notify)
        if check.failure is None:
            search = open_search(
                record.space,
                storage_url=driver_url(storage_url or default_url()),
                study_name=record.name,
                baselines=prepared.baselines,
                seed=record.seed,
                sampler=record.sampler,
                patience=store.patiently,
            )
            record_check(store, search, record.name, candidate, run_dir, check)
        return check
    finally:
        store.release_coordinator(record.name, owner)


def record_check(
    store: Store, search: Search, study: str, candidate: Candidate, run_dir: Path, check: KnobCheck
) -> AttemptRecord:
    """Keep a check as a launch of the study; the search's models never hear of it.

    Raises:
        StudyError: no such study.
    """
    trial = search.propose(candidate, Purpose.VERIFY).trial
    opened = store.open_attempt(
        study,
        trial=trial,
        attempt=1,
        purpose=Purpose.VERIFY,
        candidate=candidate,
        run_dir=str(run_dir),
        owner=this_process(),
        ttl=LEASE_S,
    )
    finished = store.finish_attempt(opened.id, check.report)
    search.abandon(trial)
    store.mark_told(opened.id)
    return finished


def verify_knobs(
    space: Space,
    candidate: Candidate,
    run_dir: Path,
    *,
    gpus: int = 0,
    notify: Callable[[TrialEvent], None] = lambda event: None,
) -> KnobCheck:
    """Launch a configuration with NCCL's log on, send a little load, and read what acted; its speed is not looked at.

    Args:
        space: of the study.
        candidate: the configuration.
        run_dir: folder for the launch's files.
        gpus: that the server takes.
        notify: called with every step.

    Raises:
        MachineUnfit: engine or GPUs are missing.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    telling = _telling(space, candidate.engine, run_dir)
    request = TrialRequest(
        study=space.name,
        trial=0,
        attempt=1,
        purpose=Purpose.VERIFY,
        candidate=candidate,
        space=telling,
        workload=telling.workload,
        run_dir=str(run_dir),
        gpus=gpus,
    )
    report = run_trial(request, gpus=tuple(range(gpus)), notify=notify, cancelled=lambda: False)
    return read_check(space, candidate, run_dir, report)


def _telling(space: Space, engine: str, run_dir: Path) -> Space:
    """The space with NCCL's log switched on and as little load as reaches every level."""
    own = space.engines[engine]
    env = {**own.env, **verification_env(str(run_dir))}
    engines = {**space.engines, engine: own.model_copy(update={"env": env})}
    little = {
        "output_tokens": min(16, space.workload.output_tokens),
        "rates": (),
        "requests_per_slot": 1,
        "min_requests": 1,
        "single_stream_min_requests": 1,
        "single_stream_max_requests": 1,
        "repeats": 1,
        "warmup_requests": 1,
    }
    workload = Workload.model_validate({**space.workload.model_dump(by_alias=True), **little})
    check = space.output_check.model_copy(update={"enabled": False})
    return space.model_copy(update={"engines": engines, "workload": workload, "output_check": check})


def read_check(space: Space, candidate: Candidate, run_dir: Path, report: TrialReport) -> KnobCheck:
    """What the files of such a launch say, on top of what its server reported."""
    log = run_dir / LOG
    own = own_all_reduce(first_lines(log)) if log.is_file() else None
    files = sorted(run_dir.glob("nccl.*"))
    reading = read_nccl_log(chain.from_iterable(map(_lines, files)))
    knobs = space.knobs_of(candidate.engine)
    sizes = _sizes(space, reading)
    switches = _all_reduce_switches(space, candidate.engine) if reading.is_bypassed(sizes) else None
    found = []
    for item in report.activity:
        variable, value = knobs[item.knob].env, candidate.values.get(item.knob)
        if files and variable is not None and variable.startswith("NCCL_") and value is not None:
            state, reason = variable_activity(variable, spell(value), reading, sizes, own=own)
            # Where the engine's own all-reduce serves decode steps, its switch decides, whatever the variable's value.
            bypassed = state is Activity.INACTIVE and variable in reading.variables
            found.append(KnobActivity(item.knob, state, reason, switches if bypassed else None))
        else:
            found.append(item)
    outcome = report.outcome
    if not isinstance(outcome, Failure):
        outcome = MeasuredInPart((), outcome.simulated, _WHY_NO_NUMBER)
    return KnobCheck(tuple(found), reading, own, replace(report, activity=tuple(found), outcome=outcome))


def _all_reduce_switches(space: Space, engine: str) -> tuple[str, ...] | None:
    """Knobs that turn the engine's own all-reduce off or on; None where the engine's definition names no switch."""
    own = load_definition(engine).own_all_reduce
    if own is None:
        return None
    catalogue = load_catalogue(engine, space.engines[engine].version)
    knobs = space.knobs_of(engine).items()
    return tuple(name for name, knob in knobs if landing_of(knob, catalogue).name == own.switch)


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        yield from file


def _sizes(space: Space, reading: NcclReading) -> tuple[int, ...]:
    """Bytes of the all-reduces of decode steps, up to the highest level."""
    shape = model_shape(space.model)
    if shape is not None:
        return tuple(shape.token_bytes * batch for batch in range(1, max(space.workload.levels) + 1))
    return tuple(call.size_bytes for call in reading.calls if call.size_bytes <= _SMALL_MESSAGE_BYTES)
