"""From what the user asked for to a study that can start: everything is checked first, nothing is written."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuner import __version__
from tuner.domain.candidate import Candidate
from tuner.domain.denied import BUILT_IN
from tuner.domain.launch import LaunchPlan
from tuner.domain.space import Space
from tuner.domain.study import StudyRecord, study_name_fault
from tuner.engines.catalogue import catalogues, usual_port
from tuner.engines.plan import Place
from tuner.errors import StudyError, UserError
from tuner.search.samplers import refuse_sampler
from tuner.spec import load_space, space_hash
from tuner.study.lacks import Lacks, checks_of, refuse_no_gpus_for_energy
from tuner.study.options import StartOptions
from tuner.trial.assembly import EngineSetup
from tuner.trial.denyfiles import host_deny_list
from tuner.trial.machine import MachineFacts, machine_facts

_FIRST_PORT = 30_000
"""For a plan of an engine whose catalogue states no port."""


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


def prepare_start(options: StartOptions, *, elsewhere: bool = False, only_plan: bool = False) -> Prepared:
    """Read and check everything that a new study needs; nothing is written or started.

    Args:
        options: what was asked for.
        elsewhere: trials will run on other machines, so engines and GPUs need not be here.
        only_plan: nothing will be launched, so what this machine lacks is a warning and no error.

    Raises:
        StudyError: a study cannot have this name.
        SpecError: the space file is wrong.
        UserError: there is no such sampler, or it cannot do this study; or a file that it needs cannot be read.
        MachineUnfit: an engine or the GPUs are missing; the message names all that this machine lacks.
    """
    if options.name is not None and (fault := study_name_fault(options.name)):
        raise StudyError(f"a study cannot be called {options.name!r}: {fault}", hint="give another --name")
    # The nodes of a cluster have lists of their own.
    deny = BUILT_IN if elsewhere else host_deny_list()
    loaded = load_space(options.space, catalogues=catalogues(), overrides=options.space_changes, deny=deny)
    space = only_engines(loaded.space, options.engines)
    refuse_sampler(options.sampler, objectives=len(space.goals))
    now, lacks = time.time(), Lacks()
    setups = setups_of(space, lacks, elsewhere=elsewhere)
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
        overrides=options.overrides,
    )
    prepared = prepared_of(record, setups, lacks, elsewhere=elsewhere)
    if not only_plan:
        lacks.refuse()
    return replace(prepared, warnings=(*map(str, loaded.warnings), *lacks.warnings))


def only_engines(space: Space, engines: tuple[str, ...]) -> Space:
    """The space with some of its engines only; all of them when none is named.

    Raises:
        UserError: for an engine that the space does not have.
    """
    if unknown := [name for name in engines if name not in space.engines]:
        raise UserError(f"the space has no engine {unknown[0]}", hint=f"it has {', '.join(space.engines)}")
    kept = {name: engine for name, engine in space.engines.items() if name in engines or not engines}
    return space.model_copy(update={"engines": kept})


def setups_of(space: Space, lacks: Lacks, *, elsewhere: bool) -> dict[str, EngineSetup]:
    """Engine → how it is launched."""
    return {engine: lacks.setup(space, engine, elsewhere=elsewhere) for engine in space.engines}


def prepared_of(record: StudyRecord, setups: Mapping[str, EngineSetup], lacks: Lacks, *, elsewhere: bool) -> Prepared:
    """The study on this machine; what that lacks goes to `lacks`, and nothing where trials run elsewhere.

    Raises:
        MachineUnfit: energy is to be measured, and nothing uses GPUs.
    """
    real = any(not setup.definition.simulated for setup in setups.values())
    machine = machine_facts()
    gpus = record.space.hardware.gpus if real else 0
    refuse_no_gpus_for_energy(record.space, gpus)
    # The nodes of a cluster check themselves when a trial starts there.
    for check in () if elsewhere else checks_of(record.space, gpus, machine):
        lacks.note(check)
    return Prepared(record, setups, gpus, machine, elsewhere=elsewhere)
