"""Where a search's notes are kept: Optuna's tables, with as much patience for the database as our own tables have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Protocol, TypeVar

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.domain.space import Objective
from tuner.errors import StorageError, StudyError

_SQLITE_TIMEOUT_S = 60
_Result = TypeVar("_Result")

_REPEATABLE = (
    "get_study_id_from_name",
    "get_study_name_from_id",
    "get_study_directions",
    "get_study_user_attrs",
    "get_study_system_attrs",
    "get_all_studies",
    "set_study_user_attr",
    "set_study_system_attr",
    "get_trial",
    "get_trial_id_from_study_id_trial_number",
    "set_trial_user_attr",
    "set_trial_system_attr",
    "_set_trial_param",
    "_get_trials",
)
"""What Optuna's cache asks of its backend and may be asked again, since it comes to the same."""


class Patience(Protocol):
    """Calls `work` again while the database is away for a moment; raises StorageError when it stays away."""

    def __call__(self, work: Callable[[], _Result], /) -> _Result:
        """The result of `work`."""
        ...


def at_once(work: Callable[[], _Result], /) -> _Result:
    """No patience: for questions that a person asks, and asks again."""
    return work()


def storage_at(url: str | None, patience: Patience = at_once) -> BaseStorage:
    """Optuna's storage in a database; in memory without URL.

    Raises:
        StorageError: the database does not answer.
    """
    if url is None:
        return InMemoryStorage()
    # A server that restarted has cut the pooled connections: each is tried before it is used.
    is_sqlite = url.startswith("sqlite")
    arguments = {"connect_args": {"timeout": _SQLITE_TIMEOUT_S}} if is_sqlite else {"pool_pre_ping": True}
    try:
        return PatientStorage(url, patience, arguments)
    except Exception as error:  # SQLAlchemy and each driver raise their own
        raise StorageError(f"the database does not answer: {type(error).__name__}") from error


def study_in(storage: BaseStorage, name: str, sampler: BaseSampler, objectives: Sequence[Objective]) -> optuna.Study:
    """The Optuna study of this name, made where there is none.

    Raises:
        StudyError: it was made for other objectives.
    """
    directions = [StudyDirection.MAXIMIZE if goal.maximize else StudyDirection.MINIMIZE for goal in objectives]
    study = optuna.create_study(
        storage=storage, study_name=name, sampler=sampler, directions=directions, load_if_exists=True
    )
    names = [goal.label for goal in objectives]
    if study.directions != directions or study.metric_names not in (None, names):
        raise StudyError(
            f"the study {name} was made for other objectives than {', '.join(names)}", hint="give it another name"
        )
    if study.metric_names is None:
        study.set_metric_names(names)
    return study


class PatientStorage(RDBStorage):
    """Optuna's storage for one writer per study, whose calls outlast a restart of the database server.

    A transaction whose connection breaks during the commit may have been stored. Most calls can simply be made again;
    those that make a trial or end one look first whether that was done.
    """

    def __init__(self, url: str, patience: Patience, engine_kwargs: dict[str, Any]) -> None:
        super().__init__(url, engine_kwargs=engine_kwargs)
        self._patience = patience
        self._newest: dict[int, int] = {}  # study → newest trial that was seen; all trials are read once only

    def _create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> FrozenTrial:
        newest = self._newest.get(study_id, -1)
        newest = max((t._trial_id for t in self._get_trials(study_id, None, set(), newest)), default=newest)

        def work() -> FrozenTrial:
            made = RDBStorage._get_trials(self, study_id, None, set(), newest)
            return made[-1] if made else RDBStorage._create_new_trial(self, study_id, template_trial)

        trial = self._patience(work)
        self._newest[study_id] = trial._trial_id
        # Optuna itself tries again, too, and does not look.
        for twin in self._get_trials(study_id, None, set(), newest):
            if twin._trial_id != trial._trial_id:
                self.set_trial_state_values(twin._trial_id, TrialState.FAIL)
        return trial

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """See `optuna.storages.BaseStorage.set_trial_state_values`."""
        tried = False

        def work() -> bool:
            nonlocal tried
            if tried and RDBStorage.get_trial(self, trial_id).state is state:
                return True
            tried = True
            return RDBStorage.set_trial_state_values(self, trial_id, state, values)

        return self._patience(work)


def _patient(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: PatientStorage, *arguments: Any, **named: Any) -> Any:
        return self._patience(lambda: method(self, *arguments, **named))

    return call


for _name in _REPEATABLE:
    setattr(PatientStorage, _name, _patient(getattr(RDBStorage, _name)))
