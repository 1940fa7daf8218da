"""A performance model's file is refused with the key and the line when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.engines.simulated.model import check_regions
from tuner.engines.simulated.modelfile import load_model, models_dir
from tuner.errors import SpecError, UserError

SHIPPED = (models_dir() / "sm120.yaml").read_text(encoding="utf-8")


def write(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_model_is_read_by_path(tmp_path: Path) -> None:
    assert load_model(write(tmp_path, SHIPPED)) == load_model("sm120")


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("us_per_token: 18", "us_per_tokens: 18", "unknown key us_per_tokens"),
        ("us_per_token: 18, ", "", "missing key us_per_token"),
        ("us_per_token: 18", "us_per_token: fast", "'fast' is not a number"),
        ("protocol_preference: [Simple, LL, LL128]", "protocol_preference: Simple", "a list is wanted"),
        ("buffer_doubling: 0.03", "buffer_doubling: true", "True is not a number"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_its_line(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    assert right in SHIPPED
    line = SHIPPED[: SHIPPED.index(right)].count("\n") + 1
    with pytest.raises(SpecError, match=message) as caught:
        load_model(write(tmp_path, SHIPPED.replace(right, wrong, 1)))
    assert caught.value.problems[0].line == line


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("when: { attention_backend:", "when: { attention:", "no such setting: attention"),
        ("fault: hang@graph_capture", "fault: nap@graph_capture", "unknown fault 'nap'"),
    ],
)
def test_a_region_that_means_nothing_is_refused(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    assert right in SHIPPED
    with pytest.raises(UserError, match=message):
        check_regions(load_model(write(tmp_path, SHIPPED.replace(right, wrong, 1))))


def test_an_unknown_name_tells_the_known_ones() -> None:
    with pytest.raises(UserError) as caught:
        load_model("sm999")
    assert "sm120" in str(caught.value.hint)
