"""Commands where the surroundings are poor: no home folder, a log that cannot be written, another encoding."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest
import typer

from tuner.cli.logs import configure_logging
from tuner.cli.options import duration_s
from tuner.cli.output import print_json


@pytest.fixture
def logging_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", True)
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.WARNING)


@pytest.mark.usefixtures("logging_as_before")
def test_a_user_without_a_home_folder_has_no_log_and_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    for name in ("TUNER_LOG", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    configure_logging()
    assert isinstance(logging.root.handlers[0], logging.NullHandler)


@pytest.mark.usefixtures("logging_as_before")
def test_a_log_that_cannot_be_written_prints_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNER_LOG", str(tmp_path))  # a folder
    configure_logging()
    logging.getLogger("anything").error("lost")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_whole_in_every_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding=encoding, write_through=True))
    print_json({"name": "é → 🚀"})
    assert json.loads(raw.getvalue().decode(encoding)) == {"name": "é → 🚀"}


@pytest.mark.parametrize("text", ["0", "-1", "1w", "", "nan", "inf", "9" * 400 + "d"])
def test_what_is_no_sensible_duration_is_a_wrong_option(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        duration_s(text)
