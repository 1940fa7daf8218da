"""A compose file that serves the measured configuration from a container image.

The image is the user's to name: what was measured ran outside a container or in one that tuner does not know.
"""

from __future__ import annotations

import json

from tuner.engines.definition import load_definition
from tuner.export.base import Export
from tuner.export.templates import render
from tuner.export.words import GPUS, HOST, PORT, Variable, Word, command_of


def compose(export: Export) -> str:
    """The YAML text. `TUNER_IMAGE` names the image; `HOST` and `PORT` say where the port is published.

    In the container the program is the engine's default command, because a path of the measuring machine means
    nothing there, and the server listens on all of the container's own addresses.
    """
    command = command_of(export)
    definition = load_definition(export.plan.engine)
    program: list[Word] = [(part,) for part in definition.program()]
    inner = {HOST: "0.0.0.0", PORT: str(command.port)}  # noqa: S104 - inside the container; published on loopback
    words = [tuple(_inside(part, inner) for part in word) for word in (*program, *command.argv[export.program :])]
    environment = {name: value for name, value in command.env.items() if name != GPUS}
    return render(
        "export.compose.yaml.j2",
        export.plan.engine,
        export=export,
        command=[_scalar(word) for word in words],
        environment=[(name, _scalar(word)) for name, word in environment.items()],
        inherited=command.inherited,
        gpus=json.dumps([str(gpu) for gpu in export.plan.gpus]),
        model_folder=_scalar((export.plan.model,)) if export.plan.model.startswith("/") else None,
        host=export.plan.host,
        port=command.port,
    )


def _inside(part: str | Variable, inner: dict[str, str]) -> str | Variable:
    return inner[part.name] if isinstance(part, Variable) and part.name in inner else part


def _scalar(word: Word) -> str:
    """A quoted YAML string; compose reads `$$` as a dollar sign and refuses to start without `${NAME:?why}`."""
    parts = []
    for part in word:
        if isinstance(part, str):
            parts.append(part.replace("$", "$$"))
        else:
            parts.append(f"${{{part.name}:?set {part.name}, a secret that was not written down}}")
    return yaml_quote("".join(parts))


def yaml_quote(text: str) -> str:
    """Any text as a double-quoted YAML scalar (YAML 1.2, section 7.3.1)."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else f"\\U{ord(char):08x}"
