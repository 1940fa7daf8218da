"""Problem files of others: what they may leave out, and how what is wrong with them is told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.problems import h200_vllm, protocol
from benchmarks.problems.blame import BrokenProblem
from benchmarks.search import main

TEXT = """
KNOBS = [
    {"name": "steps", "values": [1, 2, 4], "ordinal": True, "when": None},
    {"name": "MY-PROTO", "values": ["LL", "Simple"], "when": {"knob": "steps", "equals": 2}},
    {"name": "only", "values": ["this"]},
]
BASELINE = {"steps": 1, "only": "this"}
OBJECTIVES = [("latency", "minimize"), ("throughput", "maximize")]
REFERENCE = {"latency": 110.0, "throughput": 900.0}
HV_BEST = 1800.0
BEST_SINGLE = 90.0


def truth(assignment):
    latency = {1: 100.0, 2: 90.0, 4: 80.0}[assignment["steps"]]
    loss = {1: 0.0, 2: 20.0, 4: 200.0}[assignment["steps"]] + (assignment.get("MY-PROTO") == "Simple")
    return {"status": "ok", "values": {"latency": latency, "throughput": 1000.0 - loss}}


def evaluate(assignment, rng):
    return {**truth(assignment), "seconds": 10.0}
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str = "theirs.py", **changed: str) -> Path:
        text = TEXT
        for old, new in changed.items():
            assert old in text
            text = text.replace(old, new)
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return written


