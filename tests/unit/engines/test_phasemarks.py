"""Where a launch is, told from the logs of real launches."""

from __future__ import annotations

import pytest
from support.failure_cases import DATA

from tuner.domain.outcome import Phase
from tuner.engines.logs import LogDocument
from tuner.engines.phasemarks import Timeline, phase_of_line
from tuner.engines.signatures import load_book

P = Phase


@pytest.mark.parametrize(
    ("name", "phases"),
    [
        ("vllm-0.26-good", [P.PARSE, P.NCCL_INIT, P.WEIGHTS, P.PROFILE, P.GRAPH_CAPTURE, P.WARMUP, P.SERVING]),
        ("sglang-0.5.16-good", [P.PARSE, P.NCCL_INIT, P.WEIGHTS, P.PROFILE, P.GRAPH_CAPTURE, P.WARMUP, P.SERVING]),
        ("vllm-0.32-cpu-stopped", [P.PARSE, P.NCCL_INIT, P.WEIGHTS, P.GRAPH_CAPTURE, P.WARMUP, P.SERVING, P.TEARDOWN]),
        (
            "sglang-0.5.23-cpu-stopped",
            [P.PARSE, P.NCCL_INIT, P.WEIGHTS, P.PROFILE, P.GRAPH_CAPTURE, P.SERVING, P.TEARDOWN],
        ),
    ],
)
def test_a_real_launch_passes_its_phases_in_order(name: str, phases: list[Phase]) -> None:
    phase_of = phase_of_line(name.split("-")[0])
    seen = [phase for line in (DATA / "logs" / f"{name}.log").read_text().splitlines() if (phase := phase_of(line))]
    firsts = [phase for phase in dict.fromkeys(seen) if phase in phases]
    assert firsts == phases


def test_the_simulated_engine_is_read_like_the_engine_that_it_imitates() -> None:
    phase_of = phase_of_line("simulated")
    assert phase_of("[2026-11-29 22:09:37] The server is fired up and ready to roll!") is P.SERVING
    assert phase_of("(Worker pid=1) INFO 11-29 21:33:35 [a.py:284] Loading model from scratch...") is P.WEIGHTS


@pytest.mark.parametrize("line", ["", "INFO:     127.0.0.1:1 - GET /health", "\x00\xff garbage", "x" * 100_000])
def test_other_lines_tell_no_phase(line: str) -> None:
    assert phase_of_line("vllm")(line) is None


def timeline(*lines: str, engine: str = "sglang") -> Timeline:
    return Timeline(LogDocument(lines), load_book(engine))


def test_a_slower_ranks_earlier_line_does_not_take_a_launch_back() -> None:
    seen = timeline("[2026-01-01 10:00:00 TP0] Load weight end.", "[2026-01-01 10:00:01 TP1] Load weight begin.")
    assert seen.last is P.PROFILE


def test_a_second_launch_in_the_same_file_starts_over() -> None:
    seen = timeline("The server is fired up and ready to roll!", "server_args=ServerArgs(model_path='m')")
    assert seen.last is P.PARSE


def test_the_frames_of_a_traceback_are_more_exact_than_the_last_marker() -> None:
    lines = [
        "Load weight end. elapsed=0.13 s",
        "Traceback (most recent call last):",
        '  File "/sgl/srt/model_executor/cuda_graph_runner.py", line 336, in __init__',
        "    self.capture()",
        "torch.OutOfMemoryError: CUDA out of memory.",
    ]
    assert timeline(*lines).at(4) is P.GRAPH_CAPTURE
    assert timeline(lines[0], lines[4]).at(1) is P.PROFILE


def test_a_log_that_ends_in_a_silent_step_says_which() -> None:
    waiting = timeline("Capture cuda graph begin. This can take up to several minutes.")
    milestone = waiting.waits_since()
    assert milestone is not None
    assert milestone.mark.phase is P.GRAPH_CAPTURE
    assert timeline("Capture cuda graph begin.", "Capture cuda graph end.").waits_since() is None
