"""Compose and Kubernetes files → the containers that they start."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tuner.spec.command.lexer import ShellSyntaxError
from tuner.spec.command.shell import expand_text

Dialect = Literal["compose", "k8s"]
_STARTS = ("command", "args", "entrypoint")
_COMPOSE_KEYS = frozenset({"environment", "entrypoint", "container_name", "network_mode", "shm_size", "ipc", "deploy"})
_OPTION_KEYS = ("image", "ipc", "shm_size", "network_mode", "runtime", "container_name", "ports", "ulimits", "volumes")
_K8S_REFERENCE = re.compile(r"(?P<escape>\$)?\$\((?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\)")
_TEMPLATE = re.compile(r"\{\{.*?\}\}")


@dataclass
class Container:
    """One container of a file, its variables filled in as far as they are known.

    Attributes:
        dialect: kind of file.
        words: program and arguments.
        entrypoint: whether the words begin with a program that replaces the image's own.
        image: image name.
        env: variable → value.
        passed: variables taken from the caller.
        secrets: variable → where its value comes from.
        options: other settings of the container → values.
        unresolved: names without a value.
        notes: what cannot be seen from here.
    """

    dialect: Dialect
    words: tuple[str, ...] = ()
    entrypoint: bool = False
    image: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unresolved: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def fill(self, text: Any) -> str:
        """A text of the file with its variables filled in by the dialect's rules."""
        written = "" if text is None else str(text)
        return self._compose(written) if self.dialect == "compose" else self._k8s(written)

    def _compose(self, text: str) -> str:
        parts = []
        for part in text.split("$$"):
            filled, missing = expand_text(part, {})
            parts.append(filled)
            self._miss(*missing)
        return "$".join(parts)

    def _k8s(self, text: str) -> str:
        def put(match: re.Match[str]) -> str:
            if match["escape"]:
                return match[0][1:]
            if match["name"] not in self.env:
                # Kubernetes leaves a reference that it cannot resolve as it stands.
                self._miss(match["name"])
            return self.env.get(match["name"], match[0])

        self._miss(*_TEMPLATE.findall(text))
        return _K8S_REFERENCE.sub(put, text)

    def _miss(self, *names: str) -> None:
        self.unresolved += [name for name in dict.fromkeys(names) if name not in self.unresolved]


def find_containers(data: Any) -> list[Container]:
    """Every container of a file that says what it runs, or at least from which image.

    A container with an image alone is left out when others say what they run.
    """
    found = [_read(mapping, dialect) for mapping, dialect in _mappings(data, None)]
    return [container for container in found if container.words] or found


def _mappings(data: Any, dialect: Dialect | None) -> Iterator[tuple[Mapping[str, Any], Dialect]]:
    if isinstance(data, list):
        for item in data:
            yield from _mappings(item, dialect)
    elif isinstance(data, dict):
        starts = any(isinstance(data.get(key), str | list) for key in _STARTS)
        if starts or (isinstance(data.get("image"), str) and not isinstance(data.get("services"), dict)):
            yield data, _dialect(data, dialect)
            return
        for key, value in data.items():
            inner: Dialect | None = "compose" if key == "services" else "k8s" if key == "containers" else dialect
            yield from _mappings(value, inner)


def _dialect(mapping: Mapping[str, Any], around: Dialect | None) -> Dialect:
    if around is not None:
        return around
    if "args" in mapping or isinstance(mapping.get("env"), list):
        return "k8s"
    if _COMPOSE_KEYS & set(mapping):
        return "compose"
    return "k8s" if isinstance(mapping.get("command"), list) else "compose"


def _read(mapping: Mapping[str, Any], dialect: Dialect) -> Container:
    container = Container(dialect)
    if dialect == "compose":
        _compose_environment(container, mapping.get("environment"))
        if mapping.get("env_file") is not None:
            container.notes.append("variables of env_file are not seen here")
        first, second = mapping.get("entrypoint"), mapping.get("command")
    else:
        _k8s_environment(container, mapping.get("env"))
        if mapping.get("envFrom") is not None:
            container.notes.append("variables of envFrom are not seen here")
        first, second = mapping.get("command"), mapping.get("args")
    container.entrypoint = bool(first)
    container.words = (*_words(container, first), *_words(container, second))
    if mapping.get("image") is not None:
        container.image = container.fill(mapping["image"])
    for key in _OPTION_KEYS:
        if mapping.get(key) is not None:
            container.options[key] = _texts(container, mapping[key])
    return container


def _words(container: Container, value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(container.fill(item) for item in value)
    try:
        return tuple(shlex.split(container.fill(value))) if value is not None else ()
    except ValueError as error:
        raise ShellSyntaxError(f"a quote in {str(value)[:40]!r} has no end") from error


def _texts(container: Container, value: Any) -> tuple[str, ...]:
    if isinstance(value, dict):
        return tuple(f"{key}={container.fill(item)}" for key, item in value.items())
    return tuple(container.fill(item) for item in value) if isinstance(value, list) else (container.fill(value),)


def _compose_environment(container: Container, value: Any) -> None:
    if isinstance(value, dict):
        # A key without a value takes the caller's.
        items = [name if text is None else f"{name}={text}" for name, text in value.items()]
    else:
        items = [str(item) for item in value] if isinstance(value, list) else []
    for item in items:
        name, equals, text = item.partition("=")
        if equals:
            container.env[name] = container.fill(text)
        else:
            container.passed.append(name)


def _k8s_environment(container: Container, value: Any) -> None:
    for item in value if isinstance(value, list) else ():
        if not isinstance(item, dict) or "name" not in item:
            continue
        source = item.get("valueFrom")
        if isinstance(source, dict):
            kind, reference = next(iter(source.items()), ("", None))
            parts = reference.values() if isinstance(reference, dict) else (reference,)
            where = "/".join(str(part) for part in parts if part is not None)
            if kind == "secretKeyRef":
                container.secrets[str(item["name"])] = where
            else:
                container.passed.append(str(item["name"]))
        else:
            container.env[str(item["name"])] = container.fill(item.get("value"))
