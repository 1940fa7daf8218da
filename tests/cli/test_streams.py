"""Output that nobody reads or that cannot be written, and a terminal that goes away in the middle of a study."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tuner.domain.study import AttemptState, StudyState
from tuner.store import open_store

TUNER = [sys.executable, "-m", "tuner.cli.main"]
PATIENCE_S = 120.0
SPACE = """
name: tiny
model: sim/kimi
engines: {simulated: {flags: {--time-scale: 60}}}
knobs: {decode_steps: {int: {low: 1, high: 60}, flag: --num-continuous-decode-steps, default: 1}}
workload: {input_tokens: 64, output_tokens: 32, levels: [1, 4], repeats: 1, single_stream_min_requests: 2,
           single_stream_max_requests: 3, warmup_requests: 2}
budget: {trials: 3, baseline_launches: 1, confirm_launches: 0}
"""
START = ["study", "start", "--space", "tiny.yaml", "--name", "s", "--yes"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(SPACE)
    return tmp_path


def shell(script: str) -> subprocess.CompletedProcess[str]:
    command = " ".join(TUNER)
    return subprocess.run(
        ["bash", "-c", f"tuner() {{ {command} \"$@\"; }}\n{script}"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip


def states() -> list[AttemptState]:
    with open_store("sqlite:///tuner.db", create=False) as store:
        return [attempt.state for attempt in store.attempts("s")]


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_study_goes_on_when_nobody_reads_its_progress_any_more() -> None:
    done = shell(f"tuner {' '.join(START)} 2>&1 | while read -r line; do [[ $line == *baseline* ]] && exit; done")
    assert done.stderr == ""
    assert states() == [AttemptState.MEASURED] * 3


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_closed_terminal_ends_a_study_after_its_running_trial() -> None:
    number, terminal = pty.fork()
    if number == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have been started with nohup
        os.execv(TUNER[0], [*TUNER, *START])
    threading.Thread(target=drain, args=(terminal,), daemon=True).start()
    deadline = time.monotonic() + PATIENCE_S
    while not list(Path("runs").glob("s/trial-0000/attempt-1/launch.json")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    # As the kernel does it; closing the other end is left to the reader of it.
    os.killpg(number, signal.SIGHUP)
    os.killpg(number, signal.SIGHUP)
    _, status = os.waitpid(number, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    with open_store("sqlite:///tuner.db", create=False) as store:
        assert store.study("s").state is StudyState.STOPPED
    assert states() == [AttemptState.MEASURED]


def drain(terminal: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(terminal, 65536):
            pass


@pytest.mark.parametrize("reader", ["head -1", "true"])
def test_a_reader_that_has_enough_is_no_error(reader: str) -> None:
    done = shell(f"tuner space schema | {reader}; echo ${{PIPESTATUS[0]}} >&2")
    assert done.stderr == "0\n"


@pytest.mark.parametrize("command", ["space schema", "space list --json", "engine list", "--help"])
def test_an_answer_that_cannot_be_written_is_one_line(command: str) -> None:
    done = shell(f"tuner {command} > /dev/full")
    assert done.returncode == 4
    assert "error: nothing more can be written: [Errno 28] No space left on device" in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_program_started_without_output_works(closed: str) -> None:
    assert shell(f"tuner space list {closed}").returncode == 0


def test_an_error_that_nobody_sees_keeps_its_exit_code() -> None:
    assert shell("tuner study nonsense 2> /dev/full").returncode == 2


def test_ctrl_c_before_a_command_has_begun_says_so_without_a_traceback() -> None:
    command = [sys.executable, "-X", "importtime", *TUNER[1:], "--version"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as starting:
        assert starting.stderr is not None
        next(line for line in starting.stderr if line.split()[-1] == "typer")  # most is still to be imported
        starting.send_signal(signal.SIGINT)
        said = starting.stderr.read()
    assert [line for line in said.splitlines() if not line.startswith("import time:")] == ["error: stopped"]
    assert starting.returncode == 130
