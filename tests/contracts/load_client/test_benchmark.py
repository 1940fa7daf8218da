"""The benchmark of the load client: a server that is never early and tells how late it was, and one line at the end."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.measuring import work

from benchmarks.loadgen import Run, compare
from benchmarks.loadgen_clients import Report
from tuner.loadgen.dialect import Dialect
from tuner.loadgen.job import Job
from tuner.loadgen.pool import LoadPool
from tuner.loadgen.prompts import Prompts
from tuner.loadgen.target import Target
from tuner.loadgen.vocabulary import ANY_VOCABULARY

ROOT = Path(__file__).parents[3]
TTFT_MS, ITL_MS, TOKENS = 20.0, 5.0, 4


@pytest.fixture
def port() -> Iterator[int]:
    """A running exact server."""
    words = f"-m benchmarks.exact_server --ttft-ms {TTFT_MS} --itl-ms {ITL_MS} --tokens {TOKENS}"
    process = subprocess.Popen([sys.executable, *words.split()], stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["port"]
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


def take_log(port: int) -> list[dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("DELETE", "/log")
    text = connection.getresponse().read()
    connection.close()
    return [json.loads(line) for line in text.splitlines()]


def test_no_token_is_early_for_the_schedule_and_none_arrives_before_it_was_written(port: int) -> None:
    dialect = Dialect("exact", "completions", ANY_VOCABULARY, as_ids=True)
    conversations = tuple(Prompts(work(), 1).conversations(6, dialect, "x"))
    with LoadPool() as pool:
        records = pool.run(Job(Target.parse(f"127.0.0.1:{port}"), dialect.path, 1, conversations)).records
    log = take_log(port)
    assert len(log) == len(records) == 6
    for entry, record in zip(log, records, strict=True):
        due = [TTFT_MS + k * ITL_MS for k in range(TOKENS)]
        assert all(written >= at for written, at in zip(entry["stamps_ms"], due, strict=True))
        assert entry["unread_ms"] >= 0
        assert record.sent_at <= entry["read_at"]
        arrived = [record.sent_at + offset / 1e6 for offset in record.offsets_us]
        written = [entry["read_at"] + stamp / 1000 for stamp in entry["stamps_ms"]]
        assert all(later > earlier - 1e-5 for earlier, later in zip(written, arrived, strict=True))
    assert take_log(port) == []


def test_an_error_is_what_a_client_reports_minus_what_the_server_logged() -> None:
    log = [{"read_at": float(n), "unread_ms": 0.5, "stamps_ms": [50.0 + 10 * k for k in range(128)]} for n in range(4)]
    row = compare(Run(Report(53.0, 57.0, 12.0, 96.97, (0.0, 10.0), 9.0), log, 1.0, 0.3), 1)
    assert (row.ttft_p50_error_ms, row.ttft_p99_error_ms) == (3.0, 7.0)
    assert row.itl_p99_error_ms == pytest.approx(2.0)
    assert row.tok_s_error_pct == pytest.approx(0.0, abs=0.01)  # 128 tokens in 50 + 127 · 10 ms
    assert (row.cpu_us_per_chunk, row.server_unread_p99_ms) == (9.0, 0.5)


def test_a_client_that_reports_no_cpu_is_charged_with_its_whole_command() -> None:
    log = [{"read_at": 0.0, "unread_ms": 0.0, "stamps_ms": [50.0, 60.0]}]
    assert compare(Run(Report(50.0, 50.0, None, 97.0), log, 0.004, 0.3), 1).cpu_us_per_chunk == 2000


@pytest.mark.slow
def test_the_last_line_of_the_benchmark_is_one_json_object() -> None:
    words = "-m benchmarks.loadgen --levels 1,2 --peers none"
    done = subprocess.run(
        [sys.executable, *words.split()], capture_output=True, text=True, cwd=ROOT, timeout=250, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == {"c1", "c2", "startup_s", "peers"}
    asked = {"ttft_p50_error_ms", "ttft_p99_error_ms", "itl_p99_error_ms", "tok_s_error_pct", "cpu_us_per_chunk"}
    assert asked <= set(found["c2"])
    assert found["startup_s"] > 0
