"""`tuner study` that knows something beforehand, and goes on with another budget: from the outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import tuner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
SPACE = """\
name: tiny
model: org/model
engines:
  simulated:
    flags: {--flavor: sglang, --time-scale: 25}
knobs:
  nccl_proto:
    values: [unset, LL, LL128, Simple]
    env: NCCL_PROTO
    prior: {likely: [LL], reason: small messages}
  decode_steps: {int: {low: 1, high: 8, log: true}, flag: --num-continuous-decode-steps, default: 1}
workload: {input_tokens: 64, output_tokens: 16, levels: [1, 4], repeats: 1, single_stream_max_requests: 6}
budget: {trials: 5, baseline_launches: 1, confirm_launches: 0, launch_timeout_s: 90}
"""


def test_one_night_teaches_the_next_which_goes_on_with_a_larger_budget(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(SPACE, encoding="utf-8")
    first = tuner(tmp_path, "study", "start", "--space", "tiny.yaml", "--name", "night1", "--yes")
    assert "likely, tried first: nccl_proto = LL: small messages" in first.stderr
    assert "earlier study" not in first.stderr

    plan = tuner(tmp_path, "study", "start", "--space", "tiny.yaml", "--dry-run", "--stop-below", "1%")
    assert "1 earlier study fits: --warm-start night1" in plan.stderr
    assert "1.00% better than the best found in single_stream (90% confidence)" in plan.stderr

    refused = tuner(tmp_path, "study", "start", "--space", "tiny.yaml", "--warm-start", "nobody", "--yes", code=1)
    assert "there is no study nobody" in refused.stderr

    second = tuner(
        tmp_path, "study", "start", "--space", "tiny.yaml", "--name", "night2",
        "--warm-start", "night1", "--trials", "3", "--seed", "5", "--yes",
    )  # fmt: skip
    assert "warm start: night1:" in second.stderr
    status = json.loads(tuner(tmp_path, "study", "status", "night2", "--json").stdout)
    assert (status["trials"], status["state"]) == (3, "finished")
    told = tuner(tmp_path, "study", "explain", "night2", "1").stdout
    assert "of night1 taken into account" in told

    resumed = tuner(tmp_path, "study", "resume", "night2", "--trials", "4", "--sampler", "random")
    assert "from now on: budget.trials: 3 → 4" in resumed.stderr
    assert "from now on: sampler: tuner → random" in resumed.stderr
    front = json.loads(tuner(tmp_path, "study", "front", "night2", "--json").stdout)
    shown = {trial for s in front["front"] + front["beaten"] + front["over_limit"] for trial in s["trials"]}
    assert shown <= {0, 1, 2, 3}

    changed = (tmp_path / "tiny.yaml").read_text().replace("[unset, LL, LL128, Simple]", "[unset, LL, LL128]")
    (tmp_path / "other.yaml").write_text(changed, encoding="utf-8")
    other = tuner(tmp_path, "study", "resume", "night2", "--space", "other.yaml", code=1)
    assert "knobs.nccl_proto.values" in other.stderr
