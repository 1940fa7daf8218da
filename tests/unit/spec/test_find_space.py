"""A space is found by bare name from any folder; the user's own come before the shipped ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import SpecError
from tuner.resources import spaces_dirs
from tuner.spec import find_space, list_spaces


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TUNER_SPACES", raising=False)


@pytest.mark.parametrize("name", ["sm120", "sm120.yaml"])
def test_a_shipped_space_by_bare_name(name: str) -> None:
    assert find_space(name) == spaces_dirs()[-1] / "sm120.yaml"


def test_the_users_folder_comes_first_and_hides_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sm120.yaml").write_text("")
    (own / "mine.yml").write_text("")
    monkeypatch.setenv("TUNER_SPACES", str(own))
    assert find_space("sm120") == own / "sm120.yaml"
    assert find_space("mine") == own / "mine.yml"
    assert find_space("quickstart").parent == spaces_dirs()[-1]
    names = [path.name for path in list_spaces()]
    assert names == sorted(names)
    assert "mine.yml" in names
    assert names.count("sm120.yaml") == 1


def test_a_file_here_comes_before_everything(tmp_path: Path) -> None:
    (tmp_path / "sm120.yaml").write_text("")
    assert find_space("sm120.yaml") == Path("sm120.yaml")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x.yaml").write_text("")
    assert find_space("sub/x.yaml") == Path("sub/x.yaml")


def test_a_missing_name_has_a_suggestion_and_tells_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        find_space("sm121")
    assert str(caught.value).startswith(f"sm121: no such space file in {tmp_path} and ")
    assert "did you mean sm120?" in str(caught.value)
    with pytest.raises(SpecError, match=r"did you mean sm120\.yaml\?"):
        find_space("sm102.yaml")


@pytest.mark.parametrize("name", ["sub/gone.yaml", "/gone.yaml", "./sm120.yaml", "~/gone.yaml"])
def test_a_path_is_not_looked_for_elsewhere(name: str) -> None:
    with pytest.raises(SpecError, match="no such file"):
        find_space(name)


def test_an_empty_name_is_no_folder() -> None:
    with pytest.raises(SpecError, match="space file: the name is empty"):
        find_space("")
