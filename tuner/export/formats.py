"""Every format of an export by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner.export.base import Export
from tuner.export.compose import compose
from tuner.export.manifest import manifest
from tuner.export.script import script
from tuner.export.systemd import systemd

FORMATS: Mapping[str, Callable[[Export], str]] = {
    "sh": script,
    "compose": compose,
    "systemd": systemd,
    "json": manifest,
}
"""Name → function from an export to the file's text."""

SUFFIXES: Mapping[str, str] = {"sh": ".sh", "compose": ".compose.yaml", "systemd": ".service", "json": ".json"}
"""Name → how such a file's name ends."""
