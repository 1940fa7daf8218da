"""What a report says of the launch as a whole."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
from support import trials

from tuner.domain.outcome import Failure


def test_a_clock_that_is_set_meanwhile_makes_no_launch_a_day_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = itertools.count(1_000_000.0, 86_400.0)
    monkeypatch.setattr(time, "time", lambda: next(days))
    report = trials.run(tmp_path, engines={"simulated": {"command": ["/nowhere/server"]}})
    assert isinstance(report.outcome, Failure)
    assert 0 <= report.finished_at - report.started_at < 3_600
