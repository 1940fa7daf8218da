"""The class of a failure does not hang on how its log was captured: prefixes, colours, wrapping, numbers, paths."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from support.failure_cases import read, read_cases

CASES = read_cases("failures.jsonl")

pytestmark = pytest.mark.slow


def compose(lines: list[str]) -> list[str]:
    return [f"inference-server-1  | {line}" for line in lines]


def journald(lines: list[str]) -> list[str]:
    return [f"Mar 07 11:02:{n % 60:02} gpu-node vllm[8727]: {line}" for n, line in enumerate(lines)]


def kubernetes(lines: list[str]) -> list[str]:
    return [f"2026-03-07T11:02:{n % 60:02}.123456789Z stdout F {line}" for n, line in enumerate(lines)]


def ray_with_colours(lines: list[str]) -> list[str]:
    return [f"\x1b[36m(RayWorkerWrapper pid=4298, ip=192.0.2.7)\x1b[0m {line}" for line in lines]


def colours_spelled_out(lines: list[str]) -> list[str]:
    return [f"ESC[31m{line}ESC[0m" for line in lines]


def windows_line_ends(lines: list[str]) -> list[str]:
    return [f"{line}\r" for line in lines]


def behind_a_progress_bar(lines: list[str]) -> list[str]:
    bar = "Loading safetensors checkpoint shards:  {:>3}% Completed | {}/4 [00:0{}<00:09,  1.02it/s]"
    return ["\r".join(bar.format(25 * n, n, n) for n in range(1, 4)) + lines[0], *lines[1:]]


def wrapped_at(width: int) -> Callable[[list[str]], list[str]]:
    def wrap(lines: list[str]) -> list[str]:
        return [line[start : start + width] for line in lines for start in range(0, max(1, len(line)), width)]

    wrap.__name__ = f"wrapped_at_{width}"
    return wrap


def other_numbers(lines: list[str]) -> list[str]:
    """Amounts, pids, line numbers and ports; not error codes and exit codes, which have meaning."""

    def change(match: re.Match[str]) -> str:
        return "".join(str((int(digit) + 3) % 9 + 1) if digit.isdigit() else digit for digit in match[0])

    return [re.sub(r"(?<![\w.-])(?:\d+\.\d+|\d{4,})(?![\w.])", change, line) for line in lines]


def other_paths(lines: list[str]) -> list[str]:
    moved = [
        re.sub(r"/(?:usr/local|opt/[a-z]+|sgl-workspace|workspace)/", "/Home/User/Engine-0.9/", line) for line in lines
    ]
    return [line.replace("python3.10", "python3.13").replace("python3.12", "python3.13") for line in moved]


def after_a_quiet_start(lines: list[str]) -> list[str]:
    return [*(f"INFO 03-03 01:01:{n:02} [utils.py:{n}] Preparing step {n}" for n in range(40)), *lines]


def each_line_of_every_rank(lines: list[str]) -> list[str]:
    return [copy for line in lines for copy in (line, line)]


CHANGES = [
    compose,
    journald,
    kubernetes,
    ray_with_colours,
    colours_spelled_out,
    windows_line_ends,
    behind_a_progress_bar,
    wrapped_at(70),
    wrapped_at(113),
    other_numbers,
    other_paths,
    after_a_quiet_start,
    each_line_of_every_rank,
]


@pytest.fixture(scope="module")
def classes() -> dict[str, str]:
    """What each case is called as it stands."""
    return {case.id: read(case) for case in CASES}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_every_class_survives(change: Callable[[list[str]], list[str]], classes: dict[str, str]) -> None:
    changed = {case.id: read(case, change(case.lines)) for case in CASES}
    assert changed == classes


def test_tear_down_after_the_cause_changes_nothing(classes: dict[str, str]) -> None:
    tear_down = [
        "(EngineCore pid=7) ERROR 02-11 20:42:58 [a.py:284] Worker proc VllmWorker-1 died unexpectedly",
        "[rank1]:[W303 01:01:02.3 ProcessGroupNCCL.cpp:1500] Warning: destroy_process_group() was not called",
        "RuntimeError: [pair.cc:547] Connection closed by peer [127.0.0.1]:36021",
        "[2026-02-02 01:01:05] Received sigquit from a child process. It usually means the child failed.",
        "Killed",
    ]
    # A hang has no cause in its log: there, these lines would be the first sign of another failure.
    failed = [case for case in CASES if case.true_cause not in ("none", "unknown") and case.exit != "hang"]
    assert {case.id: read(case, [*case.lines, *tear_down]) for case in failed} == {c.id: classes[c.id] for c in failed}
