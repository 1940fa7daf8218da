"""A study whose every configuration breaks a limit: its exit code and words say so, with a real simulated server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import tuner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SPACE = """\
name: sx
model: org/model
engines: {simulated: {flags: {--flavor: sglang, --time-scale: 100}}}
knobs: {nccl_proto: {values: [unset, LL], env: NCCL_PROTO}}
workload: {input_tokens: 16, output_tokens: 16, levels: [1, 4], repeats: 1, single_stream_max_requests: 5}
limits: [{metric: output_tok_s, level: 4, min: 1000000}]
budget: {trials: 1, baseline_launches: 1}
"""


def test_it_ends_with_the_code_for_nothing_feasible_and_the_limit_that_stood_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "sx.yaml").write_text(SPACE)
    done = tuner(tmp_path, "study", "start", "--space", "sx.yaml", "--name", "sx", "--yes", code=3)
    assert "the baseline itself breaks output_tok_s@4 min by " in done.stderr
    shown = tuner(tmp_path, "study", "front", "sx")
    assert "the baseline itself breaks output_tok_s@4 min by " in shown.stdout
    assert len(json.loads(tuner(tmp_path, "study", "front", "sx", "--json").stdout)["over_limit"]) == 1
