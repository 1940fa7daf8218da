"""Paths that users name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import UserError
from tuner.resources import named_path
from tuner.spec import find_space
from tuner.trial.assembly import located_model


def test_a_tilde_is_the_home_folder_and_other_names_stay_as_they_are() -> None:
    assert named_path("~/s.yaml") == Path.home() / "s.yaml"
    assert named_path("sub/s.yaml") == Path("sub/s.yaml")


@pytest.mark.parametrize("takes_a_name", [named_path, find_space, located_model])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x" * 300, f"{'x' * 80}…: cannot be looked at: File name too long"),
        ("~nobody-of-this-name/s.yaml", "~nobody-of-this-name/s.yaml: there is no such user"),
    ],
)
def test_a_name_that_nothing_can_have_is_the_users_mistake(takes_a_name: object, name: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        takes_a_name(name)  # type: ignore[operator]
    assert caught.value.message == said
