"""docs/report.md says what the code does."""

from __future__ import annotations

from pathlib import Path

from tuner.domain.output import OutputCheck
from tuner.domain.warnings import WarningCode

TEXT = (Path(__file__).parents[3] / "docs" / "report.md").read_text(encoding="utf-8")


def test_every_warning_stands_there_in_the_programs_own_words() -> None:
    for code in WarningCode:
        assert f"| `{code.value}` | {code.meaning} | {code.advice} |" in TEXT


def test_the_defaults_of_the_output_check_are_the_programs() -> None:
    check = OutputCheck()
    for name in ("prompts", "tokens", "agreement", "logprob_drift"):
        assert f"      {name}: {getattr(check, name)}" in TEXT
    assert set(OutputCheck.model_fields) == {"enabled", "prompts", "tokens", "agreement", "logprob_drift", "questions"}
