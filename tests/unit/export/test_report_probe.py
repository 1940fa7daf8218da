"""The report's part about the all-reduce probe."""

from __future__ import annotations

from tuner.domain.outcome import Failure, FailureClass, Phase
from tuner.domain.probe import Backend, MessageSize, ProbeFailure, ProbeReport, ProbeRun, ProbeSetting
from tuner.export.report_facts import Table
from tuner.export.report_probe import probe_parts

SIZE = MessageSize(8192, "decode at C=1")
SETTINGS = (ProbeSetting(), ProbeSetting({"proto": "Simple"}))


def test_advice_comes_first_and_every_setting_has_a_row() -> None:
    times = {"default": 12.0, "proto=Simple": 24.0}
    runs = tuple(
        ProbeRun(label, n, {SIZE.size_bytes: (us + 0.1 * (n % 2),)}) for label, us in times.items() for n in range(4)
    )
    *sentences, table = probe_parts(ProbeReport("vllm", Backend.NCCL, 2, "bfloat16", 32, (SIZE,), SETTINGS, runs))
    assert sentences[0] == "NCCL, 2 ranks, bfloat16: advice, not a decision."
    assert "no setting is faster than the default at decode sizes beyond noise" in sentences
    assert isinstance(table, Table)
    assert table.rows == (("default", "4", "12.1 (12.0–12.1)"), ("proto=Simple", "4", "24.1 (24.0–24.1) +100%"))


def test_collectives_that_do_not_work_have_no_table() -> None:
    failure = ProbeFailure("default", Failure(FailureClass.NCCL_HANG, Phase.NCCL_INIT))
    report = ProbeReport("vllm", Backend.NCCL, 2, "bfloat16", 32, (SIZE,), SETTINGS, failures=(failure,))
    assert not any(isinstance(part, Table) for part in probe_parts(report))
