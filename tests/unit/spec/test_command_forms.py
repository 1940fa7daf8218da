"""Launch commands in the many forms in which people write them down, beyond the collected cases."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.domain.catalogue import FlagCatalogue
from tuner.spec.command import import_command

SGLANG, VLLM = "python3 -m sglang.launch_server --model-path a/b", "vllm serve a/b"


@pytest.mark.parametrize(
    "text",
    [
        f"$ {VLLM}",
        f"me@box:~/work$ {VLLM}",
        f"root@box:/srv# {VLLM}",
        f"[root@gpu1 ~]# {VLLM}",
        f"(venv) me@box:~$ {VLLM}",
        f"```bash\n{VLLM}\n```",
        f"# start it\n{VLLM}",
        f"cd /srv && {VLLM}",
        f"nohup {VLLM} > log 2>&1 &",
        f"{VLLM} 2>&1 | tee out.log",
        f"exec {VLLM}",
        f"sudo -E {VLLM}",
        f"numactl --cpunodebind=0 --membind=0 {VLLM}",
        f"taskset -c 0-7 nice -n 5 {VLLM}",
        f"timeout 3600 {VLLM}",
        f"uv run {VLLM}",
        f"uv run --with vllm {VLLM}",
        f"conda run -n v --no-capture-output {VLLM}",
        f"srun -N1 --gpus=8 {VLLM}",
        f"bash -lc '{VLLM}'",
        f"if true; then {VLLM}; fi",
        "/opt/v/bin/vllm serve a/b",
        "M=a/b\nvllm serve $M",
        "M=a\nvllm serve ${M}/b",
        "vllm serve \\\n  a/b",
        "vllm serve \\  \n  a/b",
        "python -u -X faulthandler -m vllm.entrypoints.openai.api_server --model a/b",
        "python /x/vllm/entrypoints/openai/api_server.py --model a/b",
        "python -m vllm.entrypoints.cli.main serve a/b",
        "docker run --gpus all vllm/vllm-openai a/b",
        "docker run --gpus all vllm/vllm-openai --model a/b",
        f"docker run -it --rm --gpus=all -p8000:8000 --entrypoint bash x/vllm -c '{VLLM}'",
        "docker run --entrypoint vllm vllm/vllm-openai serve a/b",
        "podman run --device nvidia.com/gpu=all docker.io/vllm/vllm-openai:x --model a/b",
        f"docker exec -it c1 {VLLM}",
        f"[Service]\nExecStart=/usr/bin/env {VLLM}\n",
        "[Service]\nEnvironment=M=a/b\nExecStart=/opt/vllm serve ${M}\n",
        f"[Service]\nExecStart=/bin/bash -c 'source x && exec {VLLM}'\n",
        "[Service]\nExecStart=/usr/bin/docker run --gpus all vllm/vllm-openai:x a/b\n",
        "services:\n  v:\n    image: vllm/vllm-openai\n    command: --model a/b\n",
        "services:\n  v:\n    image: vllm/vllm-openai\n    command: [a/b]\n  db:\n    image: postgres\n",
        "services:\n  v:\n    image: x\n    entrypoint: [vllm, serve]\n    command: >-\n      ${M:-a/b}\n",
        "containers:\n- image: vllm/vllm-openai\n  args: [--model=a/b]\n",
        "containers:\n- image: x\n  command: [/bin/sh, -c]\n  args: ['vllm serve a/b']\n",
        "containers:\n- image: x\n  command: [vllm, serve, $(M)]\n  env: [{name: M, value: a/b}]\n",
        "spec: {containers: [{image: vllm/vllm-openai, args: [a/b]}]}\n---\nkind: Service\n",
        "model: a/b\nmax-num-seqs: 8\n",
    ],
)
def test_the_server_is_found_in_whatever_it_is_wrapped(text: str) -> None:
    command = import_command(text)
    assert command.refusal is None
    assert (command.engine, command.model) == ("vllm", "a/b")


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("--a 1 --b=2 --c", {"--a": "1", "--b": "2", "--c": True}),
        ("--a -1 --b -0.5", {"--a": "-1", "--b": "-0.5"}),
        ("--a '{\"x\": 1}' --b=[1,2]", {"--a": '{"x": 1}', "--b": "[1,2]"}),
        ("--a 1 2 4 --b", {"--a": ("1", "2", "4"), "--b": True}),
        ("--a= --b", {"--a": "", "--b": True}),
        ("-tp 4 -O3 -cc.mode=3", {"-tp": "4", "-O": "3", "-cc.mode": "3"}),
        ("--enable-x --a 1", {"--enable-x": True, "--a": "1"}),
        ("--enable-x=True --trust-remote-code false", {"--enable-x": "True", "--trust-remote-code": "false"}),
        ("--a 1 --a 2", {"--a": "2"}),
        ("\"--a\" 'b c'", {"--a": "b c"}),
        ("--a $'x' -- ", {"--a": "x"}),
    ],
)
def test_flags_in_every_style(flags: str, found: dict[str, Any]) -> None:
    assert import_command(f"vllm serve a/b {flags}").flags == found


def test_a_model_after_a_switch_is_no_value_of_it() -> None:
    command = import_command("vllm serve --trust-remote-code a/b --enable-lora")
    assert (command.model, command.flags) == ("a/b", {"--trust-remote-code": True, "--enable-lora": True})


def test_a_catalogue_settles_which_flags_take_values() -> None:
    catalogue = FlagCatalogue.from_json(
        {
            "engine": "vllm",
            "version": "1",
            "flags": [{"name": "--fast", "kind": "switch"}, {"name": "--sizes", "kind": "list"}, {"name": "--tp"}],
        }
    )
    command = import_command("vllm serve --fast a/b --sizes 1 2 --tp 4 x", engine="vllm", catalogue=catalogue)
    assert command.positional == ("a/b", "x")
    assert command.flags == {"--fast": True, "--sizes": ("1", "2"), "--tp": "4"}


@pytest.mark.parametrize(
    ("text", "env"),
    [
        (f"A=1 B='x y' {VLLM}", {"A": "1", "B": "x y"}),
        (f"export A=1\nexport B='x y' C\n{VLLM}", {"A": "1", "B": "x y"}),
        (f"env -i A=1 {VLLM}", {"A": "1"}),
        (f"A=1\n{VLLM}", {}),
        (f"export A=1\nA=2 {VLLM}", {"A": "2"}),
        (f"export A=1\nbash -c 'export B=2; {VLLM}'", {"A": "1", "B": "2"}),
        (
            "docker run -e A=1 --env B=2 --env=C=3 -eD=4 -e 'E=x y' -e F= x/vllm a/b",
            {"A": "1", "B": "2", "C": "3", "D": "4", "E": "x y", "F": ""},
        ),
        (
            f'[Service]\nEnvironment="A=1 2" B=3\nEnvironment=C=4\nExecStart=/x/{VLLM}\n',
            {"A": "1 2", "B": "3", "C": "4"},
        ),
        ("services: {v: {image: x/vllm, command: a/b, environment: {A: 1, B: 'yes'}}}", {"A": "1", "B": "yes"}),
        (
            "services: {v: {image: x/vllm, command: a/b, environment: [A=1, 'B=${X:-2}', C=$$x]}}",
            {"A": "1", "B": "2", "C": "$x"},
        ),
    ],
)
def test_variables_that_reach_the_server(text: str, env: dict[str, str]) -> None:
    command = import_command(text)
    assert (command.refusal, command.env) == (None, env)


def test_variables_of_the_caller_are_named_not_valued() -> None:
    assert import_command("docker run -e A -e B=1 x/vllm a/b").env_passthrough == ("A",)
    assert import_command("services: {v: {image: x/vllm, command: a/b, environment: {A: }}}").env_passthrough == ("A",)


def test_secrets_of_a_manifest_are_references() -> None:
    command = import_command(
        "containers:\n- image: x/vllm\n  args: [a/b]\n  env:\n"
        "  - name: T\n    valueFrom: {secretKeyRef: {name: s, key: k}}\n"
    )
    assert (command.env, command.env_secrets) == ({}, {"T": "s/k"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("hello world", "no command here starts a server"),
        ("vllm serve $M", "these variables have no value here: M"),
        ("vllm serve <model>", "these variables have no value here: <model>"),
        ("vllm serve $(cat model.txt)", "no value here: $(cat model.txt)"),
        ("vllm serve a/b --x '{", "the quote ' on line 1 has no end"),
        ("vllm bench serve --model a/b", "vllm bench is no server"),
        ("python -m sglang.bench_serving --port 1", "sglang.bench_serving is no server"),
        ("python -m sglang_router.launch_router --worker-urls x", "router in front of workers"),
        ("trtllm-serve a/b", "trtllm-serve is no engine"),
        ("ollama serve", "ollama is no engine"),
        ("vllm serve a/b &\nvllm serve c/d &", "2 servers are started here"),
        ("bash start.sh", "no command here starts a server"),
        ("[Service]\nExecStart=/opt/run.sh\n", "/opt/run.sh, which hides the launch command"),
        ('[Service]\nExecStart=vllm serve "a/b\n', "the unit cannot be read: a quote in ExecStart= has no end"),
        ('[Service]\nEnvironment="A=1\nExecStart=vllm serve a/b\n', "a quote in Environment= has no end"),
        ("[Service]\nEnvironmentFile=/etc/v\nExecStart=/x/vllm serve $M\n", "they may stand in /etc/v"),
        ("docker run x/vllm /start.sh", "hides the launch command"),
        ("docker run --entrypoint /bin/sh x/vllm -c /opt/go", "hides the launch command"),
        ("docker run postgres", "starts no server that is known"),
        ("replicas: 2\nmodelSpec: {modelURL: a/b}\n", "no launch command"),
    ],
)
def test_refusals_say_why(text: str, reason: str) -> None:
    command = import_command(text)
    assert command.refusal is not None
    assert reason in command.refusal


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (f"source v/bin/activate\n{SGLANG}", "`source v/bin/activate` is not repeated"),
        (f"{SGLANG} --nnodes 2", "several nodes"),
        ("python -m vllm.entrypoints.api_server --model a/b", "no /v1 routes"),
        (f"{SGLANG} --tp 1 --tp 2", "--tp is given twice"),
        (f"{SGLANG} —tp 2", "typographic"),
        ("vllm serve a/b \\\n  # the port\n  --port 1", "a shell would end the command there"),
        (f"if x; then {SGLANG}; fi", "inside a condition"),
        ("docker run --env-file .env x/vllm a/b", "variables of .env are not seen"),
        ("vllm serve a/b --model c/d", "two models are named"),
    ],
)
def test_notes_tell_what_was_assumed(text: str, note: str) -> None:
    command = import_command(text)
    assert command.refusal is None
    assert any(note in one for one in command.notes), command.notes


def test_the_host_environment_is_never_consulted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("M", "a/b")
    assert import_command("vllm serve $M").refusal is not None


_fragments = st.sampled_from(
    [
        *("vllm serve a/b", "docker run", "-e A=1", "--entrypoint", "bash -c '", "'", '"', "$X", "${", "}", "$(", ")"),
        *(
            "\\\n",
            "\n",
            "export A=",
            "services:",
            "image: x/vllm",
            "- args:",
            "[Service]",
            "ExecStart=",
            "{",
            ": ",
            "#",
        ),
        *("(", "A=(", "if", "fi", "<", ">", "|", "&", "--x", "-1", "\t", "case", "esac", "`", "é", "\x00", "%i", "$$"),
    ]
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_fragments, max_size=14).map(" ".join) | st.lists(_fragments, max_size=14).map("".join))
def test_no_text_breaks_the_importer(text: str) -> None:
    command = import_command(text)
    assert command.importable is (command.refusal is None)
