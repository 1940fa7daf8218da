"""The words after the launcher → flags with their values, and words that belong to none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.domain.catalogue import FlagCatalogue
from tuner.spec.command.model import FlagText

_FLAG = re.compile(r"^-{1,2}[A-Za-z]")
_SHORT_LEVEL = re.compile(r"^-O(\d+)$")
# Flags of both engines that begin so are switches; a word after one is no value, unless it is a truth value.
_SWITCH_LIKE = re.compile(r"^--(enable|disable|no|skip|trust|enforce|allow)[-_]")
_TRUTH = frozenset({"true", "false", "True", "False"})


@dataclass(frozen=True, slots=True)
class Arguments:
    """Flags in order (of a repeated one the last value), words without a flag, and what is odd about them."""

    flags: dict[str, FlagText]
    positional: tuple[str, ...]
    notes: tuple[str, ...]


def is_flag(word: str) -> bool:
    """Whether a word is a flag and not a value such as `-1`."""
    return _FLAG.match(word) is not None


def parse_arguments(words: Sequence[str], catalogue: FlagCatalogue | None = None) -> Arguments:
    """Deal words out to flags.

    Without a catalogue a flag takes every word up to the next flag, except flags that look like switches. With one,
    it takes as many as its kind says.
    """
    flags: dict[str, FlagText] = {}
    positional: list[str] = []
    notes: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            continue
        if not is_flag(word):
            positional.append(word)
            continue
        name, equals, value = word.partition("=")
        given: tuple[str, ...]
        if (level := _SHORT_LEVEL.match(word)) is not None:
            name, given = "-O", (level[1],)
        elif equals:
            given = (value,)
        else:
            count = _takes(name, words[at:], catalogue)
            given = tuple(words[at : at + count])
            at += count
        if name in flags:
            notes.append(f"{name} is given twice; the last one counts")
            del flags[name]
        flags[name] = True if not given else given[0] if len(given) == 1 else given
    notes += _said_twice(flags, catalogue)
    return Arguments(flags, tuple(positional), tuple(notes))


def _takes(name: str, following: Sequence[str], catalogue: FlagCatalogue | None) -> int:
    """How many of the following words belong to a flag."""
    free = next((index for index, word in enumerate(following) if is_flag(word) or word == "--"), len(following))
    spec = catalogue.find(name) if catalogue is not None else None
    if spec is not None:
        most = free if spec.kind == "list" else 1 if spec.takes_value else 0
        # `--enable-x True` is no English of the parser, but people write it and mean the switch.
        return 1 if most == 0 and free and following[0] in _TRUTH else min(free, most)
    if free and _SWITCH_LIKE.match(name):
        return 1 if following[0] in _TRUTH else 0
    return free


def _said_twice(flags: dict[str, FlagText], catalogue: FlagCatalogue | None) -> list[str]:
    if catalogue is None:
        return []
    seen: dict[str, str] = {}
    notes = []
    for name in flags:
        spec = catalogue.find(name)
        if spec is not None and name.partition(".")[0] == name:
            if spec.name in seen:
                notes.append(f"{seen[spec.name]} and {name} are the same flag; the last one counts")
            seen[spec.name] = name
    return notes
