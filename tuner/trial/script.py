"""`launch.sh` and `plan.json`: a launch written down so that it can be read and repeated by hand, without secrets."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path

from tuner.domain.launch import LaunchPlan
from tuner.secrets import HIDDEN, is_secret_name, redact, redact_arguments, redact_env
from tuner.trial.environment import fixed_variables, inherited_names

SCRIPT = "launch.sh"
PLAN = "plan.json"


def write_launch_files(plan: LaunchPlan, run_dir: Path) -> None:
    """Write both files into the run directory."""
    script = run_dir / SCRIPT
    script.write_text(launch_script(plan, run_dir))
    script.chmod(0o755)
    shown = dataclasses.replace(
        plan,
        argv=tuple(redact_arguments(plan.argv)),
        env=redact_env(plan.env),
        model=redact(plan.model),
        served_model=redact(plan.served_model),
    )
    (run_dir / PLAN).write_text(json.dumps(dataclasses.asdict(shown), indent=2) + "\n")


def launch_script(plan: LaunchPlan, run_dir: Path) -> str:
    """A POSIX shell script that starts the same server with the same environment, in the foreground.

    A secret is asked for by name: the script stops with a message when the variable is not set.
    """
    asked: list[str] = []
    variables = []
    for name in inherited_names(plan):
        variables.append(f'${{{name}+{name}="${name}"}}')
    for name, value in fixed_variables(plan).items():
        if is_secret_name(name):
            asked.append(name)
            variables.append(f'{name}="${name}"')
        else:
            variables.append(shlex.quote(f"{name}={redact(value)}"))
    words = []
    for argument in redact_arguments(plan.argv):
        if HIDDEN in argument and argument not in plan.argv:
            name = f"TUNER_SECRET_{len(asked) + 1}"
            asked.append(name)
            words.append(shlex.quote(argument).replace(HIDDEN, f"'\"${name}\"'"))
        else:
            words.append(shlex.quote(argument))
    demands = [f': "${{{name}:?set {name} first: its value is a secret and was not written down}}"' for name in asked]
    command = " \\\n    ".join(["exec env -i", *variables, *words])
    return "\n".join(
        [
            "#!/bin/sh",
            "# Repeats one launch by hand; variables without a value here are taken from your own environment.",
            "# shellcheck disable=SC2016  # a dollar sign in a value is meant literally",
            *demands,
            f"cd {shlex.quote(plan.cwd or str(run_dir))} || exit 1",
            command,
            "",
        ]
    )
