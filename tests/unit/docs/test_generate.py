"""The generated pages of the documentation are current."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tuner.domain.outcome import FAILURES

ROOT = Path(__file__).parents[3]


def test_generated_pages_are_current(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert found is not None
    assert found.loader is not None
    generate = importlib.util.module_from_spec(found)
    found.loader.exec_module(generate)
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
