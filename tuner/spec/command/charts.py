"""Values of a chart: no launch command, but enough to say what they are about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def _walk(data: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield str(key), value
            yield from _walk(value)
    elif isinstance(data, list):
        for item in data:
            yield from _walk(item)


def first_env(data: Any) -> dict[str, str]:
    """The variables of the first `env:` list."""
    for key, value in _walk(data):
        if key == "env" and isinstance(value, list):
            items = [item for item in value if isinstance(item, dict) and "name" in item and "value" in item]
            return {str(item["name"]): str(item["value"]) for item in items}
    return {}


def named_model(data: Any) -> str | None:
    """The model that some key names."""
    names = ("modelurl", "model", "modelpath", "modelname", "servedmodelname")
    found = {key.lower().replace("_", ""): value for key, value in _walk(data) if isinstance(value, str)}
    return next((found[name] for name in names if name in found), None)
