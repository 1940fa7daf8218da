"""`tuner bench` as a user runs it, against a server on this machine."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.measuring import wait_for
from support.scripted_server import HANG, HEAD, good, plain, serving, token

from tuner.trial.ports import reserve_ports

TUNER = Path(sys.executable).with_name("tuner")
_OPTIONS = "--model m --levels 1,4 --input-tokens 4 --output-tokens 4 --repeats 1 --warmup 2 --precision 0.9"
QUICK = _OPTIONS.split()


def bench(url: str, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TUNER, "bench", url, *words], capture_output=True, text=True, timeout=120, env=env, check=False
    )


def test_json_is_one_document_on_stdout_and_words_go_to_stderr() -> None:
    with serving(good) as server:
        done = bench(server.url, *QUICK, "--json", "--seed", "7")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert (document["model"], document["seed"], document["url"]) == ("m", 7, server.url)
    assert document["workload"]["seed"] == 7  # arrivals follow it
    one, four = document["levels"]
    assert (one["level"], four["level"]) == (1, 4)
    assert four["valid"] is True
    row = next(row for row in four["measurements"] if row["metric"] == "output_tok_s")
    assert row["unit"] == "tok/s"
    assert row["samples"] == four["completed"]


def test_without_a_format_there_is_a_table() -> None:
    with serving(good) as server:
        done = bench(server.url, *QUICK)
    assert "C=4" in done.stdout
    assert "another launch may differ" in done.stderr


def test_files_csv_parquet_plot_and_raw_records(tmp_path: Path) -> None:
    rows, table, plot, raw = (tmp_path / name for name in ("o.csv", "o.parquet", "p.html", "raw"))
    with serving(good) as server:
        first = bench(server.url, *QUICK, "--csv", "-o", str(rows), "--plot", str(plot), "--raw", str(raw))
        second = bench(server.url, *QUICK, "--parquet", "-o", str(table))
    assert (first.returncode, second.returncode) == (0, 0)
    with rows.open() as file:
        found = list(csv.DictReader(file))
    assert {row["level"] for row in found} == {"1", "4"}
    assert all(float(row["center"]) >= 0 for row in found)
    import pandas as pd

    assert list(pd.read_parquet(table).columns) == list(found[0])
    assert "ttft_p50_ms" in plot.read_text(encoding="utf-8")
    assert {path.name for path in raw.iterdir()} >= {"requests-c1-r1.jsonl.gz", "requests-c4-r1.jsonl.gz"}


def test_a_files_name_says_its_form(tmp_path: Path) -> None:
    with serving(good) as server:
        done = bench(server.url, *QUICK, "-o", str(tmp_path / "o.json"))
    assert done.returncode == 0
    assert [level["level"] for level in json.loads((tmp_path / "o.json").read_text())["levels"]] == [1, 4]
    assert done.stdout == ""


def test_every_row_tells_the_state_of_cache_and_client() -> None:
    with serving(good) as server:
        done = bench(server.url, *QUICK, "--csv")
    for row in csv.DictReader(done.stdout.splitlines()):
        assert float(row["prompt_tokens"]) == 4
        assert row["cached_share"] == ""  # this server does not say
        assert 0 < float(row["client_cpu_share"]) < 1
        assert float(row["client_lag_ms"]) >= 0


def test_a_workload_of_spread_lengths_rates_and_limits_is_sent_as_told() -> None:
    lengths = ["--input-lengths", "kind=uniform,spread=0.5", "--output-lengths", "kind=uniform,spread=0.9,max=5"]
    rest = "--rates 40 --rate-seconds 0.5 --arrivals constant --goodput ttft_ms=60000 --shared-prefix 2"
    with serving(good) as server:
        words = "--model m --levels 1 --input-tokens 8 --output-tokens 4 --repeats 1 --warmup 2 --prefix-groups 3"
        done = bench(server.url, *words.split(), *lengths, *rest.split(), "--json")
    assert done.returncode == 0, done.stderr
    asked, prompts = ({f(body) for body in server.bodies} for f in (_asked, _prompt_length))
    assert len(asked) > 2
    assert max(asked) <= 5
    assert len(prompts) > 2
    assert prompts <= set(range(4, 13))
    assert len({tuple(body["prompt"][:2]) for body in server.bodies}) == 3
    _, rate = json.loads(done.stdout)["levels"]
    assert (rate["rate"], rate["asked"]) == (40.0, 20)
    (goodput,) = (row for row in rate["measurements"] if row["metric"] == "goodput_s")
    assert goodput["center"] > 0


def _asked(body: dict[str, Any]) -> int:
    return int(body["max_tokens"])


def _prompt_length(body: dict[str, Any]) -> int:
    return len(body["prompt"])


def test_on_a_terminal_levels_appear_as_they_are_measured() -> None:
    """The first level's row stands on the screen before the second level is done."""

    def slow_second(body: dict[str, Any], number: int) -> Any:
        return good(body, number, wait=0.3 if number > 12 else 0.002)

    with serving(slow_second) as server:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [TUNER, "bench", server.url, *QUICK, "--repeats", "1"], stdout=subprocess.DEVNULL, stderr=theirs
        )
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # a terminal that nobody holds any more ends with EIO
            while data := os.read(ours, 65536):
                seen += data
        os.close(ours)
        assert process.wait(60) == 0
    # Drawn while C=4 ran: the table with the row of C=1, then the line of progress.
    drawn = seen.decode()
    assert drawn.index("│ C=1") < drawn.rindex("C=4 run 1")


