"""Every launch command of the public collection is understood as its row says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuner.spec.command import LaunchCommand, import_command

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "data" / "cases" / "launch.jsonl").read_text(encoding="utf-8").splitlines()
]


def flags_as_rows_have_them(command: LaunchCommand) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in command.flags.items()}


def env_as_rows_have_it(command: LaunchCommand) -> dict[str, Any]:
    return {**command.env, **{name: {"secretKeyRef": where} for name, where in command.env_secrets.items()}}


@pytest.fixture(params=ROWS, ids=[row["id"] for row in ROWS])
def row(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


def test_the_command_is_taken_apart_as_expected(row: dict[str, Any], tmp_path: Path) -> None:
    expected = row["expected"]
    text, config = row["text"], row["form"] == "vLLM --config YAML file"
    if config:
        # The row is the file; the command that names it stands in the row's launcher and model.
        (tmp_path / "serve.yaml").write_text(text)
        text = f"vllm serve {expected['model']} --config serve.yaml"

    command = import_command(text, folder=tmp_path)

    assert command.importable is expected["importable"], command.refusal
    assert (command.engine or "unknown") == expected["engine"]
    assert env_as_rows_have_it(command) == expected["env"]
    assert flags_as_rows_have_them(command) == expected["flags"]
    assert set(command.unresolved) == set(expected.get("unresolved", []))
    assert list(command.env_passthrough) == expected.get("env_passthrough", [])
    if not config:
        assert list(command.positional) == expected["positional"]
    if str(expected["model"]).startswith("AMBIGUOUS"):
        assert command.model is None
        assert any("two models" in note for note in command.notes)
    else:
        assert command.model == expected["model"]


def test_a_refusal_says_why_and_what_to_do(row: dict[str, Any]) -> None:
    command = import_command(row["text"])
    assert (command.refusal is None) == row["expected"]["importable"]
    if command.refusal is not None:
        assert len(command.refusal) > 30


def test_container_options_are_kept(row: dict[str, Any]) -> None:
    wanted = row["expected"].get("docker") or row["expected"].get("compose") or {}
    container = import_command(row["text"]).container
    for name in ("image", "gpus", "ipc", "shm_size", "network", "network_mode", "name", "entrypoint"):
        if name in wanted:
            assert container[name] == (wanted[name],)
    for name in ("ulimit", "publish"):
        if name in wanted:
            assert list(container[name]) == wanted[name]


def test_flags_that_a_wrapper_adds_are_named(row: dict[str, Any]) -> None:
    assert set(import_command(row["text"]).runtime_flags) == set(row["expected"].get("runtime_added_flags", []))


def test_the_launcher_is_named(row: dict[str, Any]) -> None:
    """The rows' launcher is prose; the program and what wraps it must be in ours."""
    launcher = import_command(row["text"]).launcher
    wanted = row["expected"]["launcher"].replace("…api_server", ".entrypoints.openai.api_server")
    for word in ("docker run", "compose", "k8s", "systemd", "vllm serve", "sglang serve", "sglang.launch_server"):
        assert (word in launcher) or (word not in wanted), launcher
