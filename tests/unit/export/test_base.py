"""Which numbers an export carries."""

from __future__ import annotations

import pytest
from support import findings

from tuner.export.base import Export, export_of


def exported(candidate_trial: int, *, confirmed: bool) -> Export:
    found = findings.findings()
    confirmation = findings.confirmation() if confirmed else None
    return export_of(found.study, found.attempts, str(candidate_trial), confirmation)


def test_a_confirmed_configuration_is_exported_with_the_confirmation_s_numbers_alone() -> None:
    single, loaded = exported(7, confirmed=True).numbers
    assert (single.estimate.center, single.estimate.launches, single.confirmed) == (90.0, 3, True)
    assert single.gain is not None
    assert (single.gain.ratio, single.gain.low, single.gain.high) == pytest.approx((1.415, 1.405, 1.425))
    assert str(single).endswith("n=3 launches of the confirmation, +41.5 % against the baseline")
    assert loaded.estimate.center == 2322.0


def test_without_a_confirmation_all_launches_count_and_the_export_claims_no_more() -> None:
    single, _ = exported(7, confirmed=False).numbers
    assert (single.estimate.launches, single.confirmed) == (4, False)
    assert "of the confirmation" not in str(single)


def test_a_configuration_that_took_no_part_keeps_its_own_numbers() -> None:
    single, _ = exported(2, confirmed=True).numbers
    assert (single.estimate.center, single.confirmed) == (pytest.approx(90.4), False)


def test_the_baseline_claims_no_gain_over_itself() -> None:
    single, _ = exported(6, confirmed=True).numbers
    assert (single.estimate.center, single.gain, single.confirmed) == (63.6, None, True)
