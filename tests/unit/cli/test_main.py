"""What the command sets up before it runs anything."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tuner import spec
from tuner.cli.main import main


@pytest.mark.parametrize(("given", "kept"), [(None, "1"), ("4", "4")])
def test_algebra_takes_one_thread_unless_the_caller_wants_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: str | None, kept: str
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", given or "")  # so that it is put back afterwards
    if given is None:
        monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    monkeypatch.setattr("sys.argv", ["tuner", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert os.environ["OPENBLAS_NUM_THREADS"] == kept
    assert capsys.readouterr().out.startswith("tuner ")


@pytest.mark.parametrize("words", [["tuner"], ["tuner", "study"]])
def test_a_group_without_a_command_answers_with_its_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith(f"Usage: {' '.join(words)} ")
    assert "see --help" not in said


def test_of_a_long_line_the_part_with_the_mistake_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    space = tmp_path / "long.yaml"
    space.write_text(
        f"{{name: x, model: {'m' * 900}, nonsense: 1, engines: {{simulated: {{}}}}, description: {'d' * 900}}}"
    )
    monkeypatch.setattr("sys.argv", ["tuner", "space", "check", str(space)])
    with pytest.raises(SystemExit):
        main()
    shown, mark = capsys.readouterr().err.splitlines()[1:3]
    assert len(shown) < 250
    assert shown[mark.index("^") :].startswith("nonsense: 1")


def test_what_is_said_of_a_secret_key_is_not_taken_for_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("name: s\nmodel: m\napi_key: geheim\nengines: {simulated: {}}\n")
    monkeypatch.setattr("sys.argv", ["tuner", "space", "check", str(file)])
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().err
    assert "api_key: unknown key" in shown
    assert "geheim" not in shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_stopped_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    monkeypatch.setattr(spec, "load_space", lambda *_, **__: signal.raise_signal(number))
    monkeypatch.setattr("sys.argv", ["tuner", "space", "check", "quickstart"])
    before = [signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGTERM, signal.SIG_DFL)]
    try:
        with pytest.raises(SystemExit) as ended:
            main()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    assert ended.value.code == 130
    assert capsys.readouterr().err.strip() == "error: stopped"
