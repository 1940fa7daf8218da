"""How the command lines of benchmarks end."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.command_line import end_with, load_levels
from tuner.errors import MachineUnfit

ROOT = Path(__file__).parents[3]


def test_what_the_machine_lacks_is_one_line_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    def lacking() -> None:
        raise MachineUnfit("there is no vLLM", hint="make engines")

    with pytest.raises(SystemExit) as ended:
        end_with(lacking)
    assert ended.value.code == 4
    assert capsys.readouterr().err == "error: there is no vLLM\n  → make engines\n"


def test_ctrl_c_ends_a_benchmark_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        end_with(interrupted)
    assert ended.value.code == 130
    assert capsys.readouterr().err == "stopped\n"


def test_levels_are_numbers_between_commas() -> None:
    assert load_levels("1,32") == (1, 32)


@pytest.mark.parametrize("words", ["", "abc", "1,", "0,8", "-1", "1.5"])
def test_other_levels_are_refused(words: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="whole numbers above zero"):
        load_levels(words)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["classify", "nowhere.jsonl"], 2, "there is no file nowhere.jsonl"),
        (["loadgen", "--levels", "abc"], 2, "levels are whole numbers above zero"),
        (["relaunch", "--engine", "nobody"], 1, "unknown engine 'nobody'"),
    ],
)
def test_a_slip_on_a_command_line_is_no_traceback(words: list[str], code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{words[0]}", *words[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert said in done.stderr
