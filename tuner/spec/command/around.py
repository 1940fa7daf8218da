"""What surrounds a server's own words: variables, container, notes – gathered from the outside in."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.spec.command.model import LaunchCommand

ENGINES = ("vllm", "sglang")
"""Their names tell an engine in the names of images and, in capitals, of variables."""


@dataclass
class Around:
    """What surrounds the server's own words, gathered from the outside in."""

    prefix: str = ""
    env: dict[str, str] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    unresolved: list[str] = field(default_factory=list)
    container: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    literal_gaps: bool = False
    """Whether an unresolved name stays one word (Kubernetes), so that the command's structure is known all the same."""

    def command(self, **fields: Any) -> LaunchCommand:
        """A command with all of this, and what is given."""
        launcher = " ".join(part for part in (self.prefix, fields.pop("launcher", "")) if part)
        return LaunchCommand(
            launcher=launcher,
            env=dict(self.env),
            unresolved=tuple(dict.fromkeys(self.unresolved)),
            env_passthrough=tuple(dict.fromkeys(self.passed)),
            env_secrets=dict(self.secrets),
            container=dict(self.container),
            notes=tuple(dict.fromkeys([*self.notes, *fields.pop("notes", ())])),
            **fields,
        )

    def refuse(self, reason: str, *, engine: str | None = None, launcher: str = "") -> LaunchCommand:
        """A refusal that still tells what was seen."""
        return self.command(refusal=reason, engine=engine or self.guess(), launcher=launcher)

    def guess(self) -> str | None:
        """The engine that variables or the image speak of."""
        found = [e for e in ENGINES if any(name.startswith(f"{e.upper()}_") for name in self.env)]
        return found[0] if len(found) == 1 else engine_of_image(next(iter(self.container.get("image", ())), ""))

    def copy(self) -> Around:
        """An independent copy, since several commands of one text may be tried."""
        return replace(
            self, env=dict(self.env), passed=list(self.passed), secrets=dict(self.secrets), notes=list(self.notes),
            unresolved=list(self.unresolved), container=dict(self.container),
        )  # fmt: skip


def engine_of_image(image: str) -> str | None:
    """The engine that an image's name speaks of; None when it is none or both."""
    found = [engine for engine in ENGINES if engine in image.lower()]
    return found[0] if len(found) == 1 else None


def mentions(word: str, name: str) -> bool:
    """Whether a word still holds an unresolved name, in any dialect's spelling."""
    if not re.fullmatch(r"\w+", name):
        return name in word
    return re.search(rf"\$\{{?\(?{re.escape(name)}\b", word) is not None
