"""More load than the server, or this machine, admits; models with next to no vocabulary."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.measuring import failure, once_warm, run, work
from support.scripted_server import CLOSE, DONE, END, HEAD, Step, good, plain, serving, token, usage
from tokenizers import Tokenizer, models

from tuner.domain.measurement import Metric
from tuner.domain.warnings import WarningCode
from tuner.errors import OwnShortage
from tuner.loadgen.dialect import Dialect
from tuner.loadgen.job import Job, TooFewConnections
from tuner.loadgen.pool import LoadPool
from tuner.loadgen.prompts import Prompts
from tuner.loadgen.target import Target
from tuner.loadgen.vocabulary import ANY_VOCABULARY
from tuner.trial.protocol import MeasurementTrouble, measure

DIALECT = Dialect("m", "completions", ANY_VOCABULARY, as_ids=True)


def job(url: str, slots: int, **more: Any) -> Job:
    conversations = tuple(Prompts(work(), 1).conversations(slots, DIALECT, "x"))
    return Job(Target.parse(url), DIALECT.path, slots, conversations, **more)


class TestMoreThanTheServerAdmits:
    def test_a_server_that_leaves_connections_waiting_is_not_called_dead(self) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=1) as full, LoadPool() as pool:
            url = f"http://127.0.0.1:{full.getsockname()[1]}"  # nobody accepts: two or three connections fit
            with pytest.raises(TooFewConnections, match=r"^[1-9] of 12 connections opened within 1 s$"):
                pool.run(job(url, 12, connect_limit_s=1.0))

    def test_that_is_a_failure_of_the_level_and_names_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(_pool: LoadPool, job: Job, **_more: Any) -> Any:
            if job.slots == 1:
                return real(_pool, job, **_more)
            raise TooFewConnections("3 of 4 connections opened within 30 s")

        real = LoadPool.run
        monkeypatch.setattr(LoadPool, "run", full)
        error = failure(good)
        assert (error.kind, error.load.level) == (MeasurementTrouble.REQUESTS_FAILED, 4)
        assert "admits fewer connections than asked: 3 of 4" in str(error)
        assert [level.load.level for level in error.levels] == [1]

    def test_requests_refused_above_its_limit_leave_no_number(self) -> None:
        busy = 0

        def two_at_once(body: dict[str, Any], number: int) -> Iterable[Step]:
            nonlocal busy
            if busy >= 2:
                yield plain("503 Service Unavailable", b"too many requests")
                return
            busy += 1
            try:
                yield from good(body, number, wait=0.05)
            finally:
                busy -= 1

        with serving(two_at_once) as server:
            alone, four = measure(server.url, "m", work(), seed=1, keep_invalid=True)
        assert alone.valid
        assert not four.valid
        assert four.measurements == ()
        assert any("HTTP 503: too many requests" in text for text in four.errors)

    def test_connections_dropped_above_its_limit_leave_no_number(self) -> None:
        error = failure(once_warm(lambda body, n: [CLOSE] if n % 2 else good(body, n, wait=0.05)), levels=(4,))
        assert error.kind is MeasurementTrouble.REQUESTS_FAILED
        assert "connection closed by the server" in str(error)


class TestMoreThanThisMachineAdmits:
    def test_the_soft_limit_of_open_files_does_not_limit_the_load(self) -> None:
        program = (
            "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 256))\n"
            "from tuner.cli.main import main; main()"
        )
        words = "--model m --levels 100 --input-tokens 4 --output-tokens 2 --repeats 1 --warmup 1 --json"
        with serving(good) as server:
            command = [sys.executable, "-c", program, "bench", server.url, *words.split()]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["levels"][0]["completed"] == 300

    def test_the_hard_limit_is_the_users_matter_and_not_the_servers(self) -> None:
        with serving(good) as server, LoadPool() as pool:
            pool.run(job(server.url, 1))
            (process,) = pool._processes
            _, most = resource.prlimit(process._child.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(process._child.pid, resource.RLIMIT_NOFILE, (24, most))
            with pytest.raises(OwnShortage, match="Too many open files") as caught:
                pool.run(job(server.url, 60))
        assert "ulimit" in str(caught.value.hint)

    def test_the_same_holds_for_connections_that_an_open_loop_opens_on_the_way(self) -> None:
        def slow(body: dict[str, Any], number: int) -> Iterable[Step]:
            return good(body, number, wait=0.5)

        with serving(slow) as server, LoadPool() as pool:
            pool.run(job(server.url, 1))
            (process,) = pool._processes
            _, most = resource.prlimit(process._child.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(process._child.pid, resource.RLIMIT_NOFILE, (24, most))
            together = replace(job(server.url, 60, due_s=(0.0,) * 60), slots=4)
            with pytest.raises(OwnShortage, match="Too many open files"):
                pool.run(together)


class TestSmallModels:
    def test_a_model_of_one_token_is_measured_by_its_tokenizer(self, tmp_path: Path) -> None:
        Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "config.json").write_text('{"eos_token_id": 0}')

        def one_token(body: dict[str, Any], number: int) -> Iterable[Step]:
            if set(body["prompt"]) != {0}:
                return [plain("400 Bad Request", b"token id out of range")]
            return good(body, number)

        (one,) = run(one_token, levels=(1,), tokenizer=str(tmp_path))
        assert one.valid
        assert one.prompt_tokens == 4
        assert WarningCode.INPUT_LENGTH_APPROXIMATE.value not in one.warnings

    def test_ids_that_a_model_does_not_know_are_given_up_for_text(self) -> None:
        def tiny(body: dict[str, Any], number: int) -> Iterable[Step]:
            if isinstance(body["prompt"], list) and max(body["prompt"]) > 30:
                return [plain("400 Bad Request", b"token id out of range")]
            return good(body, number)

        (one,) = run(tiny, levels=(1,))
        assert one.valid
        assert WarningCode.INPUT_LENGTH_APPROXIMATE.value in one.warnings

    def test_a_model_that_ends_at_once_is_asked_not_to(self) -> None:
        def ends(body: dict[str, Any], number: int) -> Iterable[Step]:
            return good(body, number) if "ignore_eos" not in body else [HEAD, usage(0), DONE + END]

        with serving(ends) as server:
            found = measure(server.url, "m", work(), seed=1)
            assert server.bodies[-1]["min_tokens"] == 4
        assert all(level.valid for level in found)

    def test_answers_longer_than_asked_are_no_measurement_either(self) -> None:
        error = failure(lambda _b, _n: [HEAD, *[token()] * 6, usage(6), DONE + END])
        assert error.kind is MeasurementTrouble.SHORT_OUTPUT
        assert "6 tokens, more than the 4 asked for" in str(error)

    def test_one_token_per_answer_has_a_throughput_under_load_and_no_time_between_tokens(self) -> None:
        (four,) = run(good, levels=(4,), output_tokens=1)
        assert four.value(Metric.OUTPUT_TOK_S) is not None
        assert four.value(Metric.ITL_P50_MS) is None
