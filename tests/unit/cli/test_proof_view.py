"""What a confirmation says beside its table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import Run, runner, store_night


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs commands where the confirmed study `night` is stored."""
    store_night(tmp_path)
    return runner(tmp_path, monkeypatch, capsys)


def test_the_change_that_would_have_shown_is_told_of_each_objective(tuner: Run) -> None:
    command = ("study", "confirm", "night", "--dry-run")
    arms = json.loads(tuner(*command, "--json").out)["arms"]
    single, loaded = (effect for arm in arms for effect in arm["effects"])
    assert single["smallest"] != loaded["smallest"]
    shown = f"{single['smallest'] * 100:.1f} % in single_stream and {loaded['smallest'] * 100:.1f} % in throughput"
    assert f"a change of {shown} would have shown (80 % power)" in tuner(*command).out
