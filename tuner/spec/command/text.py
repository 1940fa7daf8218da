"""Pasted text → plain shell text: prompts, fences and slips of the keyboard removed."""

from __future__ import annotations

import re

_PROMPT = re.compile(
    r"^\s*(?:\([\w.-]+\)\s*)?"
    r"(?:\[[\w.-]+@[^\]]*\]\s*[$#%]|[\w.-]+@[\w.-]+(?::|\s)[^\s$#%]*\s*[$#%]|(?:PS [^>]*)>|[$%❯➜])\s+"
)
_FENCE = re.compile(r"^\s*(```|~~~)")
_QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "\u00a0": " ", "\u200b": ""})
# Word processors make one long dash of two hyphens.
_LONG_DASH = re.compile(r"(?<![\w])[–—](?=[A-Za-z])")


def clean(text: str) -> tuple[str, list[str]]:
    """Shell text without prompts, code fences and typographic characters; and what was changed that matters."""
    notes: list[str] = []
    straight = _LONG_DASH.sub("--", text.translate(_QUOTES))
    if straight != text:
        notes.append("typographic quotes, dashes or blanks were read as plain ones")
    lines: list[str] = []
    for line in straight.replace("\r\n", "\n").split("\n"):
        continued = bool(lines) and lines[-1].rstrip().endswith("\\")
        if _FENCE.match(line):
            continue
        if continued and line.lstrip().startswith("#"):
            # In a shell this comment would end the command, which is hardly what its author saw happen.
            notes.append("a comment inside the continued command was left out; a shell would end the command there")
            continue
        if continued and line.startswith("> "):
            line = line[2:]
        lines.append(line if continued else _PROMPT.sub("", line))
    return "\n".join(lines), notes
