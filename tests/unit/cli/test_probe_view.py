"""The probe on the command line: what is refused, what JSON and tables hold."""

from __future__ import annotations

import json

import pytest

from tuner.cli.doctor import doctor
from tuner.cli.probe_view import print_probe, probe_document
from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.probe import Backend, MessageSize, ProbeFailure, ProbeReport, ProbeRun, ProbeSetting
from tuner.errors import UsageError

SIZES = (MessageSize(8192, "decode at C=1"), MessageSize(1 << 20, "prefill of 128 tokens", decode=False))
FAILED = ProbeFailure(
    "algo=Tree", Failure(FailureClass.NCCL_CONFIG, Phase.NCCL_INIT, ("NCCL WARN",), detail="none left")
)


def report(*, works: bool = True) -> ProbeReport:
    """LL at half the default's time, four runs each; a bare Tree fails, and so does the default on request."""
    times = {"default": 20.0, "proto=LL": 10.0}
    runs = [
        ProbeRun(label, n, {size.size_bytes: (us + 0.1 * (n % 2),) for size in SIZES})
        for label, us in times.items()
        for n in range(4)
    ]
    settings = (ProbeSetting(), ProbeSetting({"proto": "LL"}, {"NCCL_PROTO": "LL"}), ProbeSetting({"algo": "Tree"}))
    failures = (FAILED,) if works else (ProbeFailure("default", Failure(FailureClass.NCCL_HANG, Phase.NCCL_INIT)),)
    return ProbeReport(
        "vllm", Backend.NCCL, 2, "bfloat16", 32, SIZES, settings, tuple(runs) if works else (), failures, 0, "2.28.9"
    )


def test_the_document_has_every_run_the_order_and_the_failures() -> None:
    document = json.loads(json.dumps(probe_document(report())))
    assert document["works"]
    assert document["order"] == ["proto=LL", "default"]
    assert document["likely"] == {"proto": ["LL"]}
    assert document["failures"][0]["class"] == "nccl_config"
    (row,) = [r for r in document["times"] if r["setting"] == "proto=LL" and r["bytes"] == 8192]
    assert row["runs_us"] == [10.0, 10.1, 10.0, 10.1]
    assert row["env"] == {"NCCL_PROTO": "LL"}
    assert row["change"]["high"] < 0
    assert next(r for r in document["times"] if r["setting"] == "default")["change"] is None


def test_a_host_whose_nccl_hangs_has_no_times_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    document = probe_document(report(works=False))
    assert not document["works"]
    assert "times" not in document
    assert document["advice"][0].startswith("NCCL does not work between 2 ranks here: nccl_hang")


@pytest.mark.parametrize("given", [{"space": "sm90"}, {"model": "m"}, {"engine": "vllm"}, {"tp": 2}])
def test_options_of_the_probe_need_the_probe(given: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="belong to --nccl"):
        doctor(**given)  # type: ignore[arg-type]


def test_the_table_marks_what_differs_beyond_noise(capsys: pytest.CaptureFixture[str]) -> None:
    print_probe(report())
    printed = capsys.readouterr().out
    assert "2.28.9" in printed
    (line,) = [line for line in printed.splitlines() if line.strip().startswith("proto=LL ")]
    assert "-50%" in line
    assert "→ algo=Tree fails: nccl_config: none left" in printed
