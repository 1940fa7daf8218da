"""Exports as people get them, byte for byte: a change of a template shows here as a readable difference.

To accept a change: `TUNER_ACCEPT=1 pytest tests/golden/export`, then read the difference before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import exports

from tuner.export.formats import FORMATS, SUFFIXES

HERE = Path(__file__).parent


@pytest.mark.parametrize("form", FORMATS)
def test_the_export_of_a_known_study_is_the_golden_one(form: str) -> None:
    plan = exports.served_plan(
        (
            *("--attention-backend", "flashinfer"),
            "--enable-metrics",
            *("--json-model-override-args", '{"rope_scaling": null, "note": "it\'s $5"}'),
            *("--api-key", "***"),
        ),
        {"NCCL_PROTO": "LL", "NCCL_ALGO": "ring,tree;allreduce:tree", "SGL_FORCE_SHUTDOWN": "1"},
        trial_only_env=("SGL_FORCE_SHUTDOWN",),
    )
    text = FORMATS[form](exports.export(plan))
    golden = HERE / f"night{SUFFIXES[form]}"
    if os.environ.get("TUNER_ACCEPT"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
