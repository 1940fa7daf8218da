"""What a row of an ablation says became of its setting."""

from __future__ import annotations

import pytest

from tuner.domain.candidate import Candidate
from tuner.domain.proof import AblationKind, AblationRow, Effect, Finding

WINNER = Candidate("vllm", {"steps": 4})


def row(*effects: Effect, kept: bool = False, note: str = "") -> AblationRow:
    without = Candidate("vllm", {"steps": 1})
    return AblationRow("steps", {"steps": (1, 4)}, AblationKind.LEAVE_ONE_OUT, without, WINNER, effects, kept, note)


def effect(finding: Finding, smallest: float) -> Effect:
    return Effect("throughput", 0.001, -0.01, 0.01, 3, 0.5, smallest, finding)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (row(effect(Finding.FASTER, 0.01), kept=True), "kept"),
        (row(kept=True, note="cannot be left out alone: …"), "kept: cannot be left out alone: …"),
        (row(note="inactive: steps: nothing reads it"), "dropped: inactive: steps: nothing reads it"),
        (row(effect(Finding.NO_DIFFERENCE, 0.015)), "dropped: no measurable effect"),
        (
            row(effect(Finding.NO_DIFFERENCE, 0.015), effect(Finding.NOISE, 0.5)),
            "dropped: nothing shown, but noise hides less than 50.0% in throughput",
        ),
        (row(effect(Finding.SLOWER, 0.01), effect(Finding.NOISE, 0.5)), "dropped: throughput worse with it"),
        (row(Effect("throughput", None)), "not measured yet"),
    ],
)
def test_a_setting_is_kept_or_dropped_with_the_reason(found: AblationRow, words: str) -> None:
    assert found.words == words