def test_an_interrupt_ends_it_and_its_load_processes() -> None:
    with serving(lambda _b, _n: [HEAD, token(), HANG]) as server:
        process = subprocess.Popen([TUNER, "bench", server.url, *QUICK], stdout=subprocess.DEVNULL, stderr=-1)
        wait_for(lambda: len(server.bodies) == 1)
        workers = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert workers
        wait_for(lambda: not any(worker.is_running() for worker in workers))
    assert process.returncode == 130
    assert b"Traceback" not in said


def test_an_invalid_level_is_shown_and_ends_with_exit_code_1() -> None:
    def busy(body: dict[str, Any], number: int) -> Any:
        return [plain("503 Busy", b"full")] if number == 20 else good(body, number)

    with serving(busy) as server:
        done = bench(server.url, *QUICK, "--levels", "12", "--json")
    assert done.returncode == 1
    (level,) = json.loads(done.stdout)["levels"]
    assert level["valid"] is False
    assert level["measurements"] == []
    assert "HTTP 503: full" in next(iter(level["errors"]))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--levels", "1,x"], 2, "--levels 1,x"),
        (["--levels", "8,1"], 2, "--levels: must ascend"),
        (["--json", "--csv"], 2, "choose one of"),
        (["--parquet"], 2, "needs a file"),
        (["-o", "results"], 2, "in which form"),
        (["--json", "-o", "/nowhere/results.json"], 1, "cannot be written"),
        (["--plot", "/nowhere/plot.html"], 1, "cannot be written"),
        (["--input-lengths", "lognormal"], 2, "expected name=value"),
        (["--output-lengths", "kind=even"], 2, "--output-lengths kind: must be 'fixed'"),
        (["--goodput", "speed=3"], 2, "--goodput speed: unknown key (known here: ttft_ms, tpot_ms, e2e_ms)"),
        (["--turns", "2", "--shared-prefix", "2"], 2, "choose one of"),
        (["--api-key-env", "NO_SUCH_KEY"], 2, "NO_SUCH_KEY is not set"),
        (["--dataset", "/nowhere.jsonl"], 1, "cannot be read"),
        (["--tokenizer", "/nowhere"], 1, "no tokenizer.json"),
        ([], 1, "does not take connections"),
    ],
)
def test_what_is_wrong_is_one_line_and_an_exit_code(words: list[str], code: int, said: str) -> None:
    done = bench("http://127.0.0.1:9", *QUICK, *words)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_names_no_model_needs_one() -> None:
    with serving(good) as server:
        done = bench(server.url, "--levels", "1")
    assert done.returncode == 2
    assert "--model" in done.stderr


def test_the_key_is_sent_and_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_KEY", "s3cr3t-value")
    with serving(good) as server:
        done = bench(server.url, *QUICK, "--json", "--api-key-env", "BENCH_KEY")
    assert b"Bearer s3cr3t-value" in server.heads[0]
    assert "s3cr3t" not in done.stdout + done.stderr


def test_levels_measured_before_the_server_went_away_are_still_given() -> None:
    def leaves(body: dict[str, Any], number: int) -> Any:
        return [HEAD, token(), HANG] if number > 8 else good(body, number)

    with serving(leaves) as server:
        done = bench(server.url, *QUICK, "--timeout", "1", "--levels", "1,30", "--json")
    assert done.returncode == 1
    assert [level["level"] for level in json.loads(done.stdout)["levels"]] == [1]
    assert " a token for 1" in done.stderr


def test_a_simulated_server_is_called_so_and_measured_in_its_own_seconds() -> None:
    with reserve_ports(1) as lease:
        url = f"http://127.0.0.1:{lease.ports[0]}"
        options = ["--model", "m", "--port", str(lease.ports[0]), "--time-scale", "20", "--noise-scale", "0"]
        server = subprocess.Popen(
            [sys.executable, "-m", "tuner.engines.simulated", *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
        try:
            words = ["--levels", "1", "--input-tokens", "512", "--output-tokens", "128", "--repeats", "1", "--json"]
            deadline = time.monotonic() + 60
            while (done := bench(url, *words)).returncode != 0:
                assert time.monotonic() < deadline, done.stderr
                time.sleep(0.5)
        finally:
            server.terminate()
            server.wait(30)
    document = json.loads(done.stdout)
    assert document["simulated"] is True
    assert "simulated" in done.stderr
    row = next(row for row in document["levels"][0]["measurements"] if row["metric"] == "output_tok_s")
    # The model's own speed for these settings; unscaled, the clock on the wall would show twenty times as much. A busy
    # machine may slow the client down by much.
    assert 63.6 / 5 < row["center"] < 63.6 * 1.2
