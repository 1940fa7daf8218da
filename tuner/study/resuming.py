"""Going on with a stored study: what may change, what may not, and what is said about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from tuner.domain.faults import fault_of
from tuner.domain.space import Budget, Space
from tuner.domain.study import StudyRecord
from tuner.engines.catalogue import catalogues
from tuner.errors import Problem, SpecError, StudyError
from tuner.search.samplers import refuse_sampler
from tuner.spec import load_space, space_differences, space_hash
from tuner.spec.findings import COMMAND_LINE
from tuner.store import Store
from tuner.study.identity import refuse_other_machine
from tuner.study.lacks import Lacks
from tuner.study.options import BudgetOptions, split_overrides
from tuner.study.preparing import Prepared, only_engines, prepared_of, setups_of
from tuner.trial.machine import model_config_hash
from tuner.yamlfile import dotted

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ResumeOptions:
    """What `tuner study resume` was asked for; None leaves what the study has.

    Attributes:
        space: space file that the user believes the study to have; only its budget may have changed.
        budget: parts of the budget that replace the stored ones.
        sampler: search method from now on.
    """

    space: str | None = None
    budget: BudgetOptions = field(default_factory=BudgetOptions)
    sampler: str | None = None


def prepare_resume(
    store: Store,
    name: str,
    options: ResumeOptions | None = None,
    *,
    elsewhere: bool = False,
    other_machine: bool = False,
) -> Prepared:
    """Check that a stored study can go on here.

    Args:
        store: where it is stored; nothing is written.
        name: of the study.
        options: what is to be different from now on.
        elsewhere: trials will run on other machines.
        other_machine: go on although this is not the machine of the launches so far.

    Raises:
        StorageError: the database is damaged.
        StudyError: no such study, or its space changed.
        SpecError: the space file or the new budget is wrong.
        UserError: the new sampler does not exist, or cannot do this study.
        MachineUnfit: an engine or the GPUs are missing (all that this machine lacks), or this is another machine.
    """
    store.refuse_damaged()
    stored = store.study(name)
    if space_hash(stored.space) != stored.space_hash:
        raise StudyError(
            f"the stored space of study {name} is not the one that tuner {stored.tuner_version} started it with",
            hint="it was changed in the database, or this version reads it differently: start a new study",
        )
    record = _changed(stored, options or ResumeOptions())
    lacks = Lacks()
    prepared = prepared_of(record, setups_of(record.space, lacks, elsewhere=elsewhere), lacks, elsewhere=elsewhere)
    lacks.refuse()
    # A simulated engine's numbers come from a model, whatever the machine.
    if not (elsewhere or other_machine or record.simulated):
        refuse_other_machine(store.attempts(name), _facts_here(prepared), _versions_here(prepared))
    return replace(prepared, changes=tuple(_told(stored, record)))


def _facts_here(prepared: Prepared) -> dict[str, str]:
    """What tells this machine from another before anything is launched, the model's configuration included."""
    facts = prepared.machine.summary()
    # The model of the setups: in a checkout a folder may be found from elsewhere.
    model = next(iter(prepared.setups.values())).space.model
    if (digest := model_config_hash(model)) is not None:
        facts["model_config"] = digest
    return facts


def _versions_here(prepared: Prepared) -> dict[str, dict[str, str]]:
    """Engine → versions of itself, where it says, and of the packages beside it."""
    found = {}
    for engine, setup in prepared.setups.items():
        own = {} if setup.installed.version is None else {engine: setup.installed.version}
        found[engine] = {**own, **setup.installed.packages}
    return found


def _changed(stored: StudyRecord, options: ResumeOptions) -> StudyRecord:
    """The record from now on: budget as in the file given and on the command line, which is kept for later resumes."""
    sampler = options.sampler or stored.sampler
    refuse_sampler(sampler, objectives=len(stored.space.goals))
    changes = options.budget.changes
    budget = stored.space.budget if options.space is None else _given_space(stored, options.space).budget
    values = {path.removeprefix("budget."): value for path, value in changes.items()}
    space = stored.space.model_copy(update={"budget": _budget({**budget.model_dump(), **values})})
    overrides = {**stored.overrides, **{path: str(value) for path, value in changes.items()}}
    return replace(stored, space=space, sampler=sampler, overrides=overrides)


def _budget(values: dict[str, Any]) -> Budget:
    """The budget of a file and the command line.

    Raises:
        SpecError: what the command line says of it is wrong; a file's own was checked.
    """
    try:
        return Budget.model_validate(values)
    except ValidationError as error:
        faults = [fault_of(dict(item), values, Budget) for item in error.errors()]
        problems = [Problem(COMMAND_LINE, 0, 0, dotted(("budget", *f.path)), f.message, hint=f.hint) for f in faults]
        raise SpecError(problems) from error


def _given_space(stored: StudyRecord, file: str) -> Space:
    """The space of a file under the study's command-line values.

    Raises:
        StudyError: more than its budget differs from the study's.
    """
    engines, paths = split_overrides(stored.overrides)
    given = only_engines(load_space(file, catalogues=catalogues(), overrides=paths).space, engines)
    differences = space_differences(stored.space, given)
    if differences:
        more = [f"{len(differences) - _SHOWN} more"] if len(differences) > _SHOWN else []
        told = "; ".join([*differences[:_SHOWN], *more])
        raise StudyError(
            f"{file} is not the space that study {stored.name} was started with: {told}",
            hint="a study compares like with like: resume without --space, or start a new study "
            f"(`tuner study start --space {file} --warm-start {stored.name}` lets this one teach it)",
        )
    return given


def _told(old: StudyRecord, new: StudyRecord) -> list[str]:
    """What is different from now on, and what becomes of the rest."""
    before, after = old.space.budget.model_dump(), new.space.budget.model_dump()
    told = [
        f"budget.{name}: {_value(before[name])} → {_value(after[name])}"
        for name in before
        if before[name] != after[name]
    ]
    if old.sampler != new.sampler:
        told.append(f"sampler: {old.sampler} → {new.sampler}; what the launches so far showed stays")
    return told


def _value(value: object) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