def replaced(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def told(path: Path, capsys: pytest.CaptureFixture[str], budget: int = 5) -> dict[str, float | None]:
    main(["--problem", str(path), "--seeds", "1", "--budget", str(budget), "--methods", "tuner", "--jobs", "1"])
    figures: dict[str, dict[str, float | None]] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return figures["theirs"]


def test_our_problems_go_by_their_names_and_others_by_their_files() -> None:
    folder = Path(protocol.__file__).parent
    problems = {file.stem for file in folder.glob("*.py") if _begins_as_problem(file)}
    assert problems == set(protocol.OURS)
    assert [protocol.file_of(name) for name in ("small", "./small.py")] == [folder / "small.py", Path("small.py")]


def _begins_as_problem(file: Path) -> bool:
    """By its text alone: working out the optimum takes seconds."""
    return re.search(r"^(KNOBS|PROBLEM|draw) = |^def draw\(", file.read_text(), re.MULTILINE) is not None


def test_a_name_that_is_none_is_answered_with_those_that_are() -> None:
    with pytest.raises(SystemExit, match=r"^smal: not a Python file, and none of small, full, .*h200_sglang$"):
        main(["--problem", "smal", "--seeds", "1", "--budget", "1", "--methods", "random", "--jobs", "1"])


def test_a_study_that_has_launched_every_candidate_ends_and_is_judged(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = told(write(), capsys, budget=50)
    assert figures["reached_98"] == 1.0
    assert figures["hv_regret_at_40"] == 0.0
    assert figures["ask_s_at_100"] is None


def test_what_a_problem_does_not_tell_is_null(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = replaced(replaced(write(), "HV_BEST = 1800.0\n", ""), "BEST_SINGLE = 90.0\n", "")
    figures = told(path, capsys, budget=41)
    assert {figures[name] for name in ("median_launches_to_98", "reached_98", "single_at_40", "hv_regret_at_40")} == {
        None
    }
    assert figures["hangs_at_40"] == 0.0


def test_one_objective_is_enough(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = replaced(write(), '("latency", "minimize"), ("throughput", "maximize")', '("throughput", "maximize")')
    replaced(path, "BEST_SINGLE = 90.0", "BEST_SINGLE = 1000.0")
    assert told(path, capsys)["median_launches_to_98"] == 1


def test_knobs_keep_the_names_and_values_that_the_file_knows(write: Write) -> None:
    problem = protocol.load(write())
    for _ in range(2):
        candidate = problem.baseline.of(problem.space, protocol.ENGINE, {"steps": 2, "knob_1": "Simple"})
        result = problem.launch(candidate, np.random.default_rng(0))
    assert result["values"] == {"latency": 90.0, "throughput": 979.0}


def test_numpy_values_are_values(write: Write) -> None:
    path = replaced(write(), "[1, 2, 4]", "list(__import__('numpy').array([1, 2, 4]))")
    assert protocol.load(path).baseline.values["steps"] == 1


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ('"values": ["this"]', '"values": []', 2, "KNOBS: engines.modelled.knobs.only: Value error, values is empty"),
        ('"name": "only"', '"name": "steps"', 2, "KNOBS: more than once: steps"),
        ('"equals": 2', '"equals": 3', 2, "KNOBS: MY-PROTO is active when steps is 3, which it never is"),
        ('{"steps": 1, ', '{"steps": 3, ', 7, "BASELINE: steps has no value 3"),
        ('{"steps": 1, ', "{", 7, "BASELINE: no value of steps"),
        ('{"steps": 1, ', '{"step": 1, ', 7, "BASELINE: step is none of the knobs"),
        ('"minimize"', '"min"', 8, "OBJECTIVES: latency has the direction 'min' instead of maximize or minimize"),
        ('"throughput": 900.0', '"other": 1.0', 9, "REFERENCE: no 'throughput'"),
        ("= 1800.0", "= 0.0", 10, "HV_BEST: 0 is not above 0"),
        ("HV_BEST", "1 / 0\nHV_BEST", 10, "cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_line(
    write: Write, old: str, new: str, line: int, reason: str
) -> None:
    path = replaced(write(), old, new)
    with pytest.raises(BrokenProblem) as told:
        protocol.load(path)
    assert str(told.value) == f"{path}:{line}: {reason}"


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ('{**truth(assignment), "seconds": 10.0}', 'assignment["nothing"]', 21, "evaluate: no 'nothing'"),
        (', "seconds": 10.0', "", 20, "evaluate: no 'seconds'"),
        ('"seconds": 10.0', '"status": "odd"', 20, "evaluate: status is 'odd' instead of ok, crash, oom, hang"),
    ],
)
def test_a_launch_that_goes_wrong_ends_the_benchmark_with_file_and_line(
    write: Write, old: str, new: str, line: int, reason: str
) -> None:
    path = replaced(write(), old, new)
    with pytest.raises(SystemExit) as told:
        main(["--problem", str(path), "--seeds", "1", "--budget", "3", "--methods", "random", "--jobs", "1"])
    assert str(told.value) == f"{path}:{line}: {reason}"


def test_a_file_that_is_none_or_lacks_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("KNOBS = []\n")
    with pytest.raises(BrokenProblem, match="not a search problem: no BASELINE, OBJECTIVES, REFERENCE, evaluate"):
        protocol.load(tmp_path / "empty.py")
    with pytest.raises(BrokenProblem, match=r"nothing\.py"):
        protocol.load(tmp_path / "nothing.py")
    (tmp_path / "broken.py").write_text("KNOBS = 1\nBASELINE = [\n")
    with pytest.raises(BrokenProblem, match=r"broken\.py:2: cannot be imported"):
        protocol.load(tmp_path / "broken.py")


def test_a_baseline_that_fails_is_told(write: Write) -> None:
    path = replaced(write(), '"status": "ok"', '"status": "crash"')
    with pytest.raises(BrokenProblem, match="the baseline fails"):
        protocol.load(path).at_baseline()


def test_the_recorded_effects_of_vllm_are_those_of_its_confirmation() -> None:
    """Its second confirmation had +8.2 % at one stream and +9.6 % [+0.7, +19.4] at 128 for these three settings."""
    problem = h200_vllm.PROBLEM
    winner = {"attention_backend": "TRITON_ATTN", "cuda_graph": "FULL", "max_batched_tokens": 4096}
    gains = [
        problem.truth({**problem.BASELINE, **winner})["values"][n] / b
        for n, b in zip(problem.REFERENCE, problem.base, strict=True)
    ]
    assert gains == pytest.approx([1.082, 1.096], abs=0.01)
    best_gain = problem.BEST_SINGLE / problem.base[0]
    assert best_gain == pytest.approx(gains[0])
    idle = problem.truth({**problem.BASELINE, "nccl_proto": "Simple"})["values"]
    assert idle == problem.truth(problem.BASELINE)["values"]
