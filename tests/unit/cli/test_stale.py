"""Exported files that a later confirmation has overtaken are named, with what to run."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support import findings, records
from support.commands import Run, runner, store_night

from tuner.cli.verify import _overtaken
from tuner.domain.candidate import Candidate
from tuner.domain.trial import Purpose, TrialReport
from tuner.store import Store, open_store


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs commands where the confirmed study `night` is stored."""
    store_night(tmp_path)
    return runner(tmp_path, monkeypatch, capsys)


def launch(store: Store, trial: int, candidate: Candidate, purpose: Purpose, speed: float, block: int | None) -> None:
    time.sleep(0.002)  # times tell what was known when a file was written
    attempt = store.open_attempt(
        "night",
        trial=trial,
        attempt=1,
        purpose=purpose,
        candidate=candidate,
        run_dir="",
        owner="box",
        ttl=30,
        block=block,
    )
    report = findings.attempts()[5].report
    assert report is not None
    store.finish_attempt(attempt.id, _at(report, speed))


def _at(report: TrialReport, speed: float) -> TrialReport:
    levels = (records.level(1, speed, 0.1), records.level(32, speed * 4), records.level(128, speed * 26))
    return replace(report, outcome=replace(records.measured_report().outcome, levels=levels))  # type: ignore[arg-type]


def confirm_another(folder: Path) -> None:
    """The search goes on and finds something better, which is confirmed."""
    better = Candidate("simulated", {"nccl_proto": "LL", "decode_steps": 8, "trace_dir": None})
    with open_store(f"sqlite:///{folder}/tuner.db") as store:
        launch(store, 12, better, Purpose.SEARCH, 120.0, None)
        for block in (4, 5, 6):
            launch(store, 5 + 2 * block, findings.BASE, Purpose.CONFIRM, 63.5 + block / 10, block)
            launch(store, 6 + 2 * block, better, Purpose.CONFIRM, 120.0 + block / 10, block)


def stale(tuner: Run) -> list[tuple[str, int, int]]:
    found = json.loads(tuner("study", "status", "night", "--json").out)["stale_exports"]
    return [(Path(one["path"]).name, one["trial"], one["best"]) for one in found]


def test_a_script_of_the_best_configuration_is_stale_once_another_is_confirmed(tuner: Run, tmp_path: Path) -> None:
    tuner("export", "night", "-o", "serve.sh")
    tuner("export", "night", "--format", "json", "-o", "night.json")
    tuner("export", "night", "--pick", "3", "-o", "other.sh")
    assert stale(tuner) == []
    confirm_another(tmp_path)
    assert stale(tuner) == [("serve.sh", 5, 12), ("night.json", 5, 12)], "another pick never was the best one"
    said = tuner("study", "status", "night").err
    assert f"{tmp_path}/serve.sh (trial 5) is no longer the best configuration of night: trial 12 is" in said
    assert f"`tuner export night --format json -o {tmp_path}/night.json`" in said
    assert "no longer the best" in tuner("study", "confirm", "night", "--dry-run").err
    document = json.loads(tuner("study", "confirm", "night", "--dry-run", "--json").out)
    assert [one["best"] for one in document["stale_exports"]] == [12, 12]


def test_what_is_exported_again_or_gone_is_not_stale(tuner: Run, tmp_path: Path) -> None:
    tuner("export", "night", "-o", "serve.sh")
    tuner("export", "night", "-o", "gone.sh")
    confirm_another(tmp_path)
    tuner("export", "night", "-o", "serve.sh")
    (tmp_path / "gone.sh").unlink()
    assert stale(tuner) == []


def test_verify_knows_a_stale_script_by_what_is_in_it(tuner: Run, tmp_path: Path) -> None:
    tuner("export", "night", "-o", "serve.sh")
    script, url = (tmp_path / "serve.sh").rename(tmp_path / "moved.sh"), f"sqlite:///{tmp_path}/tuner.db"
    assert _overtaken(script, url) is None
    confirm_another(tmp_path)
    found = _overtaken(script, url)
    assert found is not None
    assert found.best == 12
    assert _overtaken(script, f"sqlite:///{tmp_path}/none.db") is None
    script.write_text("# not ours\n")
    assert _overtaken(script, url) is None
