"""`tuner study` from the outside: real processes, real Ray, real (simulated) servers, killed in every way."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from support.commands import TUNER, Run, environment, runner, tuner
from support.ports import free_port
from support.postgres import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PATIENCE_S = 280.0
UNREACHABLE = "postgresql://u:hunter2@127.0.0.1:1/x"
SPACE = """\
name: tiny
model: org/model
engines:
  simulated:
    flags: {--flavor: sglang, --time-scale: 25}
knobs:
  nccl_proto: {values: [unset, LL, LL128, Simple], env: NCCL_PROTO}
  decode_steps: {int: {low: 1, high: 8, log: true}, flag: --num-continuous-decode-steps, default: 1}
workload: {input_tokens: 64, output_tokens: 16, levels: [1, 4], repeats: 1, single_stream_max_requests: 6}
budget: {trials: 5, baseline_launches: 2, launch_timeout_s: 90}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "tiny.yaml").write_text(SPACE, encoding="utf-8")
    yield tmp_path
    left = servers(tmp_path)
    for process in left:
        process.kill()
    assert not left, "a server outlived its test"


def begin(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a command in a session of its own."""
    return subprocess.Popen(
        [*TUNER, *arguments],
        cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def servers(folder: Path) -> list[psutil.Process]:
    """Simulated servers that run in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if "tuner.engines.simulated" in process.cmdline() and process.cwd().startswith(str(folder)):
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_for(what: str, condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s for {what}"
        time.sleep(0.1)


def trials(folder: Path, name: str) -> list[dict[str, Any]]:
    return list(json.loads(tuner(folder, "study", "trials", name, "--json").stdout)["trials"])


def measured_in(folder: Path) -> int:
    """Finished launches, read past tuner so that a dead coordinator can be looked at."""
    if not (folder / "tuner.db").exists():
        return 0
    with sqlite3.connect(f"file:{folder}/tuner.db?mode=ro", uri=True, timeout=5) as database:
        try:
            return int(database.execute("select count(*) from tuner_attempt where state = 'measured'").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


def red_line(text: str) -> str:
    """The one line that says what is wrong; never a traceback."""
    assert "Traceback" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("error: ")]
    return line


def test_a_study_runs_to_its_front_and_its_exported_script_serves_the_measured_configuration(folder: Path) -> None:
    done = tuner(folder, "study", "start", "--space", "tiny.yaml", "--name", "night", "--yes", "--json")
    document = json.loads(done.stdout)
    assert document["simulated"] is True
    assert document["state"] == "finished"
    assert [goal["label"] for goal in document["objectives"]] == ["single_stream", "throughput"]
    assert document["baseline"]["objectives"]["single_stream"]["launches"] == 2
    assert len(trials(folder, "night")) == 5

    pick = document["front"][0]
    script = folder / "best.sh"
    tuner(folder, "export", "night", "--pick", str(pick["trials"][0]), "-o", str(script))
    shown = json.loads(tuner(folder, "study", "show", "night", str(pick["trials"][0]), "--json").stdout)
    measured = json.loads(Path(shown["run_dir"], shown["artifacts"]["server_info"]).read_text())
    port = free_port()
    server = subprocess.Popen(
        ["bash", str(script)], cwd=folder, env=environment(folder) | {"PORT": str(port)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        running: dict[str, Any] = {}

        def answers() -> bool:
            try:
                running.update(httpx.get(f"http://127.0.0.1:{port}/server_info", trust_env=False).json())
            except httpx.HTTPError:
                return False
            return True

        wait_for("the exported server", answers)
        text = httpx.post(
            f"http://127.0.0.1:{port}/v1/completions",
            json={"model": "org/model", "prompt": "The", "max_tokens": 4},
            trust_env=False,
            timeout=30,
        ).json()
        assert text["usage"]["completion_tokens"] == 4
    finally:
        server.terminate()
        server.wait(30)
    changing = {"uptime_s", "pid", "launch_seed", "started_at"}
    assert {k: v for k, v in running.items() if k not in changing} == {
        k: v for k, v in measured.items() if k not in changing
    }


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs commands that launch nothing in this process."""
    return runner(folder, monkeypatch, capsys)


def test_everything_that_prints_data_prints_one_json_document(folder: Path, here: Run) -> None:
    tuner(folder, "study", "start", "--space", "tiny.yaml", "--name", "night", "--trials", "3", "--yes")
    for command in (
        ["list"],
        ["status", "night"],
        ["trials", "night"],
        ["show", "night"],
        ["show", "night", "0"],
        ["failures", "night"],
        ["front", "night"],
        ["importance", "night"],
        ["explain", "night", "2"],
    ):
        assert json.loads(here("study", *command, "--json").out)
        assert here("study", *command).out.strip()
    assert "simulated" in here("study", "front", "night").out
    again = here("study", "start", "--space", "tiny.yaml", "--name", "night")
    assert again.code == 1
    assert "there is a study night already" in red_line(again.err)
    assert "launches" not in again.err  # said before the plan is shown
    (folder / "tiny.yaml").write_text(SPACE.replace("high: 8", "high: 16"), encoding="utf-8")
    assert "not the space" in red_line(here("study", "resume", "night", "--space", "tiny.yaml").err)
    here("study", "delete", "night", "--yes")
    assert json.loads(here("study", "list", "--json").out) == {"studies": []}


def test_a_killed_coordinator_leaves_no_server_and_resume_finishes_with_every_trial_once(folder: Path) -> None:
    study = begin(folder, "study", "start", "--space", "tiny.yaml", "--name", "night", "--yes")
    wait_for("two finished trials", lambda: measured_in(folder) >= 2)
    wait_for("a running server", lambda: servers(folder))
    os.kill(study.pid, signal.SIGKILL)
    study.communicate()
    wait_for("the servers to end by themselves", lambda: not servers(folder))
    before = measured_in(folder)
    tuner(folder, "study", "resume", "night")
    rows = trials(folder, "night")
    assert len(rows) == 5
    assert len({row["trial"] for row in rows}) == 5
    assert all(row["state"] == "measured" for row in rows)
    assert measured_in(folder) == 5 >= before


def test_ctrl_c_or_sigterm_once_finishes_the_running_trial_and_twice_tears_it_down(folder: Path) -> None:
    study = begin(folder, "study", "start", "--space", "tiny.yaml", "--name", "night", "--yes")
    wait_for("a running server", lambda: servers(folder))
    os.kill(study.pid, signal.SIGTERM)
    assert study.wait(PATIENCE_S) == 130
    rows = trials(folder, "night")
    assert [row["state"] for row in rows] == ["measured"]

    study = begin(folder, "study", "resume", "night")
    wait_for("a running server", lambda: servers(folder))
    os.kill(study.pid, signal.SIGINT)
    time.sleep(0.2)
    os.kill(study.pid, signal.SIGINT)
    assert study.wait(PATIENCE_S) == 130
    assert not servers(folder)
    tuner(folder, "study", "resume", "night")
    assert [row["state"] for row in trials(folder, "night")] == ["measured"] * 5


CTRL_C_AFTER_THE_END = """
from tuner.study import session

start = session.start_study

def start_study(*given, stop, **named):
    end = start(*given, stop=stop, **named)
    stop.press()
    return end

session.start_study = start_study
from tuner.cli.main import main
main()
"""


def test_ctrl_c_when_the_study_is_over_stops_nothing(folder: Path) -> None:
    arguments = ["study", "start", "--space", "tiny.yaml", "--name", "night", "--yes", "--trials", "1"]
    done = subprocess.run(
        [sys.executable, "-c", CTRL_C_AFTER_THE_END, *arguments],
        cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (done.returncode, "stopped" in done.stderr) == (0, False), done.stderr


def test_a_stop_from_another_terminal_ends_the_study_after_its_trial(folder: Path) -> None:
    study = begin(folder, "study", "start", "--space", "tiny.yaml", "--name", "night", "--yes")
    wait_for("a running server", lambda: servers(folder))
    assert "is being run by" in red_line(tuner(folder, "study", "resume", "night", code=1).stderr)
    tuner(folder, "study", "stop", "night")
    study.wait(PATIENCE_S)
    status = json.loads(tuner(folder, "study", "status", "night", "--json").stdout)
    assert status["state"] == "stopped"
    assert status["coordinator"] is None
    assert status["measured"] < 5


def test_a_real_postgresql_holds_a_study_as_well_and_what_waits_for_it_says_so_at_once(
    folder: Path, own_postgres: PostgresServer
) -> None:
    storage = own_postgres.url()
    study = begin(folder, "study", "start", "--space", "tiny.yaml", "--name", "night", "--trials", "3", "--yes",
                  "--storage", storage)  # fmt: skip
    assert study.stderr is not None
    wait_for("a running server", lambda: servers(folder))
    own_postgres.stop()
    away = time.monotonic()
    said = next(line for line in study.stderr if "does not answer" in line)
    assert time.monotonic() - away < 10
    assert re.fullmatch(
        r"the database does not answer since [\d:]+, waiting for it until [\d:]+: cannot reach .*\n", said
    )
    own_postgres.start()
    assert "the database answers again, after" in study.communicate(timeout=PATIENCE_S)[1]
    assert study.returncode == 0
    rows = json.loads(tuner(folder, "study", "trials", "night", "--json", "--storage", storage).stdout)["trials"]
    assert [row["state"] for row in rows] == ["measured"] * 3
    events = [json.loads(line)["event"] for line in (folder / "tuner.log").read_text().splitlines()]
    assert events.count("database_away") == events.count("database_back") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["start", "--space", "missing.yaml"], 1, "missing.yaml"),
        (["start", "--space", "broken.yaml"], 1, "broken.yaml:2:"),
        (["start", "--space", "sglang.yaml", "--yes"], 4, "not installed"),
        (["start", "--space", "tiny.yaml", "--sampler", "nonsense", "--yes"], 1, "nonsense"),
        (["start", "--space", "tiny.yaml", "--timeout", "soon"], 2, "duration"),
        (["start", "--space", "tiny.yaml", "--yes", "--storage", "sqlite:////proc/none/x.db"], 1, "x.db"),
        (["start", "--space", "tiny.yaml", "--yes", "--storage", UNREACHABLE], 1, "127.0.0.1"),
        (["start", "--space", "tiny.yaml", "--yes", "--ray-address", "127.0.0.1:1"], 4, "127.0.0.1:1"),
        (["resume", "nobody", "--storage", "sqlite:///new.db"], 1, "new.db"),
        (["start", "--space", "tiny.yaml", "--name", "../x", "--dry-run"], 1, "../x"),
        (["start", "--space", "tiny.yaml", "--yes", "--ray-address", ""], 2, "the address is empty"),
        (["start", "--space", "tiny.yaml", "--yes", "--seed", str(2**63)], 2, "--seed"),
        (["start", "--space", "tiny.yaml", "--yes", "--gpus", "1025"], 2, "--gpus"),
        (["start", "--space", "tiny.yaml", "--yes", "--parallel", "1000000"], 2, "--parallel"),
        (["start", "--space", "tiny.yaml", "--yes", "--model", ""], 1, "model"),
        (["nonsense"], 2, "nonsense"),
    ],
)  # fmt: skip
def test_bad_input_is_one_red_line_with_the_code_of_its_family(
    folder: Path, here: Run, arguments: list[str], code: int, words: str
) -> None:
    (folder / "broken.yaml").write_text("name: broken\nmodle: x\nengines: {simulated: {}}\n", encoding="utf-8")
    (folder / "sglang.yaml").write_text("name: s\nmodel: m\nengines: {sglang: {command: [no-such-thing]}}\n")
    done = here("study", *arguments)
    assert done.code == code
    assert "Traceback" not in done.err
    assert words in done.err
    assert "hunter2" not in done.err
    assert not servers(folder)
    if (folder / "tuner.db").exists():
        assert json.loads(here("study", "list", "--json").out) == {"studies": []}


def test_a_dry_run_starts_nothing_and_prints_the_first_launch(folder: Path, here: Run) -> None:
    done = here("study", "start", "--space", "tiny.yaml", "--dry-run")
    assert "tuner.engines.simulated" in done.out
    assert not (folder / "tuner.db").exists()
    document = json.loads(here("study", "start", "--space", "tiny.yaml", "--dry-run", "--json").out)
    assert document["engines"]["simulated"]["combinations"] == 16
    assert "5 launches (no GPU), measured at C=1, 4: 2 of the baseline first, 3 to search, none to confirm" in done.err
    assert "objective: throughput: maximize output token throughput at C=4" in done.err


def test_a_plan_can_be_made_on_a_machine_without_the_engine(folder: Path, here: Run) -> None:
    (folder / "far.yaml").write_text(
        "name: far\nmodel: m\nhardware: {gpus: 8}\nengines: {sglang: {command: [no-such-thing]}}\n"
        "knobs: {steps: {values: [unset, 4], flag: --chunked-prefill-size}}\n"
        "workload: {levels: [1, 16]}\nlimits: [{metric: output_tok_s, level: 16, min_of_baseline: 0.97}]\n"
    )
    done = here("study", "start", "--space", "far.yaml", "--dry-run")
    assert "no-such-thing" in done.out
    assert "warning: cannot start on this machine: engine sglang is not installed" in done.err
    assert "limit: output token throughput at C=16 ≥ 97 % of the baseline's" in done.err
    assert "3 of the baseline first, 25 to search, at most 12 to confirm 3 finalists" in done.err


def test_help_loads_none_of_the_heavy_libraries(folder: Path) -> None:
    heavy = ("optuna", "ray", "sqlalchemy", "pandas", "scipy", "plotly", "httpx")
    code = f"import sys, tuner.cli.app; print(*(name for name in {heavy} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
