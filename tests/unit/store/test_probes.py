"""A study's probe, stored and read again."""

from __future__ import annotations

import pytest
from support import records

from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.probe import Backend, MessageSize, ProbeFailure, ProbeReport, ProbeRun, ProbeSetting
from tuner.errors import StudyError
from tuner.store import Store, open_store

REPORT = ProbeReport(
    engine="vllm",
    backend=Backend.NCCL,
    ranks=2,
    dtype="bfloat16",
    layers=32,
    sizes=(MessageSize(8192, "decode at C=1"), MessageSize(1 << 26, "prefill of 8192 tokens", decode=False)),
    settings=(ProbeSetting(), ProbeSetting({"p2p": False, "channels": 4}, {"NCCL_MAX_NCHANNELS": "4"})),
    runs=(ProbeRun("default", 0, {8192: (11.8, 11.9), 1 << 26: (300.0,)}, 1.5),),
    failures=(ProbeFailure("p2p=off, channels=4", Failure(FailureClass.NCCL_HANG, Phase.NCCL_INIT, ("line",))),),
    own_up_to_bytes=8 << 20,
    library="2.28.9",
    started_at=1000.5,
    seconds=12.25,
)


@pytest.fixture
def store(sqlite_url: str) -> Store:
    opened = open_store(sqlite_url)
    opened.create_study(records.study())
    return opened


def test_what_was_recorded_is_what_is_read(store: Store) -> None:
    with store:
        assert store.probe("night") is None
        store.record_probe("night", REPORT)
        assert store.probe("night") == REPORT


def test_a_second_probe_takes_the_place_of_the_first(store: Store) -> None:
    with store:
        store.record_probe("night", REPORT)
        other = ProbeReport("vllm", Backend.GLOO, 2, "bfloat16", None, (), ())
        store.record_probe("night", other)
        assert store.probe("night") == other


def test_a_deleted_study_takes_its_probe_along(store: Store) -> None:
    with store:
        store.record_probe("night", REPORT)
        store.delete_study("night")
        store.create_study(records.study())
        assert store.probe("night") is None


def test_an_unknown_study_has_no_probe_to_ask_for(store: Store) -> None:
    with store, pytest.raises(StudyError, match="no study"):
        store.probe("day")
