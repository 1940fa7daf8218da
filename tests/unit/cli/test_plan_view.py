"""The plan before a study: whose knobs it speaks of, and which of its times are bounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.commands import runner

SPACE = """\
name: two
model: org/model
engines:
  simulated:
    knobs:
      graph: {values: [unset, full], env: GRAPH, prior: {likely: [full], reason: fewer kernel launches}}
  vllm:
    knobs:
      graph: {values: [unset, FULL], env: GRAPH, prior: {likely: [FULL], reason: fewer kernel launches}}
knobs:
  nccl_proto: {values: [unset, LL], env: NCCL_PROTO, prior: {likely: [LL], reason: small messages}}
workload: {levels: [1, 4]}
budget: {trials: 10, launch_timeout_s: 60, benchmark_timeout_s: 60}
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sequence[str]:
    """The lines of the plan."""
    (tmp_path / "two.yaml").write_text(SPACE, encoding="utf-8")
    done = runner(tmp_path, monkeypatch, capsys)("study", "start", "--space", "two.yaml", "--dry-run")
    assert done.code == 0, done.err
    return [line.strip() for line in done.err.splitlines()]


def test_what_is_likely_names_the_engine_unless_all_share_it(plan: Sequence[str]) -> None:
    assert [line for line in plan if line.startswith("likely")] == [
        "likely, tried first: nccl_proto = LL: small messages",
        "likely, tried first with simulated: graph = full: fewer kernel launches",
        "likely, tried first with vllm: graph = FULL: fewer kernel launches",
    ]


def test_the_worst_case_says_what_it_supposes(plan: Sequence[str]) -> None:
    (worst,) = [line for line in plan if line.startswith("at the very worst")]
    assert worst.startswith(
        "at the very worst 20 min 0 s, if every launch takes as long as it may; an estimate follows"
    )
