"""The search's own notes outlast a database that goes away for a moment, like everything else that is recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from sqlalchemy.exc import OperationalError
from support import postgres
from support.search_spaces import ENGINE, candidate, space
from support.study_world import World, speed, toy_space

from tuner.domain.outcome import FailureClass
from tuner.domain.study import StudyState
from tuner.domain.trial import Outcome, TrialRequest
from tuner.errors import StorageError
from tuner.search.base import Infeasible, Scored
from tuner.search.storage import at_once
from tuner.search.study import Search, open_search
from tuner.store import Store, driver_url, open_store

SPACE = space()


def opened(url: str, patience: Any = at_once) -> Search:
    baselines = {ENGINE: candidate(SPACE)}
    return open_search(SPACE, storage_url=driver_url(url), study_name="s", baselines=baselines, patience=patience)


@pytest.fixture
def store(own_postgres: postgres.PostgresServer) -> Iterator[Store]:
    with open_store(own_postgres.url(), patience_s=60) as opened_store:
        yield opened_store


def away(server: postgres.PostgresServer, seconds: float) -> threading.Timer:
    server.stop()
    back = threading.Timer(seconds, server.start)
    back.start()
    return back


def test_asking_and_telling_wait_for_the_server(own_postgres: postgres.PostgresServer, store: Store) -> None:
    search = opened(own_postgres.url(), store.patiently)
    back = away(own_postgres, 1.5)
    first = search.ask()
    back.join()
    back = away(own_postgres, 1.5)
    search.tell(first.trial, Scored((60.0, 2000.0)))
    back.join()
    second = search.ask()
    back = away(own_postgres, 1.5)
    search.tell(second.trial, Infeasible(FailureClass.OOM_GRAPH))
    back.join()
    assert [t.state for t in search._trials()] == [TrialState.COMPLETE, TrialState.PRUNED]
    assert opened(own_postgres.url()).pending == {}


def test_a_server_that_stays_away_is_an_error_in_one_line(own_postgres: postgres.PostgresServer) -> None:
    with open_store(own_postgres.url(), patience_s=0.5) as impatient:
        search = opened(own_postgres.url(), impatient.patiently)
        own_postgres.stop()
        with pytest.raises(StorageError, match=r"^cannot reach postgresql://tuner:\*\*\*@127\.0\.0\.1"):
            search.ask()
        own_postgres.start()


def test_a_whole_study_goes_on_when_the_server_restarts_in_its_midst(
    own_postgres: postgres.PostgresServer, store: Store, tmp_path: Path
) -> None:
    restarts: list[threading.Timer] = []

    def script(request: TrialRequest) -> Outcome:
        if request.trial in (3, 5):
            restarts.append(away(own_postgres, 1.0))
        return speed(request)

    world = World(store, own_postgres.url(), tmp_path / "runs", space=toy_space(trials=8), sampler="tuner")
    end, executor = world.run(script)
    for restart in restarts:
        restart.join()
    assert len(restarts) == 2
    assert end.state is StudyState.FINISHED
    assert len(executor.requests) == 8
    told = [a.trial for a in store.attempts("toy") if a.told]
    assert sorted(told) == sorted(set(told))
    assert len(told) == 8


class CutAfterCommit:
    """A method of Optuna's storage whose connection breaks once, when its work is done but not yet acknowledged."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.real: Callable[..., Any] = getattr(RDBStorage, method)
        self.cuts = 1
        monkeypatch.setattr(RDBStorage, method, lambda *arguments, **named: self(*arguments, **named))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        result = self.real(*arguments, **named)
        if self.cuts:
            self.cuts -= 1
            lost = OperationalError("COMMIT", {}, Exception("server closed the connection unexpectedly"))
            raise StorageInternalError("An exception is raised during the commit.") from lost
        return result


@pytest.mark.parametrize("method", ["_create_new_trial", "set_trial_state_values"])
def test_what_was_stored_though_its_answer_was_lost_is_not_done_twice(
    storage_url: str, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    with open_store(storage_url, patience_s=60) as patient:
        search = opened(storage_url, patient.patiently)
        search.tell(search.ask().trial, Scored((60.0, 2000.0)))
        cut = CutAfterCommit(monkeypatch, method)
        proposal = search.ask()
        search.tell(proposal.trial, Scored((61.0, 2001.0)))
        assert cut.cuts == 0
        assert [t.state for t in search._trials()] == [TrialState.COMPLETE] * 2
        search.enqueue(candidate(SPACE), proposal.purpose)
        assert [t.state for t in search._trials()] == [TrialState.COMPLETE] * 2 + [TrialState.WAITING]
