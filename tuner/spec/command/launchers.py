"""Which server does a list of words start? Wrappers such as `nohup`, `numactl` and `env` are looked through."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

_MODULES = {
    "sglang.launch_server": "sglang",
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "tuner.engines.simulated": "simulated",
}
_SCRIPTS = {
    "sglang/launch_server.py": "sglang.launch_server",
    "vllm/entrypoints/openai/api_server.py": "vllm.entrypoints.openai.api_server",
    "vllm/entrypoints/api_server.py": "vllm.entrypoints.api_server",
}
_ROUTERS = ("sglang_router", "vllm_router", "sgl_router")
_FOREIGN = frozenset(
    {"trtllm-serve", "llama-server", "text-generation-launcher", "lmdeploy", "ollama", "tritonserver", "mlc_llm", "tgi"}
)
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_WRAPPERS = frozenset(
    {
        *("exec", "nohup", "sudo", "env", "time", "nice", "ionice", "stdbuf", "setsid", "numactl", "taskset", "chrt"),
        *("timeout", "uv", "uvx", "poetry", "pipenv", "conda", "mamba", "micromamba", "tini", "dumb-init", "command"),
        *(
            "catchsegv",
            "nsys",
            "ncu",
            "srun",
            "mpirun",
            "screen",
            "tmux",
            "systemd-run",
            "eval",
            "singularity",
            "apptainer",
        ),
    }
)
_PYTHON = re.compile(r"^(python|pypy)[0-9.]*$")
_PYTHON_OPTIONS_WITH_VALUE = frozenset({"-X", "-W"})
_ASSIGNMENT = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)=(.*)$", re.DOTALL)

Kind = Literal["server", "container", "shell", "foreign", "tool"]


@dataclass(frozen=True, slots=True)
class Launcher:
    """What a list of words starts.

    Attributes:
        kind: `server`: an engine; `container`: docker run and its like; `shell`: `bash -c SCRIPT`; `foreign`: a server
            that tuner does not know, or a router; `tool`: a program of an engine that serves nothing.
        name: how it is called in messages: `vllm serve`, `sglang.launch_server`.
        rest: the words after it; for a shell its script and the script's parameters.
        engine: for a server.
        env: assignments between a wrapper and the program (`env A=1 …`).
        words: the program's own words, as written (`python3 -m sglang.launch_server`).
    """

    kind: Kind
    name: str
    rest: tuple[str, ...] = ()
    engine: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    words: str = ""


def find_launcher(argv: Sequence[str]) -> Launcher | None:
    """What these words start, or None when it is nothing that concerns a server."""
    env: list[tuple[str, str]] = []
    wrapped = False
    for at, word in enumerate(argv):
        found = _at(argv[at:])
        # After a wrapper, `vllm vllm serve` is an option's value and then the program.
        if found is not None and not (wrapped and found.kind == "tool" and at + 2 < len(argv)):
            return Launcher(found.kind, found.name, found.rest, found.engine, tuple(env), found.words)
        if (assignment := _ASSIGNMENT.match(word)) is not None:
            env.append((assignment[1], assignment[2]))
            continue
        wrapped = wrapped or _base(word) in _WRAPPERS
        if not wrapped:
            return None
    return None


def _base(word: str) -> str:
    return PurePosixPath(word).name


def _at(argv: Sequence[str]) -> Launcher | None:
    """What starts exactly at the first word."""
    program, following = _base(argv[0]), argv[1:2]
    if program in ("vllm", "sglang"):
        words = " ".join((program, *following))
        if following == ["serve"] or following == ("serve",):
            return Launcher("server", words, tuple(argv[2:]), program, words=words)
        return Launcher("tool", words) if following and not following[0].startswith("-") else None
    if _PYTHON.match(program):
        return _python(argv)
    if program in _SHELLS:
        return _shell(argv)
    if program in _CONTAINERS and any(verb in argv[1:4] for verb in ("run", "exec", "create")):
        return Launcher("container", program, tuple(argv[1:]))
    if program in _FOREIGN:
        return Launcher("foreign", program)
    return None


def _python(argv: Sequence[str]) -> Launcher | None:
    at = 1
    while at < len(argv) and argv[at].startswith("-") and argv[at] not in ("-m", "-c"):
        at += 2 if argv[at] in _PYTHON_OPTIONS_WITH_VALUE else 1
    if at >= len(argv) or argv[at] == "-c":
        return None
    if argv[at] == "-m":
        module, rest = (argv[at + 1] if at + 1 < len(argv) else ""), tuple(argv[at + 2 :])
    else:
        known = [module for path, module in _SCRIPTS.items() if argv[at].endswith(path)]
        module, rest = (known[0] if known else ""), tuple(argv[at + 1 :])
    words = f"{_base(argv[0])} -m {module}"
    if module in _MODULES:
        return Launcher("server", module, rest, _MODULES[module], words=words)
    if module == "vllm.entrypoints.cli.main" and rest[:1] == ("serve",):
        return Launcher("server", "vllm serve", rest[1:], "vllm", words=words)
    if module.split(".")[0] in _ROUTERS:
        return Launcher("foreign", module, rest, words=words)
    if module.split(".")[0] in ("sglang", "vllm"):
        return Launcher("tool", module)
    return None


def _shell(argv: Sequence[str]) -> Launcher | None:
    for at, word in enumerate(argv[1:], start=1):
        if word.startswith("-") and not word.startswith("--") and "c" in word:
            # bash -c SCRIPT $0 $1 …
            return Launcher("shell", _base(argv[0]), (*argv[at + 1 : at + 2], *argv[at + 3 :]))
        if not word.startswith(("-", "+")):
            return None
    return None
