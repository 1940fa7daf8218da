"""The probe as a command and as the first step of a study, where no ranks are started."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import records

from tuner.domain.probe import Backend, ProbeReport
from tuner.domain.space import Space
from tuner.errors import MachineUnfit, UsageError, UserError
from tuner.store import open_store
from tuner.study.events import Noted, StudyEvent
from tuner.study.probing import FirstStep, ProbeOptions, probe_first, probe_host
from tuner.study.stopping import StopSwitch

REPORT = ProbeReport("vllm", Backend.GLOO, 2, "bfloat16", 2, (), ())


def first(
    url: str, folder: Path, *, probe: bool = True, elsewhere: bool = False, stored: ProbeReport | None = None
) -> tuple[ProbeReport | None, list[StudyEvent]]:
    space = records.space().model_copy(update={"probe": probe})
    events: list[StudyEvent] = []
    with open_store(url) as store:
        store.create_study(records.study())
        if stored is not None:
            store.record_probe("night", stored)
        step = FirstStep("night", space, 0, folder, elsewhere)
        found = probe_first(step, store, stop=StopSwitch(), notify=events.append, keep_lease=lambda: None)
    return found, events


def test_a_study_without_the_wish_has_no_probe(sqlite_url: str, tmp_path: Path) -> None:
    assert first(sqlite_url, tmp_path, probe=False) == (None, [])


def test_a_probe_that_is_stored_is_not_made_again(sqlite_url: str, tmp_path: Path) -> None:
    assert first(sqlite_url, tmp_path, stored=REPORT) == (REPORT, [])


def test_trials_on_other_machines_are_not_probed_here(sqlite_url: str, tmp_path: Path) -> None:
    found, events = first(sqlite_url, tmp_path, elsewhere=True)
    assert found is None
    assert [type(event) for event in events] == [Noted]


def test_a_simulated_engine_has_no_ranks_to_probe(sqlite_url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="real engine"):
        first(sqlite_url, tmp_path)


def test_without_space_and_model_nobody_knows_the_messages() -> None:
    with pytest.raises(UsageError, match="know the model"):
        probe_host(ProbeOptions(), lambda line: None)


def test_an_unknown_engine_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown engine"):
        probe_host(ProbeOptions(model=str(tmp_path), engine="absent"), lambda line: None)


def test_an_engine_that_is_not_installed_makes_the_machine_unfit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineUnfit, match="not installed"):
        probe_host(ProbeOptions(model=str(tmp_path), engine="vllm"), lambda line: None)


def test_a_space_may_ask_for_a_probe_and_its_hash_stays() -> None:
    from tuner.spec import space_hash

    asked = Space.model_validate({"name": "s", "model": "m", "engines": {"vllm": {}}, "probe": "on"})
    assert asked.probe
    assert space_hash(asked) == space_hash(asked.model_copy(update={"probe": False}))
