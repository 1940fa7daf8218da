"""Waiting for the first token, with real processes; time limits are short, never measured."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.launches import eventually, has_written, rogue_plan

from tuner.domain.outcome import Phase
from tuner.engines.failures import is_compiling_line
from tuner.errors import OwnShortage
from tuner.trial import process, serving, watchdog
from tuner.trial.deadlines import PhaseDeadlines
from tuner.trial.ports import reserve_ports
from tuner.trial.process import GRACE_S, ServerHandle, launch
from tuner.trial.serving import ServingWatch
from tuner.trial.watchdog import LaunchFailed, LaunchTrouble, ReadyReport, WaitCancelled, wait_ready

KERNEL = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
PATIENT = PhaseDeadlines.of(60.0)


def never() -> bool:
    return False


def no_phase(line: str) -> Phase | None:
    return None


def words(line: str) -> Phase | None:
    return Phase(line) if line in set(Phase) else None


def connects_to(port: int) -> Callable[[], bool]:
    def probe() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    return probe


def lose_child(server: ServerHandle) -> None:
    """Let the rogue server lose its child, once the guard has seen that there is one."""
    assert eventually(lambda: len(server.seen_processes()) == 2)
    (server.run_dir / "now").touch()


def test_readiness_is_the_first_token_and_phases_are_timed(tmp_path: Path) -> None:
    with reserve_ports(1) as lease:
        port = lease.ports[0]
        with launch(rogue_plan("listen", str(port), port=port), tmp_path) as server:
            listens, asked = connects_to(port), []

            def third_time() -> bool:
                """A server that listens, and generates nothing when it is first asked."""
                asked.append(listens())
                return asked.count(True) == 3

            ready = wait_ready(server, third_time, no_phase, PATIENT)
    assert isinstance(ready, ReadyReport)
    assert asked.count(True) == 3
    assert ready.phase_seconds == {Phase.SPAWN: ready.seconds}


def test_a_dead_process_ends_the_wait_with_its_exit_code(tmp_path: Path) -> None:
    with launch(rogue_plan("exit", "7"), tmp_path) as server, pytest.raises(LaunchFailed) as failed:
        wait_ready(server, never, no_phase, PATIENT)
    assert (failed.value.kind, failed.value.exit_code) == (LaunchTrouble.EXITED, 7)
    assert failed.value.observation == "the server ended with exit code 7"


def test_a_killed_process_is_named_with_its_signal(tmp_path: Path) -> None:
    with launch(rogue_plan("quiet"), tmp_path) as server:
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(LaunchFailed, match="killed by signal 9"):
            wait_ready(server, never, no_phase, PATIENT)


def test_a_killed_guard_is_no_verdict_on_the_server(tmp_path: Path) -> None:
    with launch(rogue_plan("quiet"), tmp_path) as server:
        os.kill(server.guard_pid, signal.SIGKILL)
        with pytest.raises(LaunchFailed) as failed:
            wait_ready(server, never, no_phase, PATIENT)
    assert (failed.value.kind, failed.value.exit_code) == (LaunchTrouble.GUARD_LOST, None)


def test_a_wait_can_be_cancelled_while_the_log_is_silent(tmp_path: Path) -> None:
    with launch(rogue_plan("quiet"), tmp_path) as server, pytest.raises(WaitCancelled):
        wait_ready(server, never, no_phase, PATIENT, is_cancelled=lambda: True)


@pytest.mark.skipif(KERNEL < (6, 15), reason="the kernel does not tell how a stranger's child ended")
def test_a_fatal_line_under_load_waits_for_how_the_server_ended(tmp_path: Path) -> None:
    with launch(rogue_plan("lose-child", "now"), tmp_path) as server:
        lose_child(server)
        watch = ServingWatch(server, timeout_s=60, is_fatal=lambda line: line.startswith("fatal"))
        assert eventually(watch.is_over)
        with pytest.raises(LaunchFailed) as failed:
            watch.check()
    assert (failed.value.kind, failed.value.exit_code) == (LaunchTrouble.FATAL_LINE, -signal.SIGKILL)


@pytest.mark.skipif(KERNEL < (6, 15), reason="the kernel does not tell how a stranger's child ended")
def test_a_server_that_ends_in_order_after_losing_a_child_was_killed(tmp_path: Path) -> None:
    with launch(rogue_plan("lose-child", "now"), tmp_path) as server:
        lose_child(server)
        with pytest.raises(LaunchFailed) as failed:
            wait_ready(server, never, no_phase, PATIENT)
    assert (failed.value.kind, failed.value.exit_code) == (LaunchTrouble.EXITED, -signal.SIGKILL)
    assert "of the server was killed by signal 9" in failed.value.observation
    assert "was killed by signal 9]" in (tmp_path / "server.log").read_text()


def test_a_probe_that_blocks_does_not_blind_the_watchdog(tmp_path: Path) -> None:
    released = threading.Event()
    with launch(rogue_plan("exit", "3"), tmp_path) as server, pytest.raises(LaunchFailed, match="exit code 3"):
        wait_ready(server, lambda: released.wait(600), no_phase, PATIENT)
    released.set()


def test_a_probe_that_lacks_what_it_needs_to_ask_is_no_verdict_on_the_server(tmp_path: Path) -> None:
    def no_socket() -> bool:
        raise OwnShortage("too many open files")

    with launch(rogue_plan("sleep"), tmp_path) as server, pytest.raises(OwnShortage):
        wait_ready(server, no_socket, no_phase, PATIENT)


def test_the_phase_is_the_furthest_that_the_log_announced(tmp_path: Path) -> None:
    with launch(rogue_plan("script", "import", "weights", "import"), tmp_path) as server:
        assert eventually(has_written(tmp_path, "weights\nimport"))
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(LaunchFailed) as failed:
            wait_ready(server, never, words, PATIENT)
    assert failed.value.phase is Phase.WEIGHTS


def test_a_fatal_line_ends_the_wait_although_the_process_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "_LAST_WORDS_S", 0.2)
    plan = rogue_plan("script", "all is well", "the end is nigh")
    with launch(plan, tmp_path) as server, pytest.raises(LaunchFailed) as failed:
        wait_ready(server, never, no_phase, PATIENT, is_fatal=lambda line: "nigh" in line)
    assert (failed.value.kind, failed.value.observation) == (LaunchTrouble.FATAL_LINE, "the end is nigh")


def test_a_silent_server_is_hung_and_its_stacks_are_kept(tmp_path: Path) -> None:
    impatient = PhaseDeadlines(launch_timeout_s=60, silence_s=0.3, learned={})
    with launch(rogue_plan("quiet"), tmp_path) as server:
        assert eventually(has_written(tmp_path, "mode quiet"))
        with pytest.raises(LaunchFailed) as failed:
            wait_ready(server, never, no_phase, impatient)
        pid = server.pid
    assert failed.value.kind is LaunchTrouble.HUNG
    assert set(failed.value.evidence) == {"stacks", "processes", "log_tail"}
    processes = Path(failed.value.evidence["processes"]).read_text()
    assert f"pid {pid}" in processes
    assert "-- wchan" in processes
    assert "mode quiet" in Path(failed.value.evidence["log_tail"]).read_text()
    stacks = Path(failed.value.evidence["stacks"]).read_text()
    assert f"== pid {pid}" in stacks
    assert "wait_forever" in stacks or "Permission" in stacks  # containers may forbid py-spy to look


def test_a_hung_server_is_not_given_the_grace_of_a_working_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "HUNG_GRACE_S", 0.2)
    impatient = PhaseDeadlines(launch_timeout_s=60, silence_s=0.3, learned={})
    with launch(rogue_plan("deaf"), tmp_path) as server:
        assert eventually(has_written(tmp_path, "\ndeaf"))
        with pytest.raises(LaunchFailed):
            wait_ready(server, never, no_phase, impatient)
        assert server.close().seconds < GRACE_S


def test_a_server_that_only_talks_runs_into_its_phase_deadline(tmp_path: Path) -> None:
    impatient = PhaseDeadlines(launch_timeout_s=60, silence_s=30, learned={Phase.SPAWN: 0.3})
    with launch(rogue_plan("chatter"), tmp_path) as server, pytest.raises(LaunchFailed) as failed:
        wait_ready(server, never, no_phase, impatient)
    assert failed.value.kind is LaunchTrouble.DEADLINE
    assert "phase spawn" in failed.value.observation


def test_a_token_from_somebody_elses_server_is_not_readiness(tmp_path: Path) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        with launch(rogue_plan("quiet", port=port), tmp_path) as server, pytest.raises(LaunchFailed) as failed:
            wait_ready(server, connects_to(port), no_phase, PATIENT)
    assert failed.value.kind is LaunchTrouble.FOREIGN_PORT
    assert f"pid {os.getpid()}" in failed.value.observation


def test_a_server_that_dies_while_its_port_is_looked_up_is_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reserve_ports(1) as lease:
        port = lease.ports[0]
        with launch(rogue_plan("listen", str(port), port=port), tmp_path) as server:
            assert eventually(has_written(tmp_path, "listening"))
            monkeypatch.setattr(server, "members", list)  # as just after its death
            assert wait_ready(server, connects_to(port), no_phase, PATIENT).seconds > 0


def test_a_measurement_is_over_when_the_server_dies(tmp_path: Path) -> None:
    with launch(rogue_plan("quiet"), tmp_path) as server:
        watch = ServingWatch(server, timeout_s=60)
        assert not watch.is_over()
        os.kill(server.pid, signal.SIGKILL)
        assert eventually(watch.is_over)
        with pytest.raises(LaunchFailed) as failed:
            watch.settle()
    assert (failed.value.phase, failed.value.exit_code) == (Phase.SERVING, -9)


def test_a_measurement_ends_at_its_time_limit_with_evidence(tmp_path: Path) -> None:
    now = 0.0
    with launch(rogue_plan("quiet"), tmp_path) as server:
        watch = ServingWatch(server, timeout_s=60, clock=lambda: now)
        now = 59.0
        assert not watch.is_over()
        now = 61.0
        with pytest.raises(LaunchFailed, match=r"not done after 61 s \(budget.benchmark_timeout_s: 60\)") as failed:
            watch.check()
    assert failed.value.kind is LaunchTrouble.DEADLINE
    assert Path(failed.value.evidence["stacks"]).exists()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that others take from every server that serves; the last entry holds."""
    seconds = [0.0]

    class OthersHaveTheCpu:
        def __init__(self, *_: object) -> None:
            pass

        def look(self) -> float:
            return seconds[-1]

    monkeypatch.setattr(serving, "StarvationWatch", OthersHaveTheCpu)
    return seconds


