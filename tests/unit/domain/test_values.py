"""Values and counts as people read them."""

from __future__ import annotations

import pytest

from tuner.domain.values import counted


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "launch", "1 launch"),
        (2, "launch", "2 launches"),
        (0, "study", "0 studies"),
        (1, "study", "1 study"),
        (3, "key", "3 keys"),
        (1432, "combination", "1,432 combinations"),
        (1.0, "hour", "1 hour"),
        (0.5, "GPU-hour", "0.5 GPU-hours"),
    ],
)
def test_a_count_agrees_with_its_noun(number: float, noun: str, text: str) -> None:
    assert counted(number, noun) == text
