"""`tuner dashboard` from the outside: what the browser gets, and what nobody must see."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import optuna_dashboard
import pytest
from support import postgres, records

from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.trial import Purpose
from tuner.store import driver_url, open_store

COMMAND = [sys.executable, "-m", "tuner.cli.main", "dashboard"]


@pytest.fixture
def url(storage_url: str) -> str:
    """A database with a study as the search leaves it: named objectives, a metric, a trial over its limit."""
    with open_store(storage_url) as store:
        store.create_study(records.study())
    storage = optuna.storages.RDBStorage(driver_url(storage_url))
    study = optuna.create_study(study_name="night", storage=storage, directions=["maximize", "maximize"])
    with warnings.catch_warnings(category=optuna.exceptions.ExperimentalWarning, action="ignore"):
        study.set_metric_names(["single_stream", "throughput"])
    for values, excess in (((60.0, 2000.0), -0.1), ((90.0, 2300.0), 0.3), ((70.0, 2100.0), 0.0)):
        trial = study.ask()
        trial.set_constraint("launch", 0.0)
        trial.set_constraint("ttft_p99_ms@128 max", excess)
        trial.set_user_attr("ttft_p99_ms@128", 41.5)
        study.tell(trial, values)
    storage.engine.dispose()
    return storage_url


@contextmanager
def dashboard(*arguments: str, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The running command, and the address that it printed."""
    with subprocess.Popen([*COMMAND, *arguments], cwd=cwd, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            address = re.search(r"http://\S+/", line)
            assert address, line + process.stderr.read()
            yield process, address[0]
        finally:
            process.kill()


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def test_a_trial_over_a_limit_is_shown_as_such_and_is_never_best(url: str, tmp_path: Path) -> None:
    with dashboard("--storage", url, "--port", "0", cwd=tmp_path) as (_process, address):
        whole, news = ask(f"{address}api/studies/1"), ask(f"{address}api/studies/1?after=2")
    shown = [{trial["number"]: trial["constraints"] for trial in study["trials"]} for study in (whole, news)]
    assert shown == [{0: [0.0, -0.1], 1: [0.0, 0.3], 2: [0.0, 0.0]}, {2: [0.0, 0.0]}]
    assert [[trial["number"] for trial in study["best_trials"]] for study in (whole, news)] == [[2], [2]]


def test_objectives_metrics_and_the_studys_nature_are_shown(url: str, tmp_path: Path) -> None:
    with dashboard("--storage", url, "--port", "0", cwd=tmp_path) as (_process, address):
        study = ask(f"{address}api/studies/1")
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(f"{address}api/studies/99")
        assert caught.value.code == 404
    assert study["objective_names"] == ["single_stream", "throughput"]
    assert {"key": "ttft_p99_ms@128", "sortable": True} in study["union_user_attrs"]
    attributes = {item["key"]: item["value"] for item in study["user_attrs"]}
    assert attributes["simulated"].startswith("yes")
    assert attributes["model"] == "/models/tiny"


def test_notes_logs_and_the_report_stand_beside_the_trials(url: str, tmp_path: Path) -> None:
    failure = Failure(FailureClass.OOM_WEIGHTS, Phase.WEIGHTS, ("out of `memory`",), detail="weights do not fit")
    with open_store(url) as store:
        for trial, changes in enumerate(({"notes": ("launch: plain",)}, {"outcome": failure})):
            run_dir = tmp_path / f"trial-{trial}"
            run_dir.mkdir()
            (run_dir / "server.log").write_text(f"log of trial {trial}\n", encoding="utf-8")
            attempt = store.open_attempt(
                "night",
                trial=trial,
                attempt=1,
                purpose=Purpose.SEARCH,
                candidate=records.candidate(),
                run_dir=str(run_dir),
                owner="box:1:2:3",
                ttl=30,
            )
            # The launch script that the record names is gone: it is not offered.
            store.finish_attempt(attempt.id, records.measured_report(**changes))
    with dashboard("--storage", url, "--port", "0", cwd=tmp_path) as (_process, address):
        assert ask(f"{address}api/meta")["artifact_is_available"] is True
        study = ask(f"{address}api/studies/1")
        first, second, third = study["trials"]
        (log,) = second["artifacts"]
        with urllib.request.urlopen(f"{address}artifacts/1/{second['trial_id']}/{log['artifact_id']}") as answer:
            text, kind = answer.read().decode(), answer.headers["Content-Type"]
        (report,) = study["artifacts"]
        with urllib.request.urlopen(f"{address}artifacts/1/{report['artifact_id']}", timeout=60) as answer:
            page = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{address}artifacts/1/{'0' * 8}")
    assert (log["filename"], text, kind) == ("launch 1: server.log", "log of trial 1\n", "text/plain; charset=utf-8")
    assert "launch: plain" in first["note"]["body"]
    assert "nccl_proto did not act: custom all-reduce is on" in first["note"]["body"]
    assert "weights do not fit\n- `out of 'memory'`" in second["note"]["body"]
    assert (third["note"]["body"], third["artifacts"]) == ("", [])
    assert report["filename"] == "report.html"
    assert "night" in page
    assert page.startswith("<!doctype html>")


def test_a_note_that_somebody_wrote_in_the_dashboard_stays(url: str, tmp_path: Path) -> None:
    storage = optuna.storages.RDBStorage(driver_url(url))
    optuna_dashboard.save_note(optuna.load_study(study_name="night", storage=storage), "my own words")
    storage.engine.dispose()
    with dashboard("--storage", url, "--port", "0", cwd=tmp_path) as (_process, address):
        assert ask(f"{address}api/studies/1")["note"]["body"] == "my own words"


def test_a_simulated_study_says_so_in_the_list_and_in_its_title(url: str, tmp_path: Path) -> None:
    storage = optuna.storages.RDBStorage(driver_url(url))
    optuna.create_study(study_name="measured", storage=storage, direction="maximize")
    optuna.create_study(study_name="not tuner's", storage=storage, direction="maximize")
    storage.engine.dispose()
    with open_store(url) as store:
        store.create_study(replace(records.study("measured"), simulated=False))
    with dashboard("--storage", url, "--port", "0", cwd=tmp_path) as (_process, address):
        listed = ask(f"{address}api/studies")["study_summaries"]
        titles = [ask(f"{address}api/studies/{study['study_id']}")["name"] for study in listed]
    assert titles == [study["study_name"] for study in listed]
    assert set(titles) == {"night (simulated)", "measured", "not tuner's"}


def test_the_password_is_nowhere_to_be_seen(postgres_url: str, tmp_path: Path) -> None:
    with open_store(postgres_url) as store:
        store.create_study(records.study())
    command = [*COMMAND, "--port", "0"]
    env = os.environ | {"TUNER_STORAGE": postgres_url}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        lines = [Path(f"/proc/{pid}/cmdline").read_text() for pid in [str(process.pid), *children]]
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(30) == 0
    assert line.startswith("dashboard of postgresql://tuner:***@127.0.0.1:")
    assert postgres.PASSWORD not in line + rest + "".join(lines)
    assert rest.endswith("dashboard ended\n")


def test_a_port_in_use_is_one_clear_line(sqlite_url: str, tmp_path: Path) -> None:
    open_store(sqlite_url).close()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [*COMMAND, "--storage", sqlite_url, "--port", str(port)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    message = f"cannot listen on 127.0.0.1:{port}: Address already in use"
    assert done.stderr == f"error: {message}\n  → give another --port or --host\n"


def test_listening_for_other_machines_is_warned_about(sqlite_url: str, tmp_path: Path) -> None:
    open_store(sqlite_url).close()
    command = [*COMMAND, "--storage", sqlite_url, "--port", "0", "--host", "0.0.0.0"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("warning: 0.0.0.0 can be reached from other machines")
        process.kill()


def test_an_empty_address_does_not_mean_all_of_them(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "--host", ""], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --host is empty\n")


def test_a_missing_database_is_not_made(tmp_path: Path) -> None:
    done = subprocess.run(COMMAND, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: there is no database sqlite:///tuner.db\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_while_the_database_is_away_page_and_terminal_say_so_in_a_line_and_then_it_goes_on(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "tuner.db", tmp_path / "away.db"
    with open_store(f"sqlite:///{file}") as store:
        store.create_study(records.study())
    optuna.create_study(study_name="night", storage=f"sqlite:///{file}", directions=["maximize", "maximize"])
    arguments = ("--port", "0", "--storage", f"sqlite:///{file}")
    with dashboard(*arguments, cwd=tmp_path) as (process, address):
        assert ask(f"{address}api/studies")["study_summaries"]
        file.rename(elsewhere)
        file.write_bytes(b"no database" * 1000)
        for page in ("api/studies", "api/studies/1"):
            with pytest.raises(urllib.error.HTTPError, match="503") as away:
                ask(f"{address}{page}")
            assert f"sqlite:///{file} cannot be read now" in away.value.read().decode()
        file.unlink()
        elsewhere.rename(file)
        assert ask(f"{address}api/studies")["study_summaries"]
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        said = process.stderr.read()
    assert said.count("error:") == 1, said
    assert "Traceback" not in said
