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
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from optuna_dashboard import wsgi

_LIST_OF_CONSTRAINTS = "constraints"
_ONE_STUDY = re.compile(r"/api/studies/\d+")


def dashboard_app(url: str, facts: Callable[[str], Mapping[str, str]]) -> WSGIApplication:
    """The dashboard as a WSGI application.

    Args:
        url: SQLAlchemy URL of the database, driver and password included.
        facts: study name → what the page shows among the study's attributes (model, whether it is simulated).
    """
    storage = RDBStorage(url)
    app: WSGIApplication = wsgi(_Storage(url))

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "GET" or not _ONE_STUDY.fullmatch(environ["PATH_INFO"]):
            return app(environ, start_response)
        # Without the query (`after=N`) the answer holds every trial. Asked first: the application notes in `environ`.
        _, _, everything = _answer(app, {**environ, "QUERY_STRING": ""})
        status, headers, body = _answer(app, environ)
        if status.startswith("200"):
            study = json.loads(body)
            best = {trial.number for trial in optuna.load_study(study_name=study["name"], storage=storage).best_trials}
            study["best_trials"] = [trial for trial in json.loads(everything)["trials"] if trial["number"] in best]
            study["user_attrs"] += [{"key": key, "value": value} for key, value in facts(study["name"]).items()]
            body = json.dumps(study).encode()
            headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
            headers.append(("Content-Length", str(len(body))))
        start_response(status, headers)
        return [body]

    return application


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


def _answer(app: WSGIApplication, environ: WSGIEnvironment) -> tuple[str, list[tuple[str, str]], bytes]:
    """Ask the wrapped application, and keep its answer."""
    kept: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], *_error: object) -> Any:
        kept[:] = [status, headers]

    body = b"".join(app(environ, start_response))
    return kept[0], kept[1], body
