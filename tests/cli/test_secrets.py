"""After a whole study with exports, report and dashboard, no secret of its user stands in anything that it left."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import psycopg
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TUNER = (sys.executable, "-m", "tuner.cli.main")
TOKEN = "hf_QwErTyUiOpAsDfGhJkLzXcVb"
API_KEY = "plain-words-that-only-their-name-gives-away"
# Some of the launches fail, and say all that they know while they die.
SPACE = """\
name: secretive
model: org/model
engines:
  simulated:
    flags: {--time-scale: 100}
knobs:
  attention: {values: [triton, fa3, fa4], flag: --attention-backend, default: triton}
workload: {input_tokens: 64, output_tokens: 16, levels: [1, 4], repeats: 1, single_stream_min_requests: 2}
budget: {trials: 4, baseline_launches: 1, launch_timeout_s: 120}
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TUNER_STORAGE", "TUNER_RUNS", "TUNER_SPACES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("OPENAI_API_KEY", API_KEY)
    monkeypatch.setenv("TUNER_LOG", str(tmp_path / "tuner.log"))
    monkeypatch.setenv("TUNER_LOG_LEVEL", "debug")
    (tmp_path / "secretive.yaml").write_text(SPACE, encoding="utf-8")


def tuner(folder: Path, *arguments: str) -> str:
    """Everything that a command shows."""
    done = subprocess.run(
        [*TUNER, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def pages(folder: Path, storage: str) -> str:
    """What the dashboard tells a browser."""
    command = [*TUNER, "dashboard", "--storage", storage, "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as dashboard:
        try:
            assert dashboard.stderr is not None
            line = dashboard.stderr.readline()
            address = re.search(r"http://\S+/", line)
            assert address, line
            paths = ("dashboard", "api/studies", "api/studies/1", "api/meta")
            return line + "".join(_page(address[0] + path) for path in paths)
        finally:
            dashboard.kill()


def _page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def every_row(url: str) -> str:
    """Every row of every table, the sampler's own included."""
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return repr([connection.execute(f'SELECT * FROM "{name}"').fetchall() for (name,) in tables])


@pytest.mark.usefixtures("environment")
def test_no_secret_is_found_in_anything_that_a_study_leaves(tmp_path: Path, postgres_url: str) -> None:
    password = postgres_url.partition("://")[2].partition("@")[0].partition(":")[2]
    storage = ("--storage", postgres_url)
    shown = tuner(tmp_path, "study", "start", "--space", "secretive.yaml", "--name", "secretive", "--yes", *storage)
    for command in ("status", "trials", "front", "failures", "report"):
        shown += tuner(tmp_path, "study", command, "secretive", *storage)
    for form in ("sh", "compose", "systemd", "json", "md", "csv"):
        shown += tuner(
            tmp_path, "export", "secretive", "--pick", "throughput", "--format", form, "-o", f"out.{form}", *storage
        )
    shown += pages(tmp_path, postgres_url)
    told = {"what commands and dashboard show": shown, "the database": every_row(postgres_url)}
    told |= {
        str(path): path.read_bytes().decode("latin-1")
        for path in tmp_path.rglob("*")
        if path.is_file() and path.name != "secretive.yaml"
    }
    assert "unsupported" in shown, "no launch failed, so nothing was tempted to tell all"
    assert len(told) > 20
    for secret in (TOKEN, API_KEY, password):
        assert [where for where, text in told.items() if secret in text] == []