@pytest.mark.parametrize(
    ("starved_s", "still_at", "over_at", "kind", "words"),
    [
        pytest.param(40.0, 95.0, 101.0, LaunchTrouble.DEADLINE, "not done after 101 s", id="it had its minute"),
        pytest.param(150.0, 179.0, 181.0, LaunchTrouble.STARVED, "for 150 of 181 s the server was ready", id="never"),
    ],
)
def test_time_without_the_cpu_does_not_count_for_a_measurement_up_to_three_times_its_limit(
    tmp_path: Path,
    taken: list[float],
    starved_s: float,
    still_at: float,
    over_at: float,
    kind: LaunchTrouble,
    words: str,
) -> None:
    now = 0.0
    with launch(rogue_plan("quiet"), tmp_path) as server:
        watch = ServingWatch(server, timeout_s=60, clock=lambda: now)
        taken.append(starved_s)
        now = still_at
        assert not watch.is_over()
        now = over_at
        with pytest.raises(LaunchFailed, match=words) as failed:
            watch.check()
    assert failed.value.kind is kind
    assert not server.is_hung


def test_a_stream_that_stalls_while_others_have_the_cpu_is_the_host_s_fault(tmp_path: Path, taken: list[float]) -> None:
    now = 0.0
    with launch(rogue_plan("quiet"), tmp_path) as server:
        watch = ServingWatch(server, timeout_s=600, clock=lambda: now)
        now = 60.0
        taken.append(20.0)
        assert watch.stalled("request 3 did not receive a token for 30 s").kind is LaunchTrouble.HUNG
        other = ServingWatch(server, timeout_s=600, clock=lambda: now)
        now = 120.0
        taken.append(40.0)
        assert other.stalled("request 3 did not receive a token for 30 s").kind is LaunchTrouble.STARVED


