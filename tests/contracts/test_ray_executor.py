"""The executor's contract, on a real local Ray, with real (simulated) servers."""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from tuner.domain.measurement import Measured
from tuner.domain.outcome import Failure, FailureClass
from tuner.domain.trial import Purpose, TrialReport, TrialRequest
from tuner.engines.catalogue import catalogues
from tuner.errors import MachineUnfit
from tuner.execution.base import Finished, Progressed, TrialKey
from tuner.execution.ray import RayExecutor
from tuner.spec import load_space
from tuner.trial.assembly import engine_setup

pytestmark = pytest.mark.slow
PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def executor() -> Iterator[RayExecutor]:
    """Its Ray's files go with the tests: they are kept where a worker was killed."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        found = RayExecutor(gpus=0, parallel=2)
        patch.undo()
        yield found
        found.close()


def request(run_dir: Path, trial: int, **flags: object) -> TrialRequest:
    """A short trial of the simulated engine."""
    space = load_space("quickstart", catalogues=catalogues()).space
    engine = space.engines["simulated"]
    changed = engine.model_copy(update={"flags": {**engine.flags, **flags}})
    space = space.model_copy(update={"engines": {"simulated": changed}})
    workload = space.workload.model_copy(update={"levels": (1,), "single_stream_max_requests": 5})
    return TrialRequest(
        study="contract",
        trial=trial,
        attempt=1,
        purpose=Purpose.SEARCH,
        candidate=engine_setup(space, "simulated").baseline_candidate,
        space=space,
        workload=workload,
        run_dir=str(run_dir / str(trial)),
        seed=trial,
    )


def collect(executor: RayExecutor, keys: set[TrialKey]) -> tuple[dict[TrialKey, TrialReport], list[Progressed]]:
    """Poll until every key has finished."""
    reports: dict[TrialKey, TrialReport] = {}
    progress: list[Progressed] = []
    deadline = time.monotonic() + PATIENCE_S
    while set(reports) < keys:
        assert time.monotonic() < deadline, f"only {sorted(reports)} finished"
        for update in executor.poll(0.5):
            if isinstance(update, Finished):
                assert update.key not in reports, "a trial finished twice"
                reports[update.key] = update.report
            else:
                assert update.key not in reports, "an event came after the end of its trial"
                progress.append(update)
    return reports, progress


def servers_of(run_dir: Path) -> list[int]:
    """Processes that have this test's folder in their command line or working directory."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        if "tuner.engines.simulated" in (process.info["cmdline"] or []):
            with_cwd = process.cwd() if process.is_running() else ""
            if with_cwd.startswith(str(run_dir)):
                found.append(process.info["pid"])
    return found


def test_more_trials_than_slots_all_finish_with_their_events(executor: RayExecutor, tmp_path: Path) -> None:
    for trial in range(3):
        executor.submit(request(tmp_path, trial))
    reports, progress = collect(executor, {(0, 1), (1, 1), (2, 1)})
    assert all(isinstance(report.outcome, Measured) and report.outcome.simulated for report in reports.values())
    assert {update.key for update in progress} == {(0, 1), (1, 1), (2, 1)}
    assert not servers_of(tmp_path)


def test_a_worker_that_is_killed_is_reported_replaced_and_leaves_no_server(
    executor: RayExecutor, tmp_path: Path
) -> None:
    slow = request(tmp_path, 10, **{"--time-scale": 1})
    executor.submit(slow)
    deadline = time.monotonic() + PATIENCE_S
    while not servers_of(tmp_path):
        assert time.monotonic() < deadline
        executor.poll(0.2)
    (server,) = servers_of(tmp_path)
    worker = next(p for p in psutil.Process(server).parents() if "TrialWorker" in " ".join(p.cmdline()))
    os.kill(worker.pid, signal.SIGKILL)
    reports, _ = collect(executor, {(10, 1)})
    outcome = reports[10, 1].outcome
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is FailureClass.LOST_WORKER
    gone_by = time.monotonic() + 15
    while servers_of(tmp_path):
        assert time.monotonic() < gone_by, "the server outlived its worker"
        time.sleep(0.2)
    executor.submit(request(tmp_path, 11))
    reports, _ = collect(executor, {(11, 1)})
    assert isinstance(reports[11, 1].outcome, Measured)


