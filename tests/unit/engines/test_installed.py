"""Is an engine here, and which version? Its own interpreter is asked, and what it does not say is no answer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tuner.engines import installed
from tuner.engines.definition import load_definition
from tuner.engines.installed import find_engine
from tuner.errors import MachineUnfit


def test_a_program_that_is_not_there_says_what_to_do() -> None:
    with pytest.raises(MachineUnfit, match="not installed") as caught:
        find_engine(load_definition("vllm"), ("no-such-program", "serve"))
    assert "engines.vllm.command: [/PATH/TO/no-such-program, serve]" in str(caught.value.hint)


def test_an_interpreter_without_the_engine_is_not_an_installation() -> None:
    with pytest.raises(MachineUnfit, match="not installed in the environment") as caught:
        find_engine(load_definition("sglang"), (sys.executable, "-m", "sglang.launch_server"))
    python = Path(sys.executable).name
    assert f"engines.sglang.command: [/PATH/TO/{python}, -m, sglang.launch_server]" in str(caught.value.hint)


def test_the_simulated_engine_runs_on_this_interpreter() -> None:
    found = find_engine(load_definition("simulated"))
    assert found.program[0] == sys.executable
    assert found.version == "1"


@pytest.mark.parametrize(
    ("script", "timeout_s", "said"),
    [
        ("echo gone: libpython >&2; exit 3", 60.0, "gone: libpython"),
        ("exit 3", 60.0, "it ended with 3"),
        ("echo hello", 60.0, "its answer is no JSON"),
        ("exec sleep 60", 0.2, "no answer within 0 s"),
    ],
)
def test_an_interpreter_that_does_not_answer_says_nothing_about_the_engine_and_is_asked_again(
    script: str, timeout_s: float, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("vllm", "python"):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    command = (str(tmp_path / "vllm"), "serve")
    monkeypatch.setattr(installed, "_TIMEOUT_S", timeout_s)
    with pytest.raises(MachineUnfit) as caught:
        find_engine(load_definition("vllm"), command)
    monkeypatch.undo()
    assert caught.value.message.endswith(f"does not say which packages are installed beside it: {said}")
    (tmp_path / "python").write_text('#!/bin/sh\necho \'{"vllm": "0.33.0"}\'\n')
    assert find_engine(load_definition("vllm"), command).version == "0.33.0"
