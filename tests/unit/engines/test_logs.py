"""Log lines without what loggers, containers and terminals put around them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuner.engines import logs
from tuner.engines.logs import Level, LogDocument, parse_line, read_lines


@pytest.mark.parametrize(
    ("raw", "text", "source", "level"),
    [
        ("plain text", "plain text", "", None),
        ("    indented stays", "    indented stays", "", None),
        ("vllm-1  | ERROR 11-18 18:07:28 engine.py:366] boom", "boom", "", Level.ERROR),
        ("[vllm]     | INFO:     Application startup complete.", "Application startup complete.", "", Level.INFO),
        ("(EngineCore_DP0 pid=22) WARNING 10-25 13:08:43 [core.py:708] x", "x", "EngineCore_DP0", Level.WARNING),
        ("(Worker pid=1) (Worker_TP1 pid=1) ERROR 03-05 09:56:09 [a.py:880] x", "x", "Worker_TP1", Level.ERROR),
        ('(APIServer pid=1)   File "a.py", line 3', '  File "a.py", line 3', "APIServer", None),
        ("[2025-07-02 07:41:58 DP0 TP3] Load weight end.", "Load weight end.", "DP0 TP3", None),
        ("[2026-11-29 22:09:37] INFO:     Uvicorn running", "Uvicorn running", "", Level.INFO),
        ("[rank3]:[E822 16:31:16.135 ProcessGroupNCCL.cpp:632] [Rank 3] x", "[Rank 3] x", "3", Level.ERROR),
        ("E1129 23:28:00.610000 15264 torch/distributed/run.py:53] x", "x", "", Level.ERROR),
        ("gpu1:2143:2561 [1] include/shm.h:28 NCCL WARN x", "include/shm.h:28 NCCL WARN x", "gpu1:2143:2561", None),
        ("Mar 07 11:02:33 node vllm[8727]: x", "x", "", None),
        ("2026-03-07T11:02:33.123Z stderr F x", "x", "", None),
        ("\x1b[36m(RayWorker pid=4298, ip=192.0.2.7)\x1b[0m x", "x", "RayWorker", None),
        ("ESC[36m(vllm-test, pid=2150)ESC[0m x", "x", "vllm-test", None),
    ],
)
def test_prefixes_come_off_and_tell_source_and_level(raw: str, text: str, source: str, level: Level | None) -> None:
    (line,) = parse_line(raw)
    assert (line.text, line.source, line.level) == (text, source, level)


def test_a_progress_bar_gives_its_states_and_the_message_behind_it() -> None:
    bar = "Capturing: 0%| | 0/8 [00:00<?, ?it/s]\rCapturing: 50%|#| 4/8 [00:00<00:00, 9.1it/s]"
    texts = [line.text for line in parse_line(f"{bar}(Worker_TP1 pid=3) INFO 11-29 21:33:43 [a.py:1] x")]
    assert len(texts) == 3
    assert texts[-1] == "x"


def test_a_pattern_is_found_in_a_line_in_wrapped_lines_and_over_several_source_lines() -> None:
    pattern = re.compile(r"No\s*available\s*memory\s*for\s*the\s*cache")
    for lines in (["No available memory for the cache"], ["No avail", "able memory for the ca", "che"]):
        (hit,) = LogDocument(lines).find(pattern)
        assert (hit.first, hit.last) == (0, len(lines) - 1)


def test_lines_of_two_ranks_are_not_joined() -> None:
    lines = ["[rank0]: illegal mem", "[rank1]: illegal mem", "[rank0]: ory", "[rank1]: ory"]
    hits = list(LogDocument(lines).find(re.compile("illegal memory")))
    assert [(hit.first, hit.last) for hit in hits] == [(0, 2), (1, 3)]


def test_a_flood_of_one_line_is_kept_a_few_times_only() -> None:
    document = LogDocument(f"request {n} done" for n in range(10_000))
    assert len(document.lines) == logs.MAX_REPEATS


def test_a_small_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo \xff\nthree")
    assert list(read_lines(path)) == ["one", "two \ufffd", "three"]


def test_of_a_large_file_head_tail_and_trouble_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "HEAD_BYTES", 1_000)
    monkeypatch.setattr(logs, "TAIL_BYTES", 1_000)
    path = tmp_path / "a.log"
    quiet = "".join(f"all is well here, step {n} of many\n" for n in range(1_000))
    path.write_text(f"first\n{quiet}RuntimeError: in the middle\n{quiet}last\n")
    lines = list(read_lines(path))
    assert lines[0] == "first"
    assert "RuntimeError: in the middle" in lines
    assert "last" in lines
    assert sum(map(len, lines)) < 5_000


def test_a_flood_of_errors_in_the_middle_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("HEAD_BYTES", 1_000), ("TAIL_BYTES", 1_000), ("MIDDLE_CHARS", 2_000)):
        monkeypatch.setattr(logs, name, value)
    path = tmp_path / "a.log"
    words = ("alpha", "beta", "gamma", "delta", "epsilon")
    path.write_text(
        "".join(
            f"error {a} {b} {c} {d} {n}\n" for n in range(9) for a in words for b in words for c in words for d in words
        )
    )
    assert sum(map(len, read_lines(path))) < 5_000


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"x" * 9_000_000 + b"\nRuntimeError: at the end\n")
    document = LogDocument.of(path)
    assert document.lines[-1].text == "RuntimeError: at the end"
    assert all(len(line.raw) <= logs.MAX_LINE for line in document.lines)
