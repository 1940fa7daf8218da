"""What `measure` says of servers that fail, and that it always comes to an end."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import psutil
import pytest
from support.measuring import failure, once_warm, run, wait_for, work
from support.scripted_server import (
    CLOSE,
    CUT,
    DONE,
    END,
    HANG,
    HEAD,
    Step,
    event,
    good,
    piece,
    plain,
    serving,
    token,
    usage,
)

from tuner.errors import UserError
from tuner.trial.protocol import LevelProgress, MeasurementFailed, MeasurementTrouble, Stage, measure


class TestFailures:
    def test_nothing_listens_there(self) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
            with pytest.raises(MeasurementFailed) as caught:
                measure(url, "m", work(), seed=1)
        assert (caught.value.kind, caught.value.stage) == (MeasurementTrouble.DEAD_SERVER, Stage.PROBE)

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (plain("429 Too Many Requests", b"slow down"), "HTTP 429: slow down"),
            (plain("503 Service Unavailable", b"full"), "HTTP 503: full"),
            (plain("307 Temporary Redirect", b"", "Location: http://other/"), "redirects to http://other/"),
            (plain("200 OK", b'{"choices": []}', "Content-Type: application/json"), "no event stream"),
            (HEAD + token() + event({"error": {"message": "out of memory"}}) + DONE + END, "out of memory"),
            (b"SPDY/9 what\r\n\r\n", "malformed HTTP"),
        ],
        ids=["429", "503", "redirect", "no-stream", "error-in-stream", "no-http"],
    )
    def test_one_failed_request_under_load_invalidates_the_level(self, answer: bytes, words: str) -> None:
        error = failure(once_warm(lambda body, n: [answer] if n == 6 else good(body, n)), levels=(4,))
        assert (error.kind, error.stage, error.load.level) == (MeasurementTrouble.REQUESTS_FAILED, Stage.LEVEL, 4)
        assert words in str(error)
        assert sum(error.errors.values()) == 1

    def test_short_answers_under_load_invalidate_the_level(self) -> None:
        error = failure(
            once_warm(lambda body, n: [HEAD, token(), usage(1), DONE + END] if n == 6 else good(body, n)), levels=(4,)
        )
        assert error.kind is MeasurementTrouble.SHORT_OUTPUT

    def test_answers_without_any_token_are_failures_not_zeros(self) -> None:
        error = failure(lambda _b, _n: [HEAD, usage(0), DONE + END])
        assert error.kind is MeasurementTrouble.SHORT_OUTPUT
        assert "no token" in str(error)

    def test_a_socket_that_breaks_mid_answer_says_after_how_many_tokens(self) -> None:
        error = failure(once_warm(lambda _b, _n: [HEAD, token(), token(), 0.05, CUT]), levels=(4,))
        assert error.kind is MeasurementTrouble.REQUESTS_FAILED
        assert "ConnectionResetError" in str(error)
        assert "after 2 tokens" in str(error)

    def test_a_half_closed_socket_is_a_failed_request_and_no_dead_server(self) -> None:
        error = failure(once_warm(lambda body, n: [HEAD, token(), CLOSE] if n == 6 else good(body, n)), levels=(4,))
        assert error.kind is MeasurementTrouble.REQUESTS_FAILED
        assert "connection closed by the server after 1 token" in str(error)

    def test_a_server_that_dies_under_load_is_dead(self) -> None:
        with serving(once_warm(lambda body, n: good(body, n, wait=0.2))) as server:

            def dies(progress: LevelProgress) -> None:
                if progress.stage is Stage.LEVEL:
                    server.close()

            with pytest.raises(MeasurementFailed) as caught:
                measure(server.url, "m", work(levels=(4,), output_tokens=20), seed=1, on_progress=dies)
        assert caught.value.kind in (MeasurementTrouble.DEAD_SERVER, MeasurementTrouble.STALLED)

    def test_one_silent_stream_among_others_ends_the_level_in_bounded_time(self) -> None:
        def one_hangs(body: dict[str, Any], number: int) -> Iterable[Step]:
            return [HEAD, token(), HANG] if number == 4 else good(body, number, wait=0.05)

        began = time.monotonic()
        error = failure(once_warm(one_hangs), levels=(4,), request_timeout_s=1.0, requests_per_slot=50)
        assert time.monotonic() - began < 30
        assert error.kind is MeasurementTrouble.STALLED
        assert error.stall is not None
        assert (error.stall.tokens, error.stall.everyone) == (1, False)
        assert "had 1 token" in str(error)

    def test_silence_of_all_streams_ends_the_level_sooner(self) -> None:
        error = failure(
            once_warm(lambda _b, _n: [HEAD, token(), HANG]), levels=(4,), request_timeout_s=60.0, stall_timeout_s=0.5
        )
        assert error.kind is MeasurementTrouble.STALLED
        assert error.stall is not None
        assert error.stall.everyone
        assert error.tokens == 4

    def test_keep_alive_comments_do_not_hide_a_stall(self) -> None:
        def pinging(_b: dict[str, Any], _n: int) -> Iterator[Step]:
            yield HEAD + token()
            for _ in range(100):
                yield 0.05
                yield piece(b": ping\n\n")
            yield from [token(), token(), token(), usage(4), DONE + END]  # too late

        error = failure(once_warm(pinging), levels=(4,), request_timeout_s=0.8)
        assert error.kind is MeasurementTrouble.STALLED

    def test_the_caller_can_stop_it(self) -> None:
        asked = iter([False] * 5 + [True] * 10_000)
        with serving(lambda body, n: good(body, n, wait=0.3)) as server, pytest.raises(MeasurementFailed) as caught:
            measure(server.url, "m", work(output_tokens=100), seed=1, should_abort=lambda: next(asked))
        assert caught.value.kind is MeasurementTrouble.ABORTED

    def test_no_load_process_outlives_its_caller(self) -> None:
        program = (
            "import sys; from tuner.trial.protocol import measure; from tuner.domain.workload import Workload; "
            "measure(sys.argv[1], 'm', Workload(input_tokens=4, levels=(1,)), seed=1)"
        )
        with serving(lambda _b, _n: [HEAD, token(), HANG]) as server:
            caller = subprocess.Popen([sys.executable, "-c", program, server.url])
            try:
                wait_for(lambda: len(server.bodies) == 1)
                (worker,) = psutil.Process(caller.pid).children()
            finally:
                caller.kill()
                caller.wait()
            wait_for(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)

    def test_levels_measured_before_a_failure_are_handed_over(self) -> None:
        error = failure(lambda body, n: good(body, n) if n < 8 else [plain("503 Service Unavailable")])
        assert [level.load.level for level in error.levels] == [1]

    def test_a_bench_can_keep_the_invalid_level_and_go_on(self) -> None:
        script = once_warm(lambda body, n: [plain("503 Busy")] if n == 6 else good(body, n))
        with serving(script) as server:
            bad, fine = measure(server.url, "m", work(levels=(4, 5)), seed=1, keep_invalid=True)
        assert not bad.valid
        assert bad.measurements == ()
        assert list(bad.errors.values()) == [1]
        assert fine.valid

    def test_a_tokenizer_that_cannot_be_loaded_is_the_users_error(self) -> None:
        with pytest.raises(UserError, match=r"no tokenizer\.json"):
            run(good, tokenizer="/nowhere")
