"""The exported script starts exactly the measured server, whatever characters its settings hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import exports

from tuner.domain.launch import LaunchPlan
from tuner.errors import InternalError
from tuner.export.script import script, shell_quote
from tuner.trial.environment import fixed_variables

# Stands in for a server: says what it was started with.
ECHO = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))"
PROGRAM = (sys.executable, "-Sc", ECHO)
NASTY = [
    "a b", "", "'", '"', "\\", "$HOME", "`id`", "$(id)", "a\nb", "\n", "\t", "\r\n", "!!", "*", "~", "{a,b}", "#x",
    "&|;<>()", "ünïcödé ☃ 𝄞", "‘quotes’ “here”", "-n", "--", "=", "a=b", "\x01\x1b[31m\x7f", "%s%%", "\\x41\\n",
    "'\\''", "[a]=b", "ring,tree;allreduce:tree", '{"cudagraph_mode": "FULL", "sizes": [1, 2]}',
    "a'b\"c\\d$e`f\ng", "\u2028\u0085\u200b",
]  # fmt: skip
any_text = exports.texts(NASTY)
env_names = st.from_regex(r"[A-Z_][A-Z0-9_]{2,12}", fullmatch=True).filter(
    lambda name: name not in {"CUDA_VISIBLE_DEVICES", "PATH", "LC_CTYPE"}
)


def run(text: str, folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    file = folder / "serve.sh"
    file.write_text(text, encoding="utf-8")
    command = ["bash", str(file), *arguments]
    base = {"PATH": os.environ["PATH"], "STRAY": "must not get through", "LC_ALL": "C"}
    return subprocess.run(command, env=base | env, cwd=folder, capture_output=True, text=True, check=False)


def started(text: str, folder: Path, *arguments: str, **env: str) -> tuple[list[str], dict[str, str], str]:
    done = run(text, folder, *arguments, **env)
    assert done.returncode == 0, done.stderr
    argv, seen, cwd = json.loads(done.stdout)
    return argv, seen, cwd


def echo_plan(arguments: tuple[str, ...], env: Mapping[str, str], **changes: object) -> LaunchPlan:
    return exports.served_plan(arguments, env, PROGRAM, **changes)


def on_usual_port(argv: Sequence[str]) -> list[str]:
    """A launch's arguments with the trial's port replaced by the one that SGLang takes by itself."""
    place = argv.index("--port") + 1
    return [*argv[:place], "30000", *argv[place + 1 :]]


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=st.lists(any_text, max_size=6).map(tuple), env=st.dictionaries(env_names, any_text, max_size=4))
def test_arguments_and_environment_arrive_unchanged(
    tmp_path: Path, arguments: tuple[str, ...], env: dict[str, str]
) -> None:
    plan = echo_plan(arguments, env)
    argv, seen, _cwd = started(script(exports.export(plan)), tmp_path)
    assert argv == on_usual_port(plan.argv[3:])
    assert {name: seen.get(name) for name in fixed_variables(plan)} == fixed_variables(plan)
    assert set(seen) - set(fixed_variables(plan)) <= {"PATH", "LC_ALL", "LC_CTYPE"}


def test_nasty_texts_arrive_unchanged_all_at_once(tmp_path: Path) -> None:
    plan = echo_plan(tuple(NASTY), {f"V{index}": text for index, text in enumerate(NASTY)})
    argv, seen, _cwd = started(script(exports.export(plan)), tmp_path)
    assert argv[-len(NASTY) :] == NASTY
    assert [seen[f"V{index}"] for index in range(len(NASTY))] == NASTY


def test_the_script_passes_shellcheck_without_exceptions(tmp_path: Path) -> None:
    plan = echo_plan(
        (*NASTY, "--api-key", "***", "--base=http://u:***@h"),
        {f"V{index}": text for index, text in enumerate(NASTY)} | {"HF_TOKEN": "***"},
        cwd="/a b/$c",
    )
    file = tmp_path / "serve.sh"
    file.write_text(script(exports.export(plan)), encoding="utf-8")
    shellcheck = Path(sys.executable).with_name("shellcheck")
    checked = subprocess.run(
        [str(shellcheck), "--severity=style", str(file)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"LC_ALL": "C.UTF-8"},
    )
    assert checked.stdout == ""
    assert "disable" not in file.read_text()


def test_host_port_and_gpus_can_be_set_from_outside(tmp_path: Path) -> None:
    text = script(exports.export(echo_plan((), {})))
    argv, seen, _cwd = started(text, tmp_path, HOST="0.0.0.0", PORT="8000", CUDA_VISIBLE_DEVICES="4,5")
    assert argv[argv.index("--host") + 1] == "0.0.0.0"
    assert argv[argv.index("--port") + 1] == "8000"
    assert seen["CUDA_VISIBLE_DEVICES"] == "4,5"


@pytest.mark.parametrize(("engine", "version", "port"), [("sglang", "0.5.23", "30000"), ("vllm", "0.32.0+cpu", "8000")])
def test_without_a_word_it_listens_where_the_engine_usually_does(
    tmp_path: Path, engine: str, version: str, port: str
) -> None:
    text = script(exports.export(echo_plan((), {}, engine=engine, engine_version=version)))
    argv, _env, _cwd = started(text, tmp_path)
    assert argv[argv.index("--port") + 1] == port
    header = text.split("set -euo pipefail")[0]
    assert f"PORT={port}" in header
    assert "31000" not in header


def test_a_flag_moves_it_as_well(tmp_path: Path) -> None:
    argv, _env, _cwd = started(script(exports.export(echo_plan((), {}))), tmp_path, "--port", "9000")
    assert argv[-2:] == ["--port", "9000"]  # both engines take the last of two


def test_ports_where_ranks_met_in_the_trial_are_left_to_the_engine(tmp_path: Path) -> None:
    plan = echo_plan(("--nccl-port", "31001", "--steps", "31001"), {"VLLM_PORT": "31001"}, extra_ports=(31001,))
    argv, seen, _cwd = started(script(exports.export(plan)), tmp_path)
    assert argv[-2:] == ["--steps", "31001"]
    assert "--nccl-port" not in argv
    assert seen["VLLM_PORT"] == "31001"  # a variable of another engine is a setting like any other
    vllm = replace(plan, engine="vllm", engine_version="0.32.0")
    argv, seen, _cwd = started(script(exports.export(vllm)), tmp_path)
    assert "--nccl-port" in argv
    assert "VLLM_PORT" not in seen


def test_a_number_that_happens_to_equal_the_port_is_left_alone(tmp_path: Path) -> None:
    argv, _env, _cwd = started(
        script(exports.export(echo_plan(("--max-total-tokens", "31000"), {}))), tmp_path, PORT="1"
    )
    assert argv[-2:] == ["--max-total-tokens", "31000"]


def test_arguments_of_the_script_are_added(tmp_path: Path) -> None:
    argv, _env, _cwd = started(script(exports.export(echo_plan((), {}))), tmp_path, "--log-level", "a b")
    assert argv[-2:] == ["--log-level", "a b"]


def test_variables_that_the_launch_takes_from_its_caller_get_through(tmp_path: Path) -> None:
    _argv, seen, _cwd = started(script(exports.export(echo_plan((), {}))), tmp_path, HF_TOKEN="a b", HOME="/h")
    assert (seen["HF_TOKEN"], seen["HOME"]) == ("a b", "/h")
    assert "STRAY" not in seen


def test_settings_that_served_measuring_only_are_left_out(tmp_path: Path) -> None:
    plan = echo_plan((), {"KEPT": "1", "SGL_FORCE_SHUTDOWN": "1"}, trial_only_env=("SGL_FORCE_SHUTDOWN",))
    _argv, seen, _cwd = started(script(exports.export(plan)), tmp_path)
    assert seen["KEPT"] == "1"
    assert "SGL_FORCE_SHUTDOWN" not in seen


def test_the_server_starts_in_the_folder_of_its_plan(tmp_path: Path) -> None:
    folder = tmp_path / "a 'b'\n$c"
    folder.mkdir()
    _argv, _env, cwd = started(script(exports.export(echo_plan((), {}, cwd=str(folder)))), tmp_path)
    assert cwd == str(folder)


class TestSecrets:
    def plan(self) -> LaunchPlan:
        return echo_plan(("--api-key", "***", "--url=http://u:***@h", "***"), {"WANDB_API_KEY": "***"})

    def test_a_hidden_secret_is_demanded_by_name_before_anything_starts(self, tmp_path: Path) -> None:
        done = run(script(exports.export(self.plan())), tmp_path)
        assert done.returncode != 0
        assert "API_KEY: its value is a secret" in done.stderr
        assert done.stdout == ""

    def test_secrets_from_the_environment_stand_where_they_stood(self, tmp_path: Path) -> None:
        given_secrets = {"API_KEY": "k e y", "URL": "p'w", "TUNER_SECRET_1": "$x", "WANDB_API_KEY": "w"}
        argv, seen, _cwd = started(script(exports.export(self.plan())), tmp_path, **given_secrets)
        assert argv[-4:] == ["--api-key", "k e y", "--url=http://u:p'w@h", "$x"]
        assert seen["WANDB_API_KEY"] == "w"
        assert "API_KEY" not in seen

    def test_the_star_mask_itself_is_never_passed_on(self) -> None:
        body = script(exports.export(self.plan())).split("set -euo pipefail")[1]
        assert "***" not in body


class TestHeader:
    def test_it_says_where_the_numbers_come_from(self) -> None:
        header = script(exports.export()).split("set -euo pipefail")[0]
        for fact in (
            "night, trial 7 (0123456789ab)",
            "2027-01-15T08:00:00+00:00",
            "sglang 0.5.23",
            "driver 590.44",
            "gpu: 8x RTX PRO 6000",
            "output_tok_s at C=1: 90.0 tok/s, 95 % interval 89.1–91.0 from launch to launch, n=3 launches, +41.6 %",
            "output_tok_s at C=128: 2,320 tok/s, n=1 launch\n",
            "nccl_proto: unset -> LL",
            "graphs: on -> unset",
        ):
            assert fact in header
        assert "SIMULATED" not in header

    def test_simulated_results_say_so_at_the_top(self) -> None:
        header = script(exports.export(simulated=True)).splitlines()
        assert header[4].startswith("# SIMULATED: no real engine was measured")

    def test_a_broken_limit_is_shouted(self) -> None:
        assert "# BREAKS LIMIT   ttft_p99_ms@128 max" in script(exports.export(broken=("ttft_p99_ms@128 max",)))

    def test_no_text_can_leave_its_comment(self, tmp_path: Path) -> None:
        evil = "x\ntouch owned\r\u2028touch owned"
        plan = replace(echo_plan((), {}), model=evil, engine_version=evil)
        export = exports.export(
            plan, study=evil, tuner_version=evil, versions={evil: evil}, machine={evil: evil}, broken=(evil,),
            changes={"knob": (evil, evil)},
        )  # fmt: skip
        started(script(export), tmp_path)
        assert not (tmp_path / "owned").exists()


def test_plain_words_stay_readable() -> None:
    assert shell_quote("--mem-fraction-static") == "--mem-fraction-static"
    assert shell_quote("ring,tree;allreduce:tree") == "'ring,tree;allreduce:tree'"


def test_a_name_that_no_environment_can_hold_is_a_defect() -> None:
    with pytest.raises(InternalError, match="no name of an environment variable"):
        script(exports.export(echo_plan((), {"A B": "1"})))
