"""The generated pages of the documentation are current."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest
from pydantic import BaseModel

from tuner.domain.measurement import Metric
from tuner.domain.outcome import FAILURES
from tuner.domain.space import Space

ROOT = Path(__file__).parents[3]


def program(name: str) -> ModuleType:
    """A module of the folder `docs`, which is no package."""
    found = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_generated_pages_are_current(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    generate = program("generate")
    monkeypatch.setattr("sys.argv", ["generate.py", "--check"])
    assert generate.main() == 0, capsys.readouterr().err


def test_the_page_on_failures_has_a_section_for_every_class() -> None:
    page = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    for failure_class, policy in FAILURES.items():
        assert f"\n### {failure_class.value}\n" in page
        assert policy.words[1:] in page


def test_every_command_says_what_it_does_and_describes_every_option() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    sections = page.split("\n## ")[1:]
    assert len(sections) > 20
    for section in sections:
        title, _, text = section.partition("\n")
        usage, _, rest = text.partition("\n\n")
        assert "Usage: tuner" in usage, title
        assert rest.strip().splitlines()[0].strip(), f"{title} has no description"


class Described(BaseModel):
    """Two words.

    Attributes:
        levels: what is measured,
            in this order.
        kind: how.
    """

    levels: tuple[int, ...] = (1, 8)
    kind: Literal["closed", "open"]


def test_a_key_is_told_with_its_default_its_meaning_and_its_choices() -> None:
    assert list(program("space_page").rows(Described)) == [
        "| `levels` | [1, 8] | what is measured, in this order. |",
        "| `kind` | required | how. (`closed`, `open`) |",
    ]


def test_a_key_without_words_is_refused() -> None:
    class Silent(Described):
        seed: int = 0

    with pytest.raises(ValueError, match="Silent does not describe seed"):
        list(program("space_page").rows(Silent))


def test_words_without_a_key_are_refused() -> None:
    class Wordy(Described):
        """More words.

        Attributes:
            gone: what it once was.
        """

    with pytest.raises(ValueError, match="Wordy describes what is no key: gone"):
        list(program("space_page").rows(Wordy))


def test_the_page_on_space_files_names_every_metric() -> None:
    page = (ROOT / "docs" / "space.md").read_text(encoding="utf-8")
    assert [metric for metric in Metric if f"\n| `{metric.value}` | {metric.unit} |" not in page] == []


def test_the_page_on_space_files_has_every_part_of_one() -> None:
    sections = program("space_page").SECTIONS.values()
    told = {model.__name__ for models in sections for model in models}
    assert told == {"Space", *Space.model_json_schema()["$defs"]} - {"Metric"}
