"""`tuner doctor` shows what the operator of this host denies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.study.doctor import State, examine
from tuner.trial import denyfiles


@pytest.fixture
def deny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only deny file of this host."""
    monkeypatch.setattr(denyfiles, "SYSTEM_FILE", tmp_path / "deny.yaml")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TUNER_DENY", raising=False)
    return tmp_path / "deny.yaml"


def test_without_files_it_names_those_that_it_looked_for(deny: Path, sqlite_url: str) -> None:
    (check,) = [check for check in examine(sqlite_url) if check.name == "denied on this host"]
    assert check.state is State.OK
    assert check.found == f"nothing more (no entries in {deny} and {deny.parent}/config/tuner/deny.yaml)"


def test_the_doctor_shows_what_a_host_denies_and_where_that_stands(deny: Path, sqlite_url: str) -> None:
    deny.write_text(
        "env:\n  A: {keep: 1, reason: peer access hangs}\nflags: {vllm: {--enforce-eager: {reason: slow}}}\n"
    )
    (check,) = [check for check in examine(sqlite_url) if check.name == "denied on this host"]
    assert check.state is State.OK
    assert f"A kept at 1: peer access hangs ({deny}:2:3)" in check.found
    assert f"vllm --enforce-eager denied: slow ({deny}:3:16)" in check.found


def test_the_doctor_fails_where_a_file_is_wrong(deny: Path, sqlite_url: str) -> None:
    deny.write_text("env: [A]\n")
    (check,) = [check for check in examine(sqlite_url) if check.name == "denied on this host"]
    assert check.state is State.FAIL
    assert f"{deny}:1:6 env" in check.found


@pytest.mark.parametrize(
    ("file", "state", "said"),
    [
        ("{folder}/new.db", State.OK, "/new.db (will be made)"),
        ("{folder}/none/new.db", State.FAIL, "/none/new.db cannot be made: its folder is missing or not writable"),
        ("{folder}/" + "x" * 300, State.FAIL, "x: the folder is missing or not writable"),
    ],
)
def test_a_database_that_is_not_there_yet_must_have_a_place(tmp_path: Path, file: str, state: State, said: str) -> None:
    (check,) = [check for check in examine(f"sqlite:///{file.format(folder=tmp_path)}") if check.name == "storage"]
    assert check.state is state
    assert check.found.endswith(said)


def test_room_is_looked_for_where_the_files_of_launches_will_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sqlite_url: str
) -> None:
    monkeypatch.setenv("TUNER_RUNS", str(tmp_path / "not" / "yet"))
    (check,) = [check for check in examine(sqlite_url) if check.name == "disk"]
    assert check.found.endswith(f"GiB free in {tmp_path}")


def test_an_engine_that_is_missing_is_named_once(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (check,) = [check for check in examine(sqlite_url) if check.name == "engine vllm"]
    assert (check.state, check.found) == (State.WARN, "not installed: vllm was not found")
