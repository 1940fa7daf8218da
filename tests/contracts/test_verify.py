"""An exported script measured again by `tuner verify`: it holds, it does not, or it does not start."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import exports, trials

from tuner.cli.main import main
from tuner.domain.front import Estimate
from tuner.domain.load import LoadPoint
from tuner.domain.measurement import Measured, Metric, MetricAt
from tuner.domain.outcome import FailureClass
from tuner.domain.space import Objective
from tuner.domain.trial import TrialReport
from tuner.export.base import Number
from tuner.export.script import script
from tuner.trial.ports import is_free

pytestmark = pytest.mark.slow

Verify = Callable[..., tuple[int, dict[str, object]]]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> TrialReport:
    report = trials.run(tmp_path_factory.mktemp("trial"), flags={"--noise-scale": "0"})
    assert isinstance(report.outcome, Measured), report.outcome
    return report


@pytest.fixture
def verify(
    tmp_path: Path, measured: TrialReport, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Verify:
    """Export the launch with its throughput multiplied by `claim`, run the command; its exit code and document."""

    def run(claim: float = 0.1, change: Callable[[str], str] = str) -> tuple[int, dict[str, object]]:
        assert isinstance(measured.outcome, Measured)
        value = measured.outcome.value(MetricAt(Metric.OUTPUT_TOK_S, LoadPoint(level=8)))
        assert value is not None
        numbers = (Number(Objective(level=8), Estimate(value * claim), None),)
        export = exports.export(
            measured.plan,
            program=3,
            numbers=numbers,
            simulated=True,
            workload=trials.space().workload,
            machine=measured.machine,
            versions=measured.versions,
        )
        file = tmp_path / "serve.sh"
        file.write_text(change(script(export)))
        arguments = ["verify", str(file), "--runs", str(tmp_path / "runs"), "--tolerance", "0.3", "--json"]
        monkeypatch.setattr(sys, "argv", ["tuner", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert isinstance(code, int)
        return code, json.loads(capsys.readouterr().out or "{}")

    return run


# A busy machine may slow the time-lapsed server down by much; the claims leave room for that.


def test_a_script_that_does_what_it_promises_holds(verify: Verify) -> None:
    code, document = verify(claim=0.1)
    assert (code, document["holds"], document["changed"], document["simulated"]) == (0, True, {}, True)


def test_a_script_that_promises_more_than_it_does_is_found_out(verify: Verify) -> None:
    code, document = verify(claim=10.0)
    assert (code, document["holds"], document["failures"]) == (3, False, [])


def test_a_script_that_does_not_start_any_more_does_not_hold(verify: Verify, measured: TrialReport) -> None:
    code, document = verify(change=lambda text: text.replace("--time-scale", "--no-such-flag"))
    assert (code, document["holds"]) == (3, False)
    assert document["failures"]
    assert measured.plan is not None
    assert is_free(measured.plan.port)


def without_module(text: str) -> str:
    """The script of an environment that the engine was taken out of."""
    assert "tuner.engines.simulated" in text
    return text.replace("tuner.engines.simulated", "no_such_engine")


def without_program(text: str) -> str:
    """The script of an environment that is gone; what it remembers stays."""
    before, command, after = text.partition("\nserver=(")
    assert sys.executable in after
    return before + command + after.replace(sys.executable, "/no/such/python")


@pytest.mark.parametrize(
    ("change", "words"),
    [(without_module, "does not have it"), (without_program, "the program that starts the engine is not there")],
)
def test_a_script_whose_engine_is_gone_says_that_the_environment_is_broken(
    verify: Verify, change: Callable[[str], str], words: str
) -> None:
    code, document = verify(change=change)
    assert (code, document["holds"]) == (3, False)
    failures = document["failures"]
    assert isinstance(failures, list)
    (failure,) = failures
    assert failure["class"] == FailureClass.ENV_SETUP.value
    assert words in failure["detail"]
