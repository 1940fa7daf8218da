"""`tuner space …` as a user runs it: a process of its own, from a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BAD = """\
name: bad
model: m
modle: x
engines:
  sglang:
    flags: {--tpp: 8}
knobs:
  a: {int: {low: 9, high: 1}, env: A}
"""


class Tuner:
    """Runs the command in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "COLUMNS": "160"}
        self.env.pop("TUNER_SPACES", None)

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "tuner.cli.main", *arguments]
        return subprocess.run(argv, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=120)


@pytest.fixture
def tuner(tmp_path: Path) -> Tuner:
    return Tuner(tmp_path)


def test_check_of_a_sound_space(tuner: Tuner) -> None:
    done = tuner("space", "check", "quickstart")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip().endswith("quickstart.yaml: ok (simulated)")


def test_check_shows_warnings_and_still_succeeds(tuner: Tuner) -> None:
    done = tuner("space", "check", "sm120")
    assert done.returncode == 0
    assert "ok (sglang, vllm, 2 warnings)" in done.stdout
    assert "--num-continuous-decode-steps has no effect" in done.stderr


def test_check_reports_every_mistake_with_its_line_and_a_caret(tuner: Tuner) -> None:
    (tuner.folder / "bad.yaml").write_text(BAD)
    done = tuner("space", "check", "bad.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert "bad.yaml:3:1 modle: unknown key" in done.stderr
    assert "bad.yaml:6:13 engines.sglang.flags.--tpp: --tpp is unknown" in done.stderr
    assert "bad.yaml:8:12 knobs.a.int: low 9 is above high 1" in done.stderr
    assert "    modle: x\n    ^\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_check_as_json_lists_errors_on_stdout(tuner: Tuner) -> None:
    (tuner.folder / "bad.yaml").write_text(BAD)
    done = tuner("space", "check", "bad.yaml", "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["ok"] is False
    assert [(error["line"], error["path"]) for error in report["errors"]] == [
        (3, "modle"),
        (6, "engines.sglang.flags.--tpp"),
        (8, "knobs.a.int"),
    ]
    sound = json.loads(tuner("space", "check", "sm120", "--json").stdout)
    assert (sound["ok"], sound["engines"], len(sound["warnings"])) == (True, ["sglang", "vllm"], 2)


def test_a_missing_file_is_one_clear_line(tuner: Tuner) -> None:
    done = tuner("space", "check", "gone.yaml")
    assert done.returncode == 1
    assert "error: gone.yaml: no such space file in" in done.stderr
    assert "Traceback" not in done.stderr


def test_show_tells_knobs_conditions_and_size(tuner: Tuner) -> None:
    done = tuner("space", "show", "quickstart")
    assert done.returncode == 0
    assert "simulated 1: 5 knobs, 143 combinations" in done.stdout
    assert "custom_all_reduce == off" in done.stdout
    assert "unset, LL, LL128, Simple" in done.stdout
    assert "forbidden: decode_steps > 4 and attention_backend == torch_native" in done.stdout


def test_show_as_json_has_its_documented_keys(tuner: Tuner) -> None:
    shown = json.loads(tuner("space", "show", "quickstart", "--json").stdout)
    assert set(shown) == {
        *("name", "description", "file", "hash", "model", "hardware", "levels", "rates", "objectives"),
        *("limits", "rules", "warnings", "engines"),
    }
    engine = shown["engines"]["simulated"]
    assert (engine["combinations"], engine["exact"]) == (143, True)
    knob = next(knob for knob in engine["knobs"] if knob["name"] == "nccl_proto")
    assert knob["values"] == "unset, LL, LL128, Simple"
    assert (knob["lands"], knob["kind"], knob["when"], knob["baseline"], knob["likely"]) == (
        "NCCL_PROTO",
        "env",
        "custom_all_reduce == off",
        "unset",
        ["LL"],
    )


def test_list_names_shipped_and_own_spaces(tuner: Tuner) -> None:
    own = tuner.folder / "own"
    own.mkdir()
    (own / "broken.yaml").write_text("name: [\n")
    tuner.env["TUNER_SPACES"] = str(own)
    rows = {row["name"]: row for row in json.loads(tuner("space", "list", "--json").stdout)["spaces"]}
    assert {"quickstart", "sm90", "sm100", "sm120", "cpu", "broken"} <= set(rows)
    assert rows["sm120"]["engines"] == ["sglang", "vllm"]
    assert "broken.yaml:2:1" in rows["broken"]["error"]
    listed = tuner("space", "list")
    assert listed.returncode == 0
    assert "has errors: own/broken.yaml:2:1" in listed.stdout


def test_schema_is_a_json_schema(tuner: Tuner) -> None:
    schema = json.loads(tuner("space", "schema").stdout)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert {"name", "model", "engines", "knobs"} <= set(schema["properties"])


@pytest.mark.parametrize("command", [[], ["check"], ["show"], ["list"], ["schema"]])
def test_help_is_there(tuner: Tuner, command: list[str]) -> None:
    done = tuner("space", *command, "--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_a_missing_argument_is_a_usage_error(tuner: Tuner) -> None:
    assert tuner("space", "check").returncode == 2
