"""Ranks that fail, hang, sum wrongly or die: real processes under the real guard, without torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from tuner.domain.launch import LaunchPlan
from tuner.domain.outcome import FailureClass
from tuner.domain.probe import Backend
from tuner.probe.order import Order, Patience, PlannedRun
from tuner.probe.watch import RanksWatch, Seen

PROGRAM = Path(__file__).parents[2] / "support" / "scripted_ranks.py"
PLAN = LaunchPlan(engine="vllm", argv=(sys.executable,), env={}, host="127.0.0.1", port=0)


def probed(
    folder: Path, turns: Sequence[tuple[str, str]], *, cancelled_after: int | None = None, first_run_s: float = 2.0
) -> Seen:
    """Carry out turns of (setting, what it does)."""
    runs = tuple(
        PlannedRun(number, setting, {"DO": do, "NCCL_ALGO": "x"}, optional=number > 0)
        for number, (setting, do) in enumerate(turns)
    )
    order = Order(Backend.NCCL, 2, "bfloat16", (8192, 1 << 20), 60.0, "default", runs)
    said: list[str] = []
    watch = RanksWatch(
        plan=PLAN,
        folder=folder,
        patience=Patience(importing=30.0, first_run=first_run_s, shortest=1.0),
        program=PROGRAM,
        say=said.append,
        is_cancelled=lambda: cancelled_after is not None and len(said) >= cancelled_after,
    )
    return watch.carry_out(order)


def measured(seen: Seen) -> list[tuple[str, int]]:
    return [(run.setting, run.position) for run in seen.runs]


def failed(seen: Seen) -> dict[str, FailureClass]:
    return {failure.setting: failure.failure.failure_class for failure in seen.failures}


def nothing_is_left() -> bool:
    mine = psutil.Process().children(recursive=True)
    return not [child for child in mine if str(PROGRAM) in " ".join(child.cmdline())]


def test_every_run_is_measured_at_every_size(tmp_path: Path) -> None:
    seen = probed(tmp_path, [("default", "work"), ("a", "work"), ("default", "work")])
    assert measured(seen) == [("default", 0), ("a", 1), ("default", 2)]
    assert set(seen.runs[0].times_us) == {8192, 1 << 20}
    assert seen.failures == []
    assert seen.library == "2.28.9"


def test_a_hang_is_named_and_the_other_settings_still_get_their_turn(tmp_path: Path) -> None:
    seen = probed(tmp_path, [("default", "work"), ("bad", "hang"), ("a", "work"), ("bad", "hang")])
    assert measured(seen) == [("default", 0), ("a", 2)]
    assert failed(seen) == {"bad": FailureClass.NCCL_HANG}
    (failure,) = seen.failures
    assert failure.failure.evidence[-1].startswith("stacks: ")
    stacks = Path(failure.failure.evidence[-1].removeprefix("stacks: "))
    assert "pid" in stacks.read_text()
    assert nothing_is_left()


def test_ncclS_own_words_decide_the_class_and_the_setting_is_blamed(tmp_path: Path) -> None:
    seen = probed(tmp_path, [("default", "work"), ("tree", "fail"), ("a", "work")])
    assert failed(seen) == {"tree": FailureClass.NCCL_CONFIG}
    assert "AllGather" in seen.failures[0].failure.evidence[0]
    assert "NCCL_ALGO" in seen.failures[0].failure.blames
    assert measured(seen) == [("default", 0), ("a", 2)]


def test_a_wrong_sum_is_wrong_output_whatever_its_speed(tmp_path: Path) -> None:
    seen = probed(tmp_path, [("default", "work"), ("quick", "wrong")])
    assert failed(seen) == {"quick": FailureClass.WRONG_OUTPUT}
    assert "8192" in seen.failures[0].failure.evidence[0]


def test_ranks_that_die_with_their_parent_cost_one_setting_only(tmp_path: Path) -> None:
    seen = probed(tmp_path, [("default", "work"), ("deadly", "die"), ("a", "work")])
    assert list(failed(seen)) == ["deadly"]
    assert measured(seen) == [("default", 0), ("a", 2)]


def test_when_the_default_hangs_nothing_else_is_tried(tmp_path: Path) -> None:
    seen = probed(tmp_path, [("default", "hang"), ("a", "work")], first_run_s=0.3)
    assert failed(seen) == {"default": FailureClass.NCCL_HANG}
    assert seen.runs == []
    assert nothing_is_left()


def test_a_program_that_cannot_be_started_fails_the_default(tmp_path: Path) -> None:
    plan = LaunchPlan(engine="vllm", argv=(str(tmp_path / "absent"),), env={}, host="127.0.0.1", port=0)
    order = Order(Backend.NCCL, 2, "bfloat16", (8192,), 60.0, "default", (PlannedRun(0, "default", {}, False),))
    seen = RanksWatch(plan=plan, folder=tmp_path, program=PROGRAM).carry_out(order)
    assert failed(seen) == {"default": FailureClass.ENV_SETUP}


def test_a_cancelled_probe_keeps_what_it_has_and_leaves_nothing_running(tmp_path: Path) -> None:
    seen = probed(tmp_path, [("default", "work"), ("a", "hang"), ("b", "work")], cancelled_after=2)
    assert measured(seen) == [("default", 0)]
    assert seen.failures == []
    assert nothing_is_left()


def test_patience_grows_with_what_runs_need_here_and_stays_bounded() -> None:
    patience = Patience(first_run=60, shortest=10, factor=4)
    assert patience.for_run(None) == 60
    assert patience.for_run(1.0) == 10
    assert patience.for_run(5.0) == 20
    assert patience.for_run(100.0) == 60
