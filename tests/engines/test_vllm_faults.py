"""Real vLLM on the CPU, made to fail in the ways that matter most: each named right, and nothing left behind."""

from __future__ import annotations

import getpass
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engines import VLLM_ON_ONE_CORE

from tuner.domain.candidate import Candidate
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.space import Space
from tuner.domain.trial import Purpose, TrialEvent, TrialRequest
from tuner.engines.definition import load_definition
from tuner.trial.ports import is_free
from tuner.trial.proctree import ProcessStat, find_members, is_alive
from tuner.trial.record import FILE, LaunchRecord
from tuner.trial.runner import run_trial

CHECKOUT = Path(__file__).parents[2]
VLLM = CHECKOUT / ".engines" / "vllm" / "bin" / "vllm"

KERNEL = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not VLLM.exists(), reason="no .engines/vllm: run `make engines`"),
]


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder that nobody else uses."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


class Trial:
    """One trial whose processes are looked at from outside."""

    def __init__(self, run_dir: Path, model: str, flags: dict[str, object]) -> None:
        self.run_dir = run_dir
        always = {"--load-format": "dummy", "--enforce-eager": True, "--max-model-len": 2048}
        space = Space.model_validate(
            {
                "name": "faults",
                "model": model,
                "engines": {
                    "vllm": {
                        "version": "0.32.0",
                        "command": [str(VLLM), "serve"],
                        "flags": {**always, **flags},
                        "env": {
                            "HF_HUB_OFFLINE": 1,
                            "VLLM_CPU_KVCACHE_SPACE": 1,
                            "VLLM_HOST_IP": "127.0.0.1",
                            **VLLM_ON_ONE_CORE,
                        },
                    }
                },
                "workload": {
                    "input_tokens": 32,
                    "output_tokens": 400,
                    "levels": [8],
                    "repeats": 4,
                    "request_timeout_s": 20,
                    "stall_timeout_s": 10,
                },
            }
        )
        candidate = Candidate.of(space, "vllm", {})
        self._request = TrialRequest("faults", 1, 1, Purpose.SEARCH, candidate, space, space.workload, str(run_dir))
        self.measuring = threading.Event()
        self.sockets = 0

    def run(self) -> Failure:
        report = run_trial(self._request, gpus=(), notify=self._notice, cancelled=lambda: False)
        assert isinstance(report.outcome, Failure), report.outcome
        self._assert_nothing_left()
        return report.outcome

    def strike_engine_core(self, number: signal.Signals) -> threading.Thread:
        """Signal the engine core once the measurement runs."""

        def strike() -> None:
            self.measuring.wait()
            time.sleep(1.0)
            record = self._record()
            assert record is not None
            assert record.scratch is not None
            self.sockets = sum(path.is_socket() for path in Path(record.scratch).iterdir())
            core = next(member for member in self._members() if member.name.startswith("VLLM::EngineCor"))
            os.kill(core.pid, number)

        thread = threading.Thread(target=strike, daemon=True)
        thread.start()
        return thread

    def _notice(self, event: TrialEvent) -> None:
        if event.phase is Phase.SERVING and event.text:
            self.measuring.set()

    def _record(self) -> LaunchRecord | None:
        return LaunchRecord.read(self.run_dir / FILE)

    def _members(self) -> Iterator[ProcessStat]:
        record = self._record()
        assert record is not None
        return iter(find_members(record.marks).values())

    def _assert_nothing_left(self) -> None:
        record = self._record()
        if record is None:
            return  # refused before anything was started
        assert list(self._members()) == []
        assert not any(map(is_alive, record.members))
        assert all(is_free(port) for port in record.ports)
        shared = {name.format(user=getpass.getuser()) for name in load_definition("vllm").shared_temp}
        assert {path.name for path in Path(os.environ["TMPDIR"]).iterdir()} <= shared


def test_a_value_that_the_parser_refuses_is_a_bad_flag(tmp_path: Path, model: Path) -> None:
    failure = Trial(tmp_path, str(model), {"--kv-cache-dtype": "nonsense"}).run()
    assert failure.failure_class is FailureClass.BAD_FLAG


def test_a_model_that_does_not_exist_is_named_as_that(tmp_path: Path) -> None:
    failure = Trial(tmp_path, "nobody/no-such-model", {}).run()
    assert failure.failure_class is FailureClass.MODEL_ACCESS


def test_a_cache_too_small_for_one_request_is_named_as_that(tmp_path: Path, model: Path) -> None:
    failure = Trial(tmp_path, str(model), {"--num-gpu-blocks-override": 16}).run()
    assert failure.failure_class is FailureClass.KV_TOO_SMALL


@pytest.mark.skipif(KERNEL < (6, 15), reason="the kernel does not tell how a stranger's child ended")
def test_an_engine_core_killed_under_load_is_a_kill_from_outside(tmp_path: Path, model: Path) -> None:
    trial = Trial(tmp_path, str(model), {})
    trial.strike_engine_core(signal.SIGKILL)
    failure = trial.run()
    assert (failure.failure_class, failure.phase) == (FailureClass.HOST_OOM, Phase.SERVING)
    assert trial.sockets > 0, "they were in the launch's own temporary folder"


def test_an_engine_core_stopped_under_load_is_a_hang_with_evidence(tmp_path: Path, model: Path) -> None:
    trial = Trial(tmp_path, str(model), {})
    trial.strike_engine_core(signal.SIGSTOP)
    failure = trial.run()
    assert (failure.failure_class, failure.phase) == (FailureClass.ENGINE_STALL, Phase.SERVING)
    assert trial.sockets > 0, "they were in the launch's own temporary folder"
    assert "EngineCor" in (tmp_path / "evidence" / "stacks.txt").read_text()