def test_a_server_that_dies_right_after_its_streams_broke_died_first(tmp_path: Path) -> None:
    with launch(rogue_plan("quiet"), tmp_path) as server:
        watch = ServingWatch(server, timeout_s=60)
        threading.Timer(0.3, os.kill, (server.pid, signal.SIGKILL)).start()
        with pytest.raises(LaunchFailed, match="killed by signal 9"):
            watch.settle()


def test_a_stalled_stream_of_a_living_server_is_a_hang(tmp_path: Path) -> None:
    with launch(rogue_plan("quiet"), tmp_path) as server:
        failure = ServingWatch(server, timeout_s=60).stalled("request 3 did not receive a token for 30 s")
    assert (failure.kind, failure.phase) == (LaunchTrouble.HUNG, Phase.SERVING)


def test_a_compilation_belongs_to_the_time_between_the_looks_around_its_line(tmp_path: Path) -> None:
    now = 10.0
    log = tmp_path / "server.log"

    def written(text: str) -> None:
        with log.open("a") as file:
            file.write(f"(Worker_TP0 pid=3178) WARNING 11-30 13:00:48 [jit_monitor.py:135] {text}\n")

    with launch(rogue_plan("quiet"), tmp_path) as server:
        watch = ServingWatch(server, timeout_s=60, is_compiling=is_compiling_line("vllm"), clock=lambda: now)
        written("Triton kernel JIT compilation during inference: before_the_first_look.")
        assert not watch.is_over()
        now = 11.0
        assert not watch.is_over()
        written("Kernel JIT monitor activated; monitored JIT compilations during inference will use mode=warn.")
        now = 12.0
        assert not watch.compiled_between(0.0, 12.0)
        written("Triton kernel JIT compilation during inference: kernel_unified_attention. This causes a latency spike")
        now = 13.0
        assert watch.compiled_between(12.0, 13.0)
        assert not watch.compiled_between(12.5, 14.0), "it may have come before"
        assert not watch.compiled_between(11.0, 12.5), "it may have come after"


def test_a_probe_whose_connection_is_closed_under_it_ends_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[object] = []
    monkeypatch.setattr(threading, "excepthook", heard.append)
    asked, closed = threading.Event(), threading.Event()

    def probe() -> bool:
        asked.set()
        closed.wait(10)
        raise RuntimeError("the client has been closed")

    prober = watchdog._Prober(probe)
    assert asked.wait(10)
    prober.stop()
    closed.set()
    assert eventually(lambda: all(thread.name != "readiness-probe" for thread in threading.enumerate()))
    assert heard == []
