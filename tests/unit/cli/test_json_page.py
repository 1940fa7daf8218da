"""Every `--json` document is an object whose keys docs/json.md lists, all of them and no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import findings
from support.commands import runner, store_night
from support.jsonpage import PAGE, differences, read_page

from tuner.cli import proof_view

Documents = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose database holds the study `night`."""
    folder = tmp_path_factory.mktemp("night")
    store_night(folder)
    (folder / "server.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    return folder


@pytest.fixture
def document(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Documents:
    """Run a command in this process, and read what it printed."""
    tuner = runner(folder, monkeypatch, capsys)
    return lambda *arguments: json.loads(tuner(*arguments, "--json").out)


@pytest.mark.parametrize(
    ("command", "section"),
    [
        ("space check sm120", "tuner space check"),
        ("space check nowhere", "tuner space check"),
        ("space show quickstart", "tuner space show"),
        ("space list", "tuner space list"),
        ("engine list", "tuner engine list"),
        ("engine explain server.log --engine vllm", "tuner engine explain"),
        ("study list", "tuner study list"),
        ("study status night", "tuner study status"),
        ("study trials night", "tuner study trials"),
        ("study show night", "tuner study show NAME"),
        ("study show night 2", "tuner study show NAME TRIAL"),
        ("study failures night", "tuner study failures"),
        ("study front night", "tuner study front"),
        ("study confirm night --dry-run", "tuner study confirm"),
        ("study report night -o night.md", "tuner study report"),
        ("export night -o serve.sh", "tuner export"),
        ("study start --space quickstart --dry-run", "tuner study start --dry-run"),
    ],
)
def test_a_document_has_the_keys_that_are_documented(document: Documents, command: str, section: str) -> None:
    page = read_page()
    found = document(*command.split())
    assert isinstance(found, dict)
    assert list(differences(page, page[section], found)) == []


def test_an_ablation_has_the_keys_that_are_documented() -> None:
    page = read_page()
    for found in (findings.ablation(), None):
        made = proof_view.ablation_document(findings.findings().study, found)
        assert list(differences(page, page["tuner study ablate"], made)) == []


def test_every_command_with_json_has_its_section() -> None:
    cli = (PAGE.parent / "cli.md").read_text(encoding="utf-8").split("\n## ")[1:]
    with_json = {section.partition("\n")[0] for section in cli if "--json" in section}
    sections = " ".join(read_page())
    assert [name for name in sorted(with_json) if name not in sections] == []


def test_a_missing_or_an_extra_key_would_be_seen(document: Documents) -> None:
    page = read_page()
    status = document("study", "status", "night")
    del status["seed"]
    assert list(differences(page, page["tuner study status"], status | {"more": 1})) == [
        ".more is not documented",
        ".seed is not there",
    ]
