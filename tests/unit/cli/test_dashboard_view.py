"""The files that the dashboard offers beside a trial."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from support import records

from tuner.cli.dashboard_view import _files


def test_a_log_is_shown_without_the_keys_that_an_engine_printed(tmp_path: Path) -> None:
    lines = "args: {'api_key': ['geheim'], 'tp': 2}\n" * 5_000
    (tmp_path / "server.log").write_bytes(b"\xff\n" + lines.encode() + b"HF_TOKEN=geheim")
    report = replace(records.measured_report(), artifacts={"log": "server.log"})
    attempt = replace(records.attempt(0, records.candidate(), report), run_dir=str(tmp_path))
    (shown,) = _files(attempt)
    with shown.read() as stream:
        content = stream.read()
    assert content.startswith(b"\xff\nargs: {'api_key': ***, 'tp': 2}\n")
    assert content.endswith(b"HF_TOKEN=***")
    assert content.count(b"\n") == 5_001
    assert b"geheim" not in content