def running(executor: RayExecutor, run_dir: Path, trial: int) -> psutil.Process:
    """Start a trial that takes long, and give its worker once its server runs."""
    executor.submit(request(run_dir, trial, **{"--time-scale": 1}))
    deadline = time.monotonic() + PATIENCE_S
    while not servers_of(run_dir):
        assert time.monotonic() < deadline
        executor.poll(0.2)
    (server,) = servers_of(run_dir)
    return next(p for p in psutil.Process(server).parents() if "TrialWorker" in " ".join(p.cmdline()))


def is_lost(report: TrialReport) -> bool:
    return isinstance(report.outcome, Failure) and report.outcome.failure_class is FailureClass.LOST_WORKER


# What Ray 2.56 said when its memory monitor, told to be content with less, ended this worker; cut after the third line.
OUT_OF_MEMORY = """\
1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 127.0.0.1, ID: 4ead11f3) was \
2.79GB used / 23.54GB limit (0.118599)
OOM kill reason: Memory usage 2816221184B exceeded threshold of 2679309056B (10.6% of 25276502016B limit)
Object store memory usage: [- objects spillable: 0
"""


def test_a_worker_that_ray_ends_for_want_of_memory_is_the_machines_fault(
    executor: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = ray.get

    def want_of_memory(*asked: Any, **how: Any) -> Any:
        try:
            return get(*asked, **how)
        except ray.exceptions.RayError as death:
            raise ray.exceptions.OutOfMemoryError(OUT_OF_MEMORY) from death

    worker = running(executor, tmp_path, 50)
    monkeypatch.setattr(ray, "get", want_of_memory)
    worker.kill()
    reports, _ = collect(executor, {(50, 1)})
    outcome = reports[50, 1].outcome
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is FailureClass.HOST_OOM
    assert [line.split(" ")[0] for line in outcome.evidence] == ["1", "OOM"]
    monkeypatch.undo()
    executor.submit(request(tmp_path, 51))
    reports, _ = collect(executor, {(51, 1)})
    assert isinstance(reports[51, 1].outcome, Measured)


@pytest.mark.parametrize(("needed", "trial"), [("gcs_server", 40), ("raylet", 42)])
def test_a_ray_that_loses_what_it_needs_is_started_anew_and_does_not_write_to_stdout(
    needed: str, trial: int, executor: RayExecutor, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    running(executor, tmp_path, trial)
    ours = {p for p in psutil.Process().children(recursive=True) if "ray" in " ".join(p.cmdline())}
    next(p for p in psutil.Process().children() if p.name() == needed).kill()
    reports, _ = collect(executor, {(trial, 1)})
    assert is_lost(reports[trial, 1])
    assert not psutil.wait_procs(ours, timeout=15)[1], "something of the lost Ray lives on"
    executor.submit(request(tmp_path, trial + 1))
    reports, _ = collect(executor, {(trial + 1, 1)})
    assert isinstance(reports[trial + 1, 1].outcome, Measured)
    assert not servers_of(tmp_path)
    assert "(raylet)" not in capfd.readouterr().out


def test_a_worker_that_answers_no_more_is_killed_and_its_trial_reported(
    executor: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = running(executor, tmp_path, 44)
    worker.suspend()
    monkeypatch.setattr(executor, "_deaf_after_s", 2.0)
    reports, _ = collect(executor, {(44, 1)})
    assert is_lost(reports[44, 1])
    assert not worker.is_running()


def test_a_server_runs_at_the_priority_of_the_command_that_started_the_study(
    executor: RayExecutor, tmp_path: Path
) -> None:
    executor.submit(request(tmp_path, 15, **{"--time-scale": 1}))
    deadline = time.monotonic() + PATIENCE_S
    while not servers_of(tmp_path):
        assert time.monotonic() < deadline
        executor.poll(0.2)
    (server,) = servers_of(tmp_path)
    assert psutil.Process(server).nice() == psutil.Process().nice()
    executor.cancel()
    collect(executor, {(15, 1)})


def test_cancelling_tears_down_what_runs_and_drops_what_waits(executor: RayExecutor, tmp_path: Path) -> None:
    for trial in (20, 21, 22):
        executor.submit(request(tmp_path, trial, **{"--time-scale": 1}))
    deadline = time.monotonic() + PATIENCE_S
    while len(servers_of(tmp_path)) < 2:
        assert time.monotonic() < deadline
        executor.poll(0.2)
    executor.cancel()
    reports, _ = collect(executor, {(20, 1), (21, 1)})
    assert all(isinstance(report.outcome, Failure) for report in reports.values())
    assert not servers_of(tmp_path)
    assert executor.poll(1.0) == []


def test_what_ray_says_goes_to_the_log_and_not_to_the_terminal(
    executor: RayExecutor, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("ray._private.services").error("the dashboard did not start")
    assert "the dashboard did not start" in caplog.text
    assert "the dashboard" not in capfd.readouterr().err


def test_more_gpus_than_there_are_is_refused(executor: RayExecutor) -> None:
    with pytest.raises(MachineUnfit, match="GPUs"):
        RayExecutor(gpus=64)


def in_a_process_of_its_own(temporary: Path, *work: str) -> subprocess.CompletedProcess[str]:
    """Start an executor and work with it there, since Ray is one per process."""
    program = [
        "import os, signal",
        "from tuner.execution.ray import RayExecutor",
        "executor = RayExecutor(gpus=0)",
        *work,
    ]
    return subprocess.run(
        [sys.executable, "-c", "\n".join(program)],
        env={**os.environ, "TMPDIR": str(temporary)}, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip


START_AND_CLOSE = ("print(*executor._ray._folder.rays.glob('session_2*'))", "executor.close()")


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder whose name is as short as the sockets in it need."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        yield Path(folder)


def session_of_own(temporary: Path) -> Path:
    """The folder of the Ray that an executor started and ended."""
    done = in_a_process_of_its_own(temporary, *START_AND_CLOSE)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def test_a_ray_that_was_started_here_leaves_no_files_and_removes_those_of_a_killed_study_but_no_other_s(
    temporary: Path,
) -> None:
    other = temporary / "ray" / "session_2026-01-01_00-00-00_000000_1"
    other.mkdir(parents=True)
    (other / "kept.log").touch()
    killed = in_a_process_of_its_own(temporary, "os.kill(os.getpid(), signal.SIGKILL)")
    assert killed.returncode == -signal.SIGKILL
    (left,) = temporary.glob("tuner-ray-*/r/session_2*")
    assert stat.S_IMODE(left.parents[1].stat().st_mode) == 0o700, "it is its user's own"
    assert session_of_own(temporary) != left
    assert sorted(temporary.iterdir()) == [other.parent]
    assert (other / "kept.log").exists()


def test_a_cluster_that_runs_on_this_machine_is_neither_joined_nor_touched(temporary: Path) -> None:
    command = ["ray", "start", "--head", "--block", "--port", "0", "--num-cpus", "1", "--include-dashboard", "false"]
    cluster = subprocess.Popen(
        [Path(sys.executable).with_name(command[0]), *command[1:], "--disable-usage-stats"],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        known = temporary / "ray" / "ray_current_cluster"
        deadline = time.monotonic() + PATIENCE_S
        while not known.exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        theirs = (temporary / "ray" / "session_latest").resolve()
        assert session_of_own(temporary) != theirs
        assert cluster.poll() is None
        assert (theirs / "logs").is_dir()
    finally:
        # Asked to end, a `ray start` takes half a minute; nothing of it is needed any more.
        os.killpg(cluster.pid, signal.SIGKILL)
        cluster.wait(PATIENCE_S)
