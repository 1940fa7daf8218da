"""From what the user asked for to a running study: check everything first, then open, run and close."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner import __version__
from tuner.domain.candidate import Candidate
from tuner.domain.denied import BUILT_IN
from tuner.domain.launch import LaunchPlan
from tuner.domain.measurement import Metric
from tuner.domain.space import Space
from tuner.domain.study import AttemptRecord, StudyRecord, study_name_fault
from tuner.domain.values import counted
from tuner.engines.catalogue import catalogues, usual_port
from tuner.engines.plan import Place
from tuner.errors import MachineUnfit, StudyError, TunerError, UserError
from tuner.execution.ray import RayExecutor
from tuner.probe.priors import with_priors
from tuner.search.samplers import DEFAULT as DEFAULT_SAMPLER
from tuner.search.samplers import refuse_sampler
from tuner.search.study import delete_search, open_search
from tuner.spec import load_space, space_hash
from tuner.store import Store, default_url, driver_url
from tuner.store.owner import this_process
from tuner.study.events import StudyEvent
from tuner.study.given_files import refuse_unreadable
from tuner.study.launches import LEASE_S, Means, StudyEnd
from tuner.study.learned import learned_limits
from tuner.study.loop import Coordinator
from tuner.study.probing import FirstStep, probe_first, queue_best
from tuner.study.stopping import StopSwitch
from tuner.study.warmstart import WARM_START, hints_for
from tuner.trial.assembly import EngineSetup, engine_setup
from tuner.trial.baseline_levels import wanted_metrics
from tuner.trial.denyfiles import host_deny_list
from tuner.trial.machine import MachineFacts, machine_facts
from tuner.trial.sweep import sweep

RUNS_VARIABLE = "TUNER_RUNS"
ENGINES = "engines"
"""Among a record's overrides: the engines that the study has, of those in its space file, with commas between."""

_FIRST_PORT = 30_000
"""For a plan of an engine whose catalogue states no port."""
_CANNOT_START = "cannot start on this machine: "
_ENERGY = Metric.OUTPUT_TOK_PER_JOULE.value
_ENERGY_HINT = "leave it out of objectives and limits, or run on NVIDIA GPUs whose driver counts energy (tuner doctor)"


