"""Failures of earlier studies: heard with less weight, and let off by what works here."""

from __future__ import annotations

from dataclasses import replace

from support.search_spaces import BASELINE, candidate, failed, history, lattice, scored

from tuner.domain.outcome import FailureClass
from tuner.search.failure_model import FailureModel
from tuner.search.hindsight import InformedFailureModel, failure_model
from tuner.search.history import Observation
from tuner.search.lattice import Points

LATTICE = lattice()
SECONDS = 200.0


def at(**values: object) -> Points:
    return LATTICE.encode(candidate(LATTICE._space, {**BASELINE, **values}))


def before(*observations: Observation, trust: float = 0.9) -> list[Observation]:
    return [replace(o, trial=-1, trust=trust) for o in observations]


HUNG = (
    failed(0, at(backend="flashinfer")),
    failed(0, at(backend="flashinfer", steps=3)),
    scored(0, at(), (0.0, 0.0)),
    scored(0, at(backend="fa3"), (0.0, 0.0)),
    scored(0, at(steps=3), (0.0, 0.0)),
)
HERE = history(LATTICE, [scored(0, at(), (4.0, 7.0))])
NEW = at(backend="flashinfer", steps=5)[None]


def chance(hints: list[Observation], here=HERE, points: Points = NEW) -> float:  # type: ignore[no-untyped-def]
    return float(failure_model(LATTICE, here, hints, SECONDS).assess(points).chance[0])


def test_without_earlier_failures_the_model_is_this_studys_own() -> None:
    assert type(failure_model(LATTICE, HERE, before(HUNG[2]), SECONDS)) is FailureModel
    assert type(failure_model(LATTICE, HERE, before(*HUNG), SECONDS)) is InformedFailureModel


def test_what_hung_before_is_feared_here_and_less_the_less_the_study_is_trusted() -> None:
    none, half, full = chance([]), chance(before(*HUNG, trust=0.45)), chance(before(*HUNG))
    assert none < half < full
    assert full > 0.5 > half


def test_an_earlier_hang_has_its_duration_and_its_witnesses() -> None:
    risk = failure_model(LATTICE, HERE, before(*HUNG), SECONDS).assess(NEW)
    assert risk.seconds[0] == 600.0
    assert risk.witnesses[0] == 2


def test_one_success_here_lets_a_value_off() -> None:
    here = history(LATTICE, [scored(0, at(), (4.0, 7.0)), scored(1, at(backend="flashinfer", steps=2), (4.0, 7.0))])
    assert chance(before(*HUNG), here) < 0.5 < chance(before(*HUNG))


def test_values_that_did_not_fail_before_are_not_feared_for_it() -> None:
    assert chance(before(*HUNG), points=at(backend="fa3", steps=5)[None]) < 0.2


def test_a_less_trusted_success_does_not_let_off_a_more_trusted_failure() -> None:
    trusted = before(*HUNG)
    other_version = before(scored(0, at(backend="flashinfer", steps=7), (0.0, 0.0)), trust=0.45)
    assert chance([*trusted, *other_version]) == chance(trusted)


def test_suspects_of_earlier_studies_are_named_as_such() -> None:
    model = failure_model(LATTICE, HERE, before(*HUNG), SECONDS)
    assert any("backend == flashinfer (in an earlier study)" in words for words in model.suspects(NEW[0]))


def test_own_failures_count_in_full() -> None:
    own = history(
        LATTICE,
        [
            scored(0, at(), (4.0, 7.0)),
            scored(1, at(backend="fa3"), (4.0, 7.0)),
            failed(2, at(backend="flashinfer"), FailureClass.NCCL_HANG),
            failed(3, at(backend="flashinfer", steps=3), FailureClass.NCCL_HANG),
        ],
    )
    assert chance(before(*HUNG), own) >= chance([], own)
