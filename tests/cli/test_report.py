"""`tuner study report` and `tuner study front` from the outside: every format, from a database to a file."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from pathlib import Path

import pandas as pd
import pytest
from support.commands import Run, runner, store_night

from tuner.store import Store


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in a folder whose `tuner.db` holds a confirmed study."""
    store_night(tmp_path)
    return runner(tmp_path, monkeypatch, capsys)


def test_without_options_a_page_is_written_beside(tuner: Run, tmp_path: Path) -> None:
    done = tuner("study", "report", "night")
    assert (done.code, done.out) == (0, "")
    assert "night-report.html" in done.err
    page = (tmp_path / "night-report.html").read_text()
    assert "SIMULATED" in page
    assert "interleaved rounds: single_stream faster" in page


def test_the_files_name_tells_the_format(tuner: Run, tmp_path: Path) -> None:
    assert tuner("study", "report", "night", "-o", "r.md").code == 0
    assert (tmp_path / "r.md").read_text().startswith("# night\n")
    assert tuner("study", "report", "night", "-o", "r.parquet").code == 0
    assert len(pd.read_parquet(tmp_path / "r.parquet")) == 11 * 3 * 4


def test_text_formats_go_to_stdout(tuner: Run) -> None:
    document = json.loads(tuner("study", "report", "night", "--format", "json").out)
    assert document["headlines"][0]["change"].startswith("+41")
    rows = list(csv.DictReader(io.StringIO(tuner("study", "report", "night", "--format", "csv").out)))
    assert {row["metric"] for row in rows} == {"output_tok_s", "ttft_p99_ms", "ttft_p50_ms", "tpot_p50_ms"}


def test_json_describes_what_was_written(tuner: Run) -> None:
    document = json.loads(tuner("study", "report", "night", "-o", "r.html", "--json").out)
    assert document == {"study": "night", "format": "html", "path": "r.html", "simulated": True}


OF_WHAT_DECIDES = (
    "study front night",
    "study front night --json",
    "study report night --format md",
    "study trials night",
    "study trials night --json",
    "study failures night --json",
    "study confirm night --dry-run --json",
    "study ablate night --dry-run --json",
    "export night",
    "export night --format csv",
)
"""Commands that look at objectives and limits alone, or at little more."""


@pytest.mark.parametrize("command", OF_WHAT_DECIDES)
def test_what_is_not_read_of_a_study_would_change_no_word(
    tuner: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    told = tuner(*command.split())
    assert (told.code, bool(told.out)) == (0, True)
    read = Store.attempts
    monkeypatch.setattr(Store, "attempts", lambda store, study, metrics=None, **only: read(store, study, **only))
    assert tuner(*command.split()).out == told.out


@pytest.mark.parametrize("command", OF_WHAT_DECIDES)
def test_measurements_that_decide_nothing_are_not_read(tuner: Run, tmp_path: Path, command: str) -> None:
    with sqlite3.connect(tmp_path / "tuner.db") as database:
        database.execute("UPDATE tuner_measurement SET metric = 'unreadable' WHERE metric = 'ttft_p50_ms'")
    assert tuner(*command.split()).code == 0
    assert "is damaged: 'unreadable'" in tuner("study", "show", "night", "2").err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["report", "night", "--format", "pdf"], 2, "no such format"),
        (["report", "nobody"], 1, "nobody"),
        (["report", "night", "-o", "missing/r.html"], 1, "cannot write"),
    ],
)
def test_bad_requests_are_one_clear_line(tuner: Run, arguments: list[str], code: int, message: str) -> None:
    done = tuner("study", *arguments)
    assert (done.code, message in done.err) == (code, True)


def test_the_front_is_drawn_and_warned_of(tuner: Run) -> None:
    text = tuner("study", "front", "night").out
    assert "● front  ◆ baseline" in text
    assert "warning: a setting had no effect on the running server" in text
    codes = {warning["code"] for warning in json.loads(tuner("study", "front", "night", "--json").out)["warnings"]}
    assert {"inactive_knob", "outliers", "too_few_launches"} <= codes