@dataclass(frozen=True, slots=True)
class BudgetOptions:
    """What the command line says about a study's budget; None leaves the space file's own value."""

    trials: int | None = None
    timeout_s: float | None = None
    gpu_hours: float | None = None
    stop_below: float | None = None

    @property
    def changes(self) -> dict[str, int | float]:
        """Dotted path in the space file → value that replaces it."""
        found = {
            "budget.trials": self.trials,
            "budget.hours": None if self.timeout_s is None else self.timeout_s / 3600,
            "budget.gpu_hours": self.gpu_hours,
            "budget.stop_below_gain": self.stop_below,
        }
        return {path: value for path, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What `tuner study start` was asked for; None leaves the space file's own value, and no engines means all."""

    space: str
    name: str | None = None
    budget: BudgetOptions = field(default_factory=BudgetOptions)
    seed: int = 0
    model: str | None = None
    engines: tuple[str, ...] = ()
    sampler: str = DEFAULT_SAMPLER
    warm_start: tuple[str, ...] = ()
    probe: bool | None = None
    gpus: int | None = None

    @property
    def space_changes(self) -> dict[str, int | float | str]:
        """Dotted path in the space file → value that replaces it."""
        named = {"model": self.model, "probe": self.probe, "hardware.gpus": self.gpus}
        return {**self.budget.changes, **{path: value for path, value in named.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A study that was checked and can start.

    Attributes:
        record: as it will be stored.
        setups: engine → how it is launched here.
        gpus: GPUs per launch; 0 for simulated engines.
        machine: this machine.
        elsewhere: whether trials run on other machines, of which nothing is known here.
        changes: what a resumed study does differently from now on, in words.
        warnings: what was found that does not forbid the study; of a plan only, also what does.
    """

    record: StudyRecord
    setups: Mapping[str, EngineSetup]
    gpus: int
    machine: MachineFacts
    warnings: tuple[str, ...] = ()
    elsewhere: bool = False
    changes: tuple[str, ...] = ()

    @property
    def baselines(self) -> dict[str, Candidate]:
        """Engine → baseline, in the space's order."""
        return {engine: setup.baseline_candidate for engine, setup in self.setups.items()}

    def first_plan(self) -> LaunchPlan:
        """The first launch, from the engine's usual port on upwards."""
        setup = next(iter(self.setups.values()))
        first = usual_port(setup.definition, setup.catalogue) or _FIRST_PORT
        side_ports = tuple(range(first + 1, first + setup.port_count))
        place = Place("127.0.0.1", first, side_ports, tuple(range(self.gpus)))
        return setup.plan(setup.baseline_candidate, place)


def runs_root(study: str, attempts: list[AttemptRecord]) -> Path:
    """Folder of a study's run directories: where its earlier launches are, else `$TUNER_RUNS` or `runs/` here."""
    if attempts:
        return Path(attempts[0].run_dir).absolute().parents[1]
    return Path(os.environ.get(RUNS_VARIABLE) or "runs").absolute() / study


def prepare_start(options: StartOptions, *, elsewhere: bool = False, only_plan: bool = False) -> Prepared:
    """Read and check everything that a new study needs; nothing is written or started.

    Args:
        options: what was asked for.
        elsewhere: trials will run on other machines, so engines and GPUs need not be here.
        only_plan: nothing will be launched, so what this machine lacks is a warning and no error.

    Raises:
        StudyError: a study cannot have this name.
        SpecError: the space file is wrong.
        UserError: there is no such sampler, or it cannot do this study.
        MachineUnfit: an engine or the GPUs are missing.
    """
    if options.name is not None and (fault := study_name_fault(options.name)):
        raise StudyError(f"a study cannot be called {options.name!r}: {fault}", hint="give another --name")
    # The nodes of a cluster have lists of their own.
    deny = BUILT_IN if elsewhere else host_deny_list()
    loaded = load_space(options.space, catalogues=catalogues(), overrides=options.space_changes, deny=deny)
    space = only_engines(loaded.space, options.engines)
    refuse_sampler(options.sampler, objectives=len(space.goals))
    lacks: list[str] | None = [] if only_plan else None
    try:
        setups = setups_of(space, elsewhere=elsewhere, lacks=lacks)
    except (MachineUnfit, UserError) as error:
        error.message = _with_the_rest(error.message, options)
        raise
    now = time.time()
    record = StudyRecord(
        name=options.name or f"{loaded.space.name}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}",
        space=space,
        space_text=loaded.text,
        space_hash=space_hash(space),
        sampler=options.sampler,
        seed=options.seed,
        simulated=any(setup.definition.simulated for setup in setups.values()),
        tuner_version=__version__,
        created_at=now,
        overrides={
            **{key: str(value) for key, value in options.space_changes.items()},
            **({ENGINES: ",".join(options.engines)} if options.engines else {}),
            **({WARM_START: json.dumps(options.warm_start)} if options.warm_start else {}),
        },
    )
    prepared = prepared_of(record, setups, tuple(map(str, loaded.warnings)), elsewhere=elsewhere, lacks=lacks)
    missing = tuple(f"{_CANNOT_START}{what}" for what in dict.fromkeys(lacks or ()))
    return replace(prepared, warnings=prepared.warnings + missing)


def _with_the_rest(first: str, options: StartOptions) -> str:
    """What else this machine lacks belongs to the first thing that is missing: all of it can be mended at once."""
    try:
        told = prepare_start(options, only_plan=True).warnings
    except TunerError:
        return first
    lacks = [text.removeprefix(_CANNOT_START) for text in told if text.startswith(_CANNOT_START)]
    return "; ".join([first, *(text for text in lacks if text != first)])


def split_overrides(overrides: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Of a record's overrides: the engines that were chosen (none for all), and the values that replace the file's."""
    engines = tuple(overrides[ENGINES].split(",")) if ENGINES in overrides else ()
    return engines, {path: text for path, text in overrides.items() if path not in (ENGINES, WARM_START)}


def only_engines(space: Space, engines: tuple[str, ...]) -> Space:
    """The space with some of its engines only; all of them when none is named.

    Raises:
        UserError: for an engine that the space does not have.
    """
    if unknown := [name for name in engines if name not in space.engines]:
        raise UserError(f"the space has no engine {unknown[0]}", hint=f"it has {', '.join(space.engines)}")
    kept = {name: engine for name, engine in space.engines.items() if name in engines or not engines}
    return space.model_copy(update={"engines": kept})


def setups_of(space: Space, *, elsewhere: bool, lacks: list[str] | None = None) -> dict[str, EngineSetup]:
    """Engine → how it is launched.

    What is not here raises, or is noted in `lacks`; the engine is then planned as if elsewhere.
    """
    setups = {}
    for engine in space.engines:
        try:
            setups[engine] = engine_setup(space, engine, elsewhere=elsewhere)
        except (MachineUnfit, UserError) as error:
            if lacks is None:
                raise
            # Raises again what is no matter of this machine.
            setups[engine] = engine_setup(space, engine, elsewhere=True)
            lacks.append(error.message)
    return setups


def prepared_of(
    record: StudyRecord,
    setups: Mapping[str, EngineSetup],
    warnings: tuple[str, ...],
    *,
    elsewhere: bool,
    lacks: list[str] | None = None,
) -> Prepared:
    """The study, once this machine fits it; what does not, or a file that cannot be read, raises or goes to `lacks`."""
    real = any(not setup.definition.simulated for setup in setups.values())
    machine = machine_facts()
    gpus = record.space.hardware.gpus if real else 0
    if not gpus and wants_energy(record.space):
        raise MachineUnfit(f"{_ENERGY} is measured on GPUs, and this study uses none", hint=_ENERGY_HINT)
    # The nodes of a cluster check themselves when a trial starts there.
    if not elsewhere:
        try:
            _refuse_unfit(record.space, gpus, machine)
            refuse_unreadable(record.space)
        except (MachineUnfit, UserError) as error:
            if lacks is None:
                raise
            lacks.append(error.message)
    return Prepared(record, setups, gpus, machine, warnings, elsewhere)


def _refuse_unfit(space: Space, gpus: int, machine: MachineFacts) -> None:
    """Raise when this machine has not the GPUs that a launch needs."""
    if gpus > len(machine.gpus):
        raise MachineUnfit(
            f"the space wants {counted(gpus, 'GPU')}, this machine has {len(machine.gpus)}",
            hint="run it on such a machine, join one with --ray-address, or lower hardware.gpus in the space file",
        )
    capability = space.hardware.compute_capability
    if gpus and capability is not None and machine.gpus[0].compute_capability != capability:
        found = machine.gpus[0].compute_capability
        raise MachineUnfit(
            f"the space is for compute capability {capability}, GPU 0 has {found}",
            hint="choose the space file for this machine: tuner space list",
        )
    silent = [str(gpu.index) for gpu in machine.gpus[:gpus] if not gpu.counts_energy]
    if silent and wants_energy(space):
        raise MachineUnfit(
            f"{_ENERGY} cannot be measured: the driver tells no energy of GPU {', '.join(silent)}", hint=_ENERGY_HINT
        )


def wants_energy(space: Space) -> bool:
    """Whether an objective or a limit needs what the GPUs use."""
    return any(at.metric is Metric.OUTPUT_TOK_PER_JOULE for at in wanted_metrics(space))


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a study runs here: the Ray cluster to join (None starts Ray here), launches at a time, warm launches."""

    ray_address: str | None = None
    parallel: int = 1
    warm: bool = False


def start_study(
    prepared: Prepared,
    store: Store,
    options: RunOptions,
    *,
    storage_url: str | None,
    notify: Callable[[StudyEvent], None],
    stop: StopSwitch,
) -> StudyEnd:
    """Store a new study and run it; see `run_study`.

    One that fails before its first launch (no Ray, no such cluster) is forgotten: its name is free again.

    Raises:
        StudyError: the name is taken.
        MachineUnfit: Ray or its GPUs are not to be had.
    """
    name = prepared.record.name
    store.create_study(prepared.record)
    try:
        return run_study(prepared, store, options, storage_url=storage_url, notify=notify, stop=stop)
    except TunerError:
        # The database itself may be what failed.
        with contextlib.suppress(TunerError):
            if not store.attempts(name):
                store.delete_study(name)
                delete_search(driver_url(storage_url or default_url()), name)
        raise


def run_study(
    prepared: Prepared,
    store: Store,
    options: RunOptions,
    *,
    storage_url: str | None,
    notify: Callable[[StudyEvent], None],
    stop: StopSwitch,
    work: Callable[[Coordinator], StudyEnd] = Coordinator.run,
) -> StudyEnd:
    """Run a prepared study, new or resumed, until it ends.

    Args:
        prepared: the study.
        store: where it is stored.
        options: where its launches run.
        storage_url: of the database, as the user gave it; None for the default.
        notify: gets every event.
        stop: the user's switch.
        work: what its coordinator does: the whole study, or a confirmation or ablation alone.

    Raises:
        StudyError: another coordinator runs it.
        MachineUnfit: Ray or its GPUs are not to be had.
    """
    record, owner = prepared.record, this_process()
    store.acquire_coordinator(record.name, owner, LEASE_S)
    try:
        store.change_study(record)
        earlier = store.attempts(record.name)
        root = runs_root(record.name, earlier)
        # What an earlier coordinator left running must be gone before anything is measured.
        sweep(root)
        step = FirstStep(record.name, record.space, prepared.gpus, root / "probe", options.ray_address is not None)
        probe = probe_first(
            step,
            store,
            stop=stop,
            notify=notify,
            keep_lease=lambda: store.acquire_coordinator(record.name, owner, LEASE_S),
        )
        search = open_search(
            record.space if probe is None else with_priors(record.space, probe),
            storage_url=driver_url(storage_url or default_url()),
            study_name=record.name,
            baselines=prepared.baselines,
            seed=record.seed,
            sampler=record.sampler,
            hints=hints_for(store, prepared),
            patience=store.patiently,
        )
        if probe is not None and not earlier:
            queue_best(search, record.space, probe, prepared.setups[probe.engine].baseline.values)
        executor = RayExecutor(gpus=prepared.gpus, parallel=options.parallel, address=options.ray_address)
        try:
            means = Means(
                store=store,
                search=search,
                executor=executor,
                owner=owner,
                run_root=root,
                gpus=prepared.gpus,
                phase_limits=learned_limits,
                notify=notify,
                stop=stop,
                warm=options.warm,
            )
            return work(Coordinator(record, baselines=prepared.baselines, means=means))
        finally:
            executor.close()
    finally:
        store.release_coordinator(record.name, owner)
