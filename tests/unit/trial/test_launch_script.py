"""What a server's environment holds, and how a launch is written down."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from support.launches import rogue_plan

from tuner.trial.environment import build_environment
from tuner.trial.proctree import MARK
from tuner.trial.script import launch_script, write_launch_files

SHELLCHECK = Path(sys.executable).with_name("shellcheck")


def test_only_named_variables_come_from_the_caller() -> None:
    plan = rogue_plan("quiet", pass_env=("HF_HOME", "ABSENT"))
    caller = {"PATH": "/bin", "HF_HOME": "/models", "NCCL_ALGO": "Ring", "https_proxy": "http://proxy"}
    environment = build_environment(plan, caller, "id")
    assert environment["PATH"] == "/bin"
    assert environment["HF_HOME"] == "/models"
    assert {"NCCL_ALGO", "https_proxy", "ABSENT"}.isdisjoint(environment)


def test_the_thread_count_that_ray_sets_is_not_inherited_but_a_planned_one_is_set() -> None:
    caller = {"OMP_NUM_THREADS": "1"}
    assert "OMP_NUM_THREADS" not in build_environment(rogue_plan("quiet", pass_env=("OMP_NUM_THREADS",)), caller, "id")
    planned = rogue_plan("quiet", env={"OMP_NUM_THREADS": "8"})
    assert build_environment(planned, caller, "id")["OMP_NUM_THREADS"] == "8"


def test_unset_names_win_over_passed_ones() -> None:
    plan = rogue_plan("quiet", pass_env=("NCCL_DEBUG",), unset_env=("NCCL_DEBUG", "PATH"))
    assert not {"NCCL_DEBUG", "PATH"} & set(build_environment(plan, {"NCCL_DEBUG": "INFO", "PATH": "/bin"}, "id"))


def test_loopback_never_goes_through_a_proxy() -> None:
    plan = rogue_plan("quiet", env={"no_proxy": "internal.example"})
    environment = build_environment(plan, {}, "id")
    assert environment["no_proxy"] == environment["NO_PROXY"] == "internal.example,127.0.0.1,localhost,::1"


def test_the_gpus_of_the_plan_are_the_visible_ones() -> None:
    environment = build_environment(rogue_plan("quiet", gpus=(2, 3)), {"CUDA_VISIBLE_DEVICES": "0"}, "id")
    assert environment["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert "CUDA_VISIBLE_DEVICES" not in build_environment(rogue_plan("quiet"), {}, "id")


def test_every_launch_carries_its_mark() -> None:
    assert build_environment(rogue_plan("quiet"), {}, "abc")[MARK] == "abc"


def test_no_secret_reaches_a_file(tmp_path: Path) -> None:
    plan = rogue_plan(
        "quiet",
        env={"HF_TOKEN": "hunter2hunter2"},
        argv=("engine", "--api-key", "geheim", "--admin-api-key=geheim", "--port", "1"),
    )
    write_launch_files(plan, tmp_path)
    for path in tmp_path.iterdir():
        assert "hunter2" not in path.read_text()
        assert "geheim" not in path.read_text()


def test_the_script_asks_for_secrets_and_passes_them_on(tmp_path: Path) -> None:
    plan = rogue_plan("quiet", env={"HF_TOKEN": "x"}, argv=("printenv", "HF_TOKEN"))
    write_launch_files(plan, tmp_path)
    script = [str(tmp_path / "launch.sh")]
    refused = subprocess.run(script, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "set HF_TOKEN first" in refused.stderr
    given = {"PATH": os.environ["PATH"], "HF_TOKEN": "mine"}
    assert subprocess.run(script, env=given, capture_output=True, text=True, check=True).stdout == "mine\n"


def test_the_plan_hides_a_password_in_the_name_of_the_model(tmp_path: Path) -> None:
    plan = replace(rogue_plan("quiet"), model="https://joe:geheim@host/m", served_model="hf_geheimgeheimgeheim")
    write_launch_files(plan, tmp_path)
    assert "geheim" not in (tmp_path / "plan.json").read_text()


def test_a_secret_argument_is_asked_for_too(tmp_path: Path) -> None:
    plan = rogue_plan("quiet", argv=("echo", "--api-key=geheim", "it's"))
    write_launch_files(plan, tmp_path)
    given = {"PATH": os.environ["PATH"], "TUNER_SECRET_1": "a b"}
    done = subprocess.run([str(tmp_path / "launch.sh")], env=given, capture_output=True, text=True, check=True)
    assert done.stdout == "--api-key=a b it's\n"


def test_hostile_values_stay_single_arguments(tmp_path: Path) -> None:
    hostile = ("$(touch pwned)", "`id`", "a b", "new\nline", "quo'te", "")
    plan = rogue_plan("quiet", argv=("printf", "%s|", *hostile))
    write_launch_files(plan, tmp_path)
    done = subprocess.run(
        [str(tmp_path / "launch.sh")], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "".join(f"{word}|" for word in hostile)
    assert not (tmp_path / "pwned").exists()


def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    plan = rogue_plan("quiet", env={"A": "it's $x", "API_KEY": "s"}, pass_env=("HF_TOKEN",), gpus=(0,))
    script = tmp_path / "launch.sh"
    script.write_text(launch_script(plan, tmp_path))
    done = subprocess.run([str(SHELLCHECK), str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
