"""`docs/json.md` read as what it promises: a tree of keys for every command and shape."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
_ITEM = re.compile(r"^(?P<indent> *)- `(?P<key>\w+)`: (?P<text>.+)$")
_SHAPE = re.compile(r"\*(\w+)\*")


@dataclass
class Keys:
    """The keys of one object; `shape` where they are another's, `free` where they are the user's own names."""

    keys: dict[str, Keys] = field(default_factory=dict)
    shape: str | None = None
    free: bool = False


def read_page() -> Mapping[str, Keys]:
    """Title of a section → its keys."""
    found: dict[str, Keys] = {}
    path: list[Keys] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith(("## ", "### ")):
            path = [found.setdefault(line.lstrip("# "), Keys())]
        elif (item := _ITEM.match(line)) is not None:
            del path[1 + len(item["indent"]) // 2 :]
            shape = _SHAPE.search(item["text"])
            path.append(Keys(shape=shape[1] if shape else None, free="→" in item["text"]))
            path[-2].keys[item["key"]] = path[-1]
        elif path and line.startswith("A *") and (shape := _SHAPE.search(line)) is not None:
            path[0].shape = shape[1]
    return found


def differences(page: Mapping[str, Keys], documented: Keys, value: Any, where: str = "") -> Iterator[str]:
    """Keys that a document has and the page has not, and the other way round."""
    if isinstance(value, list):
        for item in value:
            yield from differences(page, documented, item, f"{where}[]")
    elif isinstance(value, dict) and documented.free:
        inner = Keys(shape=documented.shape)
        for item in value.values() if documented.shape is not None else ():
            yield from differences(page, inner, item, f"{where}.*")
    elif isinstance(value, dict):
        wanted = {**(page[documented.shape].keys if documented.shape is not None else {}), **documented.keys}
        if not wanted:
            return  # described in words
        yield from (f"{where}.{key} is not documented" for key in value.keys() - wanted.keys())
        yield from (f"{where}.{key} is not there" for key in wanted.keys() - value.keys())
        for key in value.keys() & wanted.keys():
            yield from differences(page, wanted[key], value[key], f"{where}.{key}")
