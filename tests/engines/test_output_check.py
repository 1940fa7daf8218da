"""Real vLLM and real SGLang on the CPU, loaded with weights and then with others: only the right ones give numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.engines import VLLM_ON_ONE_CORE

from tuner.domain.candidate import Candidate
from tuner.domain.measurement import Measured
from tuner.domain.outcome import Failure, FailureClass
from tuner.domain.output import Agreement, OutputReference
from tuner.domain.space import Space
from tuner.domain.trial import Purpose, TrialReport, TrialRequest
from tuner.domain.values import Value
from tuner.trial import starting
from tuner.trial.output_check import ANSWERS
from tuner.trial.runner import run_trial
from tuner.trial.warm import WarmParents

CHECKOUT = Path(__file__).parents[2]
TOOLS = CHECKOUT / "tools"
BIN = {engine: CHECKOUT / ".engines" / engine / "bin" for engine in ("vllm", "sglang")}
ENGINES: dict[str, dict[str, Any]] = {
    "vllm": {
        "version": "0.32.0",
        "command": [str(BIN["vllm"] / "vllm"), "serve"],
        "flags": {"--enforce-eager": True, "--max-model-len": 512},
        "env": {"HF_HUB_OFFLINE": 1, "VLLM_CPU_KVCACHE_SPACE": 1, "VLLM_HOST_IP": "127.0.0.1", **VLLM_ON_ONE_CORE},
        "knobs": {"batch": {"values": [2, 8], "flag": "--max-num-seqs", "default": 8}},
    },
    "sglang": {
        "version": "0.5.23",
        "command": [str(BIN["sglang"] / "python"), "-m", "sglang.launch_server"],
        "flags": {
            "--device": "cpu",
            "--attention-backend": "torch_native",
            "--context-length": 512,
            "--max-total-tokens": 8192,
        },
        "env": {"HF_HUB_OFFLINE": 1, "SGLANG_USE_CPU_ENGINE": 1, "OMP_NUM_THREADS": 1},
        "knobs": {"batch": {"values": [2, 8], "flag": "--max-running-requests", "default": 8}},
    },
}

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not all(map(Path.exists, BIN.values())), reason="run `make engines`"),
]


@pytest.fixture(scope="module", autouse=True)
def parents() -> Iterator[None]:
    """Processes with the engines' imports, which are most of a start on a CPU; they end with this module."""
    own = WarmParents()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starting, "_PARENTS", own)
        yield
    own.close()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Two models that differ in nothing but their weights."""
    folder = tmp_path_factory.mktemp("models")
    made = {}
    for seed in (1, 2):
        made[seed] = folder / str(seed)
        run_tool("make_model.py", "--size", "tiny", "-o", made[seed])
        run_tool("make_weights.py", made[seed], "--seed", seed)
    return made


def run_tool(name: str, *arguments: object) -> None:
    subprocess.run([sys.executable, TOOLS / name, *map(str, arguments)], check=True, capture_output=True)


def launch(
    run_dir: Path,
    engine: str,
    model: Path,
    *,
    batch: Value = 8,
    purpose: Purpose = Purpose.SEARCH,
    reference: OutputReference | None = None,
) -> TrialReport:
    """Launch warm, as a search does, check, measure and tear down."""
    space = Space.model_validate(
        {
            "name": "answers",
            "model": str(model),
            "engines": {engine: ENGINES[engine]},
            "workload": {
                "input_tokens": 64,
                "output_tokens": 16,
                "levels": [1, 8],
                "repeats": 1,
                "single_stream_max_requests": 5,
                "warmup_requests": 2,
            },
            "budget": {"launch_timeout_s": 400, "benchmark_timeout_s": 300},
        }
    )
    request = TrialRequest(
        study="answers",
        trial=0,
        attempt=1,
        purpose=purpose,
        candidate=Candidate.of(space, engine, {"batch": batch}),
        space=space,
        workload=space.workload,
        run_dir=str(run_dir),
        reference=reference,
        warm=True,
    )
    return run_trial(request, gpus=(), notify=lambda event: None, cancelled=lambda: False)


@dataclass(frozen=True)
class Calibrated:
    """An engine whose baseline was launched twice."""

    engine: str
    reference: OutputReference
    relaunched: tuple[Agreement, Agreement]
    run_dir: Path


@pytest.fixture(scope="module", params=sorted(ENGINES))
def calibrated(
    request: pytest.FixtureRequest,
    models: dict[int, Path],
    parents: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Calibrated:
    engine: str = request.param
    folder = tmp_path_factory.mktemp(engine)
    first = launch(folder / "first", engine, models[1], purpose=Purpose.BASELINE)
    assert isinstance(first.outcome, Measured), first.outcome
    assert first.output is not None
    reference = OutputReference(first.output.prompts, first.output.answers)
    again = launch(folder / "again", engine, models[1], purpose=Purpose.BASELINE, reference=reference)
    assert isinstance(again.outcome, Measured), again.outcome
    assert again.output is not None
    alone, loaded = again.output.alone, again.output.loaded
    assert alone is not None
    assert loaded is not None
    own = replace(
        reference,
        own_alone=alone.share,
        own_loaded=min(loaded.share, first.output.loaded.share if first.output.loaded is not None else 1.0),
        own_drift=max(alone.drift or 0.0, loaded.drift or 0.0),
    )
    return Calibrated(engine, own, (alone, loaded), folder / "first")


def test_answers_come_with_tokens_their_log_probabilities_and_their_rivals(calibrated: Calibrated) -> None:
    for answer in calibrated.reference.answers:
        assert len(answer.pieces) == len(answer.logprobs) == len(answer.rivals) == 32
        assert all(value <= 0 for value in answer.logprobs)
        # Greedy: no rival is likelier than the token that was taken.
        for piece, own, rivals in zip(answer.pieces, answer.logprobs, answer.rivals, strict=True):
            assert rivals[piece] == pytest.approx(own)
            assert max(rivals.values()) == pytest.approx(own)
    kept = json.loads((calibrated.run_dir / ANSWERS).read_text())
    assert [len(kept[part]) for part in ("alone", "loaded")] == [8, 8]
    # The model does not say the same whatever it is asked, so that there is something to compare.
    assert len({answer.pieces for answer in calibrated.reference.answers}) == len(calibrated.reference.answers)


def test_the_same_weights_relaunched_agree_with_themselves(calibrated: Calibrated) -> None:
    for agreement in calibrated.relaunched:
        assert agreement.share > 0.95
        assert agreement.drift is not None
        assert agreement.drift < 0.05
        # Most tokens were compared, not excused.
        assert agreement.compared > 8 * 32 / 2


def test_another_setting_with_the_same_weights_is_measured(
    calibrated: Calibrated, models: dict[int, Path], tmp_path: Path
) -> None:
    report = launch(tmp_path, calibrated.engine, models[1], batch=2, reference=calibrated.reference)
    assert isinstance(report.outcome, Measured), report.outcome
    assert report.output is not None
    assert report.output.alone is not None
    assert report.output.loaded is not None
    assert min(report.output.alone.share, report.output.loaded.share) > 0.95


def test_other_weights_are_found_out_before_the_load(
    calibrated: Calibrated, models: dict[int, Path], tmp_path: Path
) -> None:
    report = launch(tmp_path, calibrated.engine, models[2], reference=calibrated.reference)
    failure = report.outcome
    assert isinstance(failure, Failure), failure
    assert failure.failure_class is FailureClass.WRONG_OUTPUT
    assert "of the tokens are the baseline's alone" in failure.detail


def test_other_weights_are_found_out_under_load(
    calibrated: Calibrated, models: dict[int, Path], tmp_path: Path
) -> None:
    blind = replace(calibrated.reference, own_alone=0.0)  # as if nothing had shown with one request at a time
    report = launch(tmp_path, calibrated.engine, models[2], reference=blind)
    failure = report.outcome
    assert isinstance(failure, Failure), failure
    assert failure.failure_class is FailureClass.WRONG_OUTPUT
    assert "of the tokens are the baseline's under load" in failure.detail
