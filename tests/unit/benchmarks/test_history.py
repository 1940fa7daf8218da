"""The made-up studies of the benchmark of long histories are studies that the commands take."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.history import command_cost, store_study
from tuner.domain.measurement import Measured
from tuner.store import open_store


def test_a_made_up_study_has_as_many_launches_as_asked_and_a_real_ones_measurements(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tuner.db"
    store_study(url, 5)
    with open_store(url, create=False) as store:
        attempts = store.attempts("s")
        assert store.tally("s").trials == len(attempts) == 5
    assert all(attempt.told for attempt in attempts)
    first = attempts[0].report
    assert first is not None
    assert isinstance(first.outcome, Measured)
    assert sum(len(level.measurements) for level in first.outcome.levels) == 45


@pytest.mark.slow  # real processes
def test_a_command_costs_time_and_memory(tmp_path: Path) -> None:
    store_study(f"sqlite:///{tmp_path}/tuner.db", 1)
    seconds, mib = command_cost(tmp_path, "list")
    assert seconds > 0
    assert 20 < mib < 1000


@pytest.mark.slow  # the same
def test_a_command_that_fails_has_no_cost(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="tuner study status s ended with 1"):
        command_cost(tmp_path, "status s")
