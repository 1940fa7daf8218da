"""The Optuna dashboard over a study database, told the truth about limits.

Optuna 5 keeps one attribute per constraint; optuna-dashboard 0.21 still looks for the single list of earlier versions,
and its own Pareto front knows no constraints at all: a trial over a limit would be shown as feasible, or as a best one.
So trials get that list as they are read, and the list of best trials is Optuna's own, which keeps limits.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from optuna_dashboard import wsgi

from tuner.search.board_files import Shelf, Shown

_LIST_OF_CONSTRAINTS = "constraints"
_ALL_STUDIES = "/api/studies"
_ABILITIES = "/api/meta"
_ONE_STUDY = re.compile(r"/api/studies/\d+")


def dashboard_app(
    url: str,
    facts: Callable[[str], Mapping[str, str]],
    shown_name: Callable[[str], str],
    shown: Callable[[str], Shown],
) -> WSGIApplication:
    """The dashboard as a WSGI application.

    Args:
        url: SQLAlchemy URL of the database, driver and password included.
        facts: study name → what the page shows among the study's attributes (model, whether it is simulated).
        shown_name: study name → what the list of studies and the page's title call it.
        shown: study name → notes and files beside its trials.
    """
    # A server that restarted has cut the pooled connections: each is tried before it is used.
    storage, shelf = RDBStorage(url, engine_kwargs={"pool_pre_ping": True}), Shelf()
    app: WSGIApplication = wsgi(_Storage(url, engine_kwargs={"pool_pre_ping": True}))

    def study_list(environ: WSGIEnvironment) -> _Answer:
        answer = _ask(app, environ)
        for study in answer.document.get("study_summaries", ()):
            study["study_name"] = shown_name(study["study_name"])
        return answer

    def one_study(environ: WSGIEnvironment) -> _Answer:
        # Without the query (`after=N`) the answer holds every trial. Asked first: the application notes in `environ`.
        everything = _ask(app, {**environ, "QUERY_STRING": ""}).document
        answer = _ask(app, environ)
        if answer.status.startswith("200"):
            name, study = answer.document["name"], answer.document
            best = {trial.number for trial in optuna.load_study(study_name=name, storage=storage).best_trials}
            study["best_trials"] = [trial for trial in everything["trials"] if trial["number"] in best]
            study["user_attrs"] += [{"key": key, "value": value} for key, value in facts(name).items()]
            study["name"] = shown_name(name)
            beside = shown(name)
            shelf.put(name, beside, study, None)
            for trial in (*study["trials"], *study["best_trials"]):
                shelf.put(name, beside, trial, trial["number"])
        return answer

    def abilities(environ: WSGIEnvironment) -> _Answer:
        answer = _ask(app, environ)
        # Without a store of Optuna's the page would not show the files.
        answer.document["artifact_is_available"] = True
        return answer

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path, is_question = environ["PATH_INFO"], environ["REQUEST_METHOD"] == "GET"
        if (file := shelf.send(environ, start_response)) is not None:
            return file
        if is_question and path == _ALL_STUDIES:
            return study_list(environ).send(start_response)
        if is_question and path == _ABILITIES:
            return abilities(environ).send(start_response)
        if is_question and _ONE_STUDY.fullmatch(path):
            return one_study(environ).send(start_response)
        return app(environ, start_response)

    return application


@dataclass(frozen=True, slots=True)
class _Answer:
    """A JSON answer of the wrapped application; the document may be changed before it is sent on."""

    status: str
    headers: tuple[tuple[str, str], ...]
    document: dict[str, Any]

    def send(self, start_response: StartResponse) -> Iterable[bytes]:
        """Hand it to the server, with the length that it has now."""
        body = json.dumps(self.document).encode()
        headers = [(name, value) for name, value in self.headers if name.lower() != "content-length"]
        start_response(self.status, [*headers, ("Content-Length", str(len(body)))])
        return [body]


class _Storage(RDBStorage):
    """The database, with each trial's constraints as the list that the dashboard looks for."""

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        return [_with_list(trial) for trial in super().get_all_trials(study_id, deepcopy, states)]


def _with_list(trial: FrozenTrial) -> FrozenTrial:
    if not trial.constraints or _LIST_OF_CONSTRAINTS in trial.system_attrs:
        return trial
    shown = copy.copy(trial)
    shown.system_attrs = {**trial.system_attrs, _LIST_OF_CONSTRAINTS: list(trial.constraints.values())}
    return shown


def _ask(app: WSGIApplication, environ: WSGIEnvironment) -> _Answer:
    """Ask the wrapped application, and keep its answer."""
    kept: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], *_error: object) -> Any:
        kept[:] = [status, tuple(headers)]

    body = b"".join(app(environ, start_response))
    return _Answer(kept[0], kept[1], json.loads(body))
