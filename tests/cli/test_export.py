"""`tuner export` from the outside."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from support import records
from support.commands import Run, runner, store_night

from tuner.domain.study import StudyRecord
from tuner.domain.trial import Purpose
from tuner.store import open_store


@pytest.fixture
def tuner(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in the study's folder."""
    return runner(folder, monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose `tuner.db` holds a study: a baseline, a faster trial, a failed one."""
    study: StudyRecord = records.study()
    reports = [records.measured_report(60.0, 2000.0), records.measured_report(90.0, 2320.0), records.failed_report()]
    with open_store(f"sqlite:///{tmp_path}/tuner.db") as store:
        store.create_study(study)
        for trial, report in enumerate(reports):
            attempt = store.open_attempt(
                "night",
                trial=trial,
                attempt=1,
                purpose=Purpose.SEARCH if trial else Purpose.BASELINE,
                candidate=records.candidate(decode_steps=trial + 1),
                run_dir=str(tmp_path / "runs" / "night" / str(trial) / "1"),
                owner="box:1:2:3",
                ttl=30,
            )
            store.finish_attempt(attempt.id, report)
        store.create_study(records.study("empty"))
    return tmp_path


def test_without_file_the_script_goes_to_stdout(tuner: Run) -> None:
    done = tuner("export", "night")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("#!/usr/bin/env bash\n")
    assert "study          night, trial 1 " in done.out


def test_a_written_script_is_executable_and_remembered(tuner: Run, folder: Path) -> None:
    done = tuner("export", "night", "-o", "serve.sh", "--json")
    assert done.code == 0, done.err
    script = folder / "serve.sh"
    digest = hashlib.sha256(script.read_bytes()).hexdigest()
    assert json.loads(done.out) == {
        "study": "night",
        "trial": 1,
        "format": "sh",
        "path": "serve.sh",
        "sha256": digest,
        "simulated": True,
    }
    assert os.access(script, os.X_OK)
    with open_store(f"sqlite:///{folder}/tuner.db") as store:
        (export,) = store.exports("night")
    assert (export.trial, export.path, export.sha256) == (1, str(script), digest)


@pytest.mark.parametrize(("pick", "warned"), [("knee", True), ("baseline", False)])
def test_what_was_not_confirmed_is_written_with_a_word_about_it(tuner: Run, pick: str, warned: bool) -> None:
    done = tuner("export", "night", "--pick", pick, "-o", "serve.sh")
    assert done.code == 0
    assert ("trial 1 is not confirmed: the best of a search is partly lucky" in done.err) is warned
    assert ("`tuner study confirm night`" in done.err) is warned


def test_what_was_confirmed_is_written_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store_night(tmp_path)
    done = runner(tmp_path, monkeypatch, capsys)("export", "night", "-o", "serve.sh")
    assert done.code == 0
    assert "# changed " in (tmp_path / "serve.sh").read_text(), "the baseline would need no confirmation"
    assert "not confirmed" not in done.err


@pytest.mark.parametrize("form", ["md", "csv"])
def test_a_written_table_is_one_document_of_no_single_trial(tuner: Run, folder: Path, form: str) -> None:
    done = tuner("export", "night", "--format", form, "-o", f"front.{form}", "--json")
    assert (done.code, done.err) == (0, "")
    digest = hashlib.sha256((folder / f"front.{form}").read_bytes()).hexdigest()
    assert json.loads(done.out) == {
        "study": "night",
        "trial": None,
        "format": form,
        "path": f"front.{form}",
        "sha256": digest,
        "simulated": True,
    }


@pytest.mark.parametrize(
    ("pick", "trial"), [("single-stream", 1), ("throughput", 1), ("knee", 1), ("baseline", 0), ("0", 0)]
)
def test_the_pick_decides_which_trial(tuner: Run, pick: str, trial: int) -> None:
    document = json.loads(tuner("export", "night", "--pick", pick, "--format", "json").out)
    assert document["trial"] == trial
    assert [result["gain"] is None for result in document["results"]] == [trial == 0] * 2


@pytest.mark.parametrize(
    ("form", "start"), [("compose", "# Serves"), ("systemd", "# Starts"), ("md", "| place"), ("csv", "place,")]
)
def test_every_format_is_printed(tuner: Run, form: str, start: str) -> None:
    done = tuner("export", "night", "--format", form)
    assert done.code == 0, done.err
    assert done.out.startswith(start)
    assert "simulated" in done.out


def test_the_storage_can_come_from_the_environment(
    tuner: Run, folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert tuner("export", "night").code == 1
    monkeypatch.setenv("TUNER_STORAGE", f"sqlite:///{folder}/tuner.db")
    assert tuner("export", "night").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["export", "day"], 1, "there is no study day"),
        (["export", "empty"], 3, "no configuration was measured that keeps every limit"),
        (["export", "night", "--pick", "best"], 1, "no such pick: best"),
        (["export", "night", "--pick", "best"], 1, "choose confirmed, single-stream, throughput, knee, baseline or"),
        (["study", "ablate", "night", "--trial", "2", "--dry-run"], 1, "trial 2 of night was not measured"),
        (["export", "night", "--pick", "2"], 1, "trial 2 has no measurement"),
        (["export", "night", "--format", "exe"], 2, "no such format: exe"),
        (["export", "night", "--json"], 2, "say which with -o"),
        (["export", "night", "-o", "no/such/folder/x.sh"], 1, "cannot write no/such/folder/x.sh: No such file"),
        (["export", "night", "--storage", "sqlite:///none.db"], 1, "there is no database sqlite:///none.db"),
    ],
)
def test_bad_requests_are_one_clear_line(tuner: Run, arguments: list[str], code: int, message: str) -> None:
    done = tuner(*arguments)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("error: ")
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_failed_write_is_not_remembered(tuner: Run, folder: Path) -> None:
    tuner("export", "night", "-o", "no/such/folder/x.sh")
    with open_store(f"sqlite:///{folder}/tuner.db") as store:
        assert store.exports("night") == []


def test_a_confirmed_configuration_is_exported_from_a_launch_that_was_measured(tuner: Run, folder: Path) -> None:
    with open_store(f"sqlite:///{folder}/tuner.db") as store:
        for trial, report in ((3, records.failed_report()), (4, records.measured_report(60.0, 2000.0))):
            attempt = store.open_attempt(
                "night",
                trial=trial,
                attempt=1,
                purpose=Purpose.CONFIRM,
                candidate=records.candidate(decode_steps=1),
                run_dir=str(folder / "runs" / "night" / str(trial) / "1"),
                owner="box:1:2:3",
                ttl=30,
                block=trial,
            )
            store.finish_attempt(attempt.id, report)
    done = tuner("export", "night")
    assert (done.code, done.err) == (0, "")
    assert "study          night, trial " in done.out
