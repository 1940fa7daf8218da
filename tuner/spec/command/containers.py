"""`docker run …` taken apart: options, image, and the words that the image is started with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# Docker's options without a value; every other option takes one (docs.docker.com/reference/cli/docker/container/run).
_SWITCHES = frozenset(
    {
        *("-d", "--detach", "-i", "--interactive", "-t", "--tty", "--rm", "--privileged", "--init", "--read-only"),
        *("-P", "--publish-all", "--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--disable-content-trust"),
        *("-q", "--quiet", "--replace", "--no-hosts"),
    }
)
_LONG = {"-e": "env", "-v": "volume", "-p": "publish", "-w": "workdir", "-u": "user", "-h": "hostname", "-m": "memory"}
_SAME = {"net": "network", "env": "env"}


@dataclass
class ContainerRun:
    """A container as it would be started.

    Attributes:
        verb: `run`, `create` or `exec`.
        image: image name; None for `exec` into a running one.
        words: program and arguments inside, entry point included when it is given.
        entrypoint: whether the words begin with a program that replaces the image's own.
        env: variables with a value.
        passed: variables taken from the caller.
        options: other options, long names with `_` → values.
        notes: what cannot be seen from here.
    """

    verb: str = "run"
    image: str | None = None
    words: tuple[str, ...] = ()
    entrypoint: bool = False
    env: dict[str, str] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def set_variable(self, text: str) -> None:
        """Take `NAME=value`, or `NAME` alone for the caller's value."""
        name, equals, value = text.partition("=")
        if equals:
            self.env[name] = value
        elif name not in self.passed:
            self.passed.append(name)

    def add_option(self, name: str, value: str) -> None:
        """Note an option; repeated ones collect."""
        self.options[name] = (*self.options.get(name, ()), value)


def read_container_run(words: Sequence[str]) -> ContainerRun:
    """Take the words after `docker` apart."""
    start = next((at for at, word in enumerate(words) if word in ("run", "exec", "create")), 0)
    run = ContainerRun(verb=words[start])
    at = start + 1
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        name, value, used = _option(words, at)
        at += used
        if name == "env":
            run.set_variable(value)
        elif name == "env_file":
            run.notes.append(f"variables of {value} are not seen here")
        elif value:
            run.add_option(name, value)
    at += at < len(words) and words[at] == "--"
    image, rest = (words[at] if at < len(words) else None), tuple(words[at + 1 :])
    if run.verb == "exec":
        run.notes.append(f"runs inside the container {image}; its image and settings are not seen here")
        run.words, run.entrypoint = rest, True
        return run
    run.image = image
    entry = run.options.get("entrypoint", ())
    run.entrypoint = bool(entry)
    run.words = (*entry[-1:], *rest)
    return run


def _option(words: Sequence[str], at: int) -> tuple[str, str, int]:
    """Long name, value (empty for a switch) and number of words of the option at a position."""
    word = words[at]
    following = words[at + 1] if at + 1 < len(words) else ""
    if not word.startswith("--"):
        if word in _SWITCHES or all(f"-{letter}" in _SWITCHES for letter in word[1:]):
            return word, "", 1
        # -itd and -p8000:8000: letters together, or a value without a blank.
        short, attached = word[:2], word[2:]
        name = _LONG.get(short, short.lstrip("-"))
        return (name, attached.removeprefix("="), 1) if attached else (name, following, 2)
    name, equals, value = word.partition("=")
    long = name.removeprefix("--").replace("-", "_")
    long = _SAME.get(long, long)
    if equals:
        return long, value, 1
    return (long, "", 1) if name in _SWITCHES else (long, following, 2)
