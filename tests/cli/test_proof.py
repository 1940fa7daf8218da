"""`tuner study confirm`, `ablate` and `compare` with real server processes of the simulated engine."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.commands import TUNER, environment, runner, tuner

from tuner.errors import Stopped

SPACE = """
name: tiny
model: any/model
engines: {simulated: {flags: {--flavor: sglang, --time-scale: 60, --noise-scale: 0.3}}}
knobs:
  all_reduce: {switch: true, flag: --enable-custom-all-reduce}
  ignored: {values: [null, 8388608], env: NCCL_BUFFSIZE}
workload: {input_tokens: 32, output_tokens: 32, levels: [1, 8], repeats: 1}
budget: {trials: 5, baseline_launches: 2, launch_timeout_s: 60, benchmark_timeout_s: 90}
"""


def document(folder: Path, *arguments: str) -> Any:
    return json.loads(tuner(folder, *arguments, "--json").stdout)


def at_a_terminal(folder: Path, *arguments: str, answer: str) -> str:
    """Run a command that asks, answer it, and return what stood on the terminal; it must end as stopped."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        [*TUNER, *arguments], cwd=folder, env=environment(folder), stdin=its, stdout=its, stderr=its, close_fds=True
    ) as process:
        os.close(its)
        os.write(ours, f"{answer}\n".encode())
        shown = b""
        with contextlib.suppress(OSError):  # the other end was closed
            while part := os.read(ours, 4096):
                shown += part
        assert process.wait(300) == Stopped.exit_code
    os.close(ours)
    return shown.decode()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_finished_study_is_confirmed_and_taken_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = runner(tmp_path, monkeypatch, capsys)

    def told(*arguments: str) -> Any:
        """What a command that launches nothing says, run in this process."""
        return json.loads(here(*arguments, "--json").out)

    (tmp_path / "tiny.yaml").write_text(SPACE)
    tuner(tmp_path, "study", "start", "--space", "tiny.yaml", "--name", "night", "--yes")
    asked = ("study", "confirm", "night", "--top", "1", "--launches", "3")
    dry = told(*asked, "--dry-run")
    assert dry["rounds"] == 0
    (stage,) = dry["planned"]["stages"]
    assert [(arm["role"], arm["launches"]) for arm in stage["arms"]] == [("baseline", 3), ("finalist", 3)]
    assert dry["planned"]["launches"] == 6
    assert dry["planned"]["seconds"] > 0
    shown = here(*asked, "--dry-run").out
    assert ", ".join(stage["arms"][1]["changes"]) in shown.replace("=on", "")
    assert "at most 6 launches, about" in shown

    refused = at_a_terminal(tmp_path, *asked, answer="n")
    assert "will be launched: baseline and finalists, interleaved" in refused
    assert "at most 6 launches, about" in refused
    assert "nothing was started" in refused
    assert told("study", "confirm", "night", "--dry-run")["rounds"] == 0

    found = document(tmp_path, *asked)
    assert found["planned"] is None
    named = [{"engine": arm["engine"], "settings": arm["settings"]} for arm in found["arms"]]
    assert [arm["candidate"] for arm in stage["arms"]] == named
    assert found["simulated"] is True
    assert found["rounds"] == 3
    assert [arm["launches"] for arm in found["arms"]] == [3, 3]
    baseline, finalist = found["arms"]
    assert baseline["is_baseline"]
    assert finalist["changes"], "which one it is may be luck on a busy machine"
    assert finalist["effects"][0]["low"] < finalist["effects"][0]["change"] < finalist["effects"][0]["high"]

    again = document(tmp_path, "study", "confirm", "night", "--launches", "3")
    assert again["arms"] == found["arms"], "without --top it keeps the finalists it has"

    both = next(
        row["trial"]
        for row in told("study", "trials", "night")["trials"]
        if set(row["changes"]) == {"all_reduce", "ignored"}
    )
    take_apart = ("study", "ablate", "night", "--trial", str(both), "--launches", "2")
    planned = told(*take_apart, "--dry-run")["planned"]
    assert {"baseline", "winner", "without all_reduce"} <= {arm["role"] for arm in planned["stages"][0]["arms"]}
    shown = here(*take_apart, "--dry-run").out
    assert "what loses nothing dropped" in shown

    apart = document(tmp_path, *take_apart)
    assert apart["complete"]
    assert {row["setting"] for row in apart["rows"] if row["kind"] == "leave one out"} == {"all_reduce", "ignored"}
    inert = next(row for row in apart["rows"] if row["setting"] == "ignored")
    assert not inert["kept"]
    assert inert["note"].startswith("inactive")
    assert apart["minimal"]["settings"].get("ignored") is None

    verified = document(tmp_path, "study", "verify-knobs", "night", "--trial", str(both))
    assert {item["knob"]: item["state"] for item in verified["knobs"]}["ignored"] == "inactive"
    kept = told("study", "trials", "night")["trials"][-1]
    assert (kept["purpose"], set(kept["changes"]), set(kept["inactive"])) == (
        "verify",
        {"all_reduce", "ignored"},
        {"ignored"},
    )

    chosen = next(arm for arm in found["arms"] if arm["trial"] == found["chosen"])
    settings = {row["trial"]: row["settings"] for row in told("study", "trials", "night")["trials"]}
    usual = document(tmp_path, "study", "verify-knobs", "night")
    assert settings[usual["trial"]] == chosen["settings"], "what was confirmed, not what looks best"

    alone = here("study", "compare", "night")
    assert (alone.code, "one engine only" in alone.err) == (1, True)
