"""What a study may be called: its name becomes a folder and an argument."""

from __future__ import annotations

import pytest

from tuner.domain.study import study_name_fault


@pytest.mark.parametrize("name", ["night", "sm120-20260101-120000", "two words", "été", "🚀", "a.b_c-d", "it's"])
def test_any_printable_name_is_good(name: str) -> None:
    assert study_name_fault(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a ",
        "../x",
        "/etc/x",
        "..",
        ".",
        ".hidden",
        "-x",
        "--json",
        "a/b",
        "a\\b",
        "a\nb",
        "a\0b",
        "\x1b[2J",
        "é" * 61,
    ],
)
def test_a_name_that_leaves_its_folder_or_looks_like_something_else_is_refused(name: str) -> None:
    assert study_name_fault(name) is not None
