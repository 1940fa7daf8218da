"""Numbers as people read them."""

from __future__ import annotations

import pytest

from tuner.cli.wording import estimated
from tuner.domain.front import Estimate
from tuner.export.report_proof import estimate


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (Estimate(90.0), "90.0"),
        (Estimate(90.0, 89.8, 90.3), "90.0 ±0.3"),
        (Estimate(898.0, 292.5, 2756.0), "898.0 [292.5, 2,756]"),
    ],
)
def test_an_estimate_has_half_its_interval_or_both_ends_of_a_wide_one(value: Estimate | None, text: str) -> None:
    assert estimated(value) == text


def test_the_report_writes_wide_intervals_with_both_ends_too() -> None:
    assert estimate(Estimate(898.0, 292.5, 2756.0)) == "898.0 [292.5, 2,756]"
    assert estimate(Estimate(898.0, 890.0, 910.0)) == "898.0 ±12.0"
