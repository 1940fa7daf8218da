"""What flags one version of an engine takes, as its own parser says."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self, get_args

from tuner.domain.values import Scalar, spell

FlagKind = Literal["value", "switch", "toggle", "list", "json"]
"""`switch` takes no value; `toggle` takes none and has a `--no-` form; `list` takes several words."""

FlagType = Literal["int", "float", "str", "json", "bool"]

CatalogueLookup = Callable[[str | None], "FlagCatalogue"]
"""Version (None: the newest known) → the catalogue that applies to it, perhaps that of the nearest older version."""

_NO = "--no-"
_SHOWN = 4
_TRUTHS = frozenset({"true", "false", "on", "off", "yes", "no", "t", "f", "y", "n", "1", "0"})
"""What pydantic, which reads such keys, takes for a truth value."""


@dataclass(frozen=True, slots=True)
class FlagSpec:
    """One flag.

    Attributes:
        name: canonical spelling.
        aliases: further spellings.
        off: spellings that turn a toggle off, besides `--no-…` (`--disable-x` of `--enable-x`).
        any_case: whether choices are taken in any case, with `-` for `_`.
        keys: of a JSON value: dotted key → what is known of its value (named by the key); empty when nothing is.
        kind: how it takes its value.
        type: type of the value; None when the parser does not say.
        choices: the only values that it takes; empty when free.
        default: the engine's default as the parser states it; None may also mean "decided at start".
    """

    name: str
    aliases: tuple[str, ...] = ()
    kind: FlagKind = "value"
    type: FlagType | None = None
    choices: tuple[str, ...] = ()
    default: Scalar | None = None
    off: tuple[str, ...] = ()
    any_case: bool = False
    keys: Mapping[str, FlagSpec] = field(default_factory=dict)

    @property
    def takes_value(self) -> bool:
        """Whether words that follow the flag belong to it."""
        return self.kind in ("value", "list", "json")

    def refuses(self, value: Scalar) -> str | None:
        """Why the engine does not accept a value, or None when it does; lists are checked word by word."""
        if not self.takes_value:
            return None if isinstance(value, bool) else f"is a switch: it is on or off, not {spell(value)}"
        if isinstance(value, bool):
            # Some value flags read "true"/"false"; only a parser that names its choices or a number type settles it.
            if self.type in ("int", "float") or self.choices:
                return f"takes {self._wanted()}, not {spell(value)}"
            return None
        if self.kind == "list" and isinstance(value, str):
            reasons = (self._refuses_one(word) for word in value.split())
            return next((reason for reason in reasons if reason is not None), None)
        return self._refuses_one(value)

    def refuses_key(self, key: str, value: Scalar | None = None) -> str | None:
        """Why the engine does not accept a key of its JSON value, or this value there, or None when it does."""
        if not self.keys or any(known.startswith(f"{key}.") for known in self.keys):
            return None
        parts = key.split(".")
        above = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        spec = next((self.keys[one] for one in above if one in self.keys), None)
        if spec is None:
            guess = closest(key, self.keys)
            return f"has no key {key}" + (f"; did you mean {guess}?" if guess else "")
        if spec.name != key:
            # Inside of what is not described.
            return None if spec.type is None and not spec.choices else f"has no key {key}: {spec.name} is no object"
        reason = None if value is None else spec.refuses(value)
        return None if reason is None else f"{key} {reason}"

    def _takes_choice(self, value: str) -> bool:
        if value in self.choices:
            return True
        return self.any_case and _plainly(value) in map(_plainly, self.choices)

    def _refuses_one(self, value: int | float | str) -> str | None:
        if self.choices and not self._takes_choice(str(value)):
            guess = closest(str(value), self.choices)
            return f"does not take {value}; it takes {self._wanted()}" + (f"; did you mean {guess}?" if guess else "")
        if self.type == "int" and not _is_int(value):
            return f"takes an integer, not {value}"
        if self.type == "float" and not _is_number(value):
            return f"takes a number, not {value}"
        if self.type == "bool" and str(value).lower() not in _TRUTHS:
            return f"takes true or false, not {value}"
        if self.kind == "json" and isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            try:
                tree = json.loads(value)
            except ValueError as error:
                return f"takes JSON: {error}"
            return self._refuses_tree(tree) if isinstance(tree, dict) else None
        return None

    def _refuses_tree(self, tree: Mapping[str, Any]) -> str | None:
        plain = ((key, value if isinstance(value, Scalar) else None) for key, value in leaves(tree))
        return next((reason for key, value in plain if (reason := self.refuses_key(key, value)) is not None), None)

    def _wanted(self) -> str:
        if not self.choices:
            return {"int": "an integer", "float": "a number"}.get(self.type or "", "a text")
        shown = ", ".join(self.choices[:12])
        return shown + (f" … ({len(self.choices)} in all)" if len(self.choices) > 12 else "")


@dataclass(frozen=True, slots=True)
class GpuNeed:
    """Degrees of parallelism whose product an engine cannot run with fewer GPUs than.

    Attributes:
        flags: canonical names of the flags.
        unless: switch with which this need does not apply, or None.
    """

    flags: tuple[str, ...]
    unless: str | None = None


@dataclass(frozen=True)
class FlagCatalogue:
    """Every flag of one engine version.

    Attributes:
        engine: engine name.
        version: the version whose parser was asked.
        source: how the catalogue was made.
        flags: canonical name → flag.
        removed: spelling that older versions took → what to use now.
        dead: flag that is still accepted although nothing reads it → reason.
        gpu_needs: what takes GPUs; the largest of them is what a launch takes.
    """

    engine: str
    version: str
    flags: Mapping[str, FlagSpec]
    source: str = ""
    removed: Mapping[str, str] = field(default_factory=dict)
    dead: Mapping[str, str] = field(default_factory=dict)
    gpu_needs: tuple[GpuNeed, ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Build a catalogue from its JSON form (`launchers/<engine>/flags/<version>.json`).

        Raises:
            ValueError: when an entry has an unknown kind or two flags share a spelling.
            KeyError: when a required key is missing.
        """
        flags: dict[str, FlagSpec] = {}
        seen: dict[str, str] = {}
        for entry in data["flags"]:
            spec = _flag(entry)
            for spelling in (spec.name, *spec.aliases, *spec.off):
                if spelling in seen and seen[spelling] != spec.name:
                    raise ValueError(f"{spelling} belongs to {seen[spelling]} and to {spec.name}")
                seen[spelling] = spec.name
            flags[spec.name] = spec
        return cls(
            engine=data["engine"],
            version=data["version"],
            flags=flags,
            source=data.get("source", ""),
            removed=dict(data.get("removed", {})),
            dead=dict(data.get("dead", {})),
        )

    @cached_property
    def spellings(self) -> Mapping[str, FlagSpec]:
        """Every spelling, aliases included → flag; underscores for hyphens are accepted by `find` only."""
        return {spelling: spec for spec in self.flags.values() for spelling in (spec.name, *spec.aliases, *spec.off)}

    def find(self, name: str) -> FlagSpec | None:
        """The flag of a spelling: exact, `--no-` form of a toggle, underscores for hyphens, or a unique beginning.

        Both engines use argparse with abbreviations: a beginning that fits one flag only is that flag.
        """
        exact = self._exactly(name)
        found = {} if exact is not None else self._beginning_with(name)
        return self.flags[next(iter(found))] if len(found) == 1 else exact

    def abbreviation(self, name: str) -> str | None:
        """What is wrong with a spelling that is only the beginning of flags, and what to write; None for any other.

        An engine's parser takes a beginning that fits one flag; the next version may have a second such flag.
        """
        found = {} if self._exactly(name) is not None else self._beginning_with(name)
        if not found:
            return None
        shown = list(found.values())[:_SHOWN]
        if len(found) == 1:
            return f"{name} is an abbreviation: write {shown[0]}"
        more = "" if len(found) <= _SHOWN else f" … ({len(found)} in all)"
        return f"{name} is an abbreviation of several flags: {', '.join(shown)}{more}"

    def _exactly(self, name: str) -> FlagSpec | None:
        for spelling in dict.fromkeys((name, name.replace("_", "-"))):
            if spelling in self.spellings:
                return self.spellings[spelling]
            toggle = self.spellings.get(f"--{spelling.removeprefix(_NO)}") if spelling.startswith(_NO) else None
            if toggle is not None and toggle.kind == "toggle":
                return toggle
        return None

    def _beginning_with(self, name: str) -> dict[str, str]:
        """Canonical name of each flag with a spelling that begins so → the shortest of these spellings."""
        if not name.startswith("--") or name in self.removed:
            return {}
        found = sorted((known for known in self.spellings if known.startswith(name)), key=len, reverse=True)
        return {self.spellings[known].name: known for known in found}

    def negates(self, name: str) -> bool:
        """Whether a spelling turns a toggle off: its `--no-` form or one of its `off` spellings."""
        spec = self.find(name)
        if spec is None or spec.kind != "toggle":
            return False
        spelling = name.replace("_", "-")
        return spelling in spec.off or (spelling.startswith(_NO) and spelling not in (spec.name, *spec.aliases))

    def canonical(self, name: str) -> str:
        """The canonical spelling of a flag; the name itself when the catalogue does not know it."""
        spec = self.find(name)
        return spec.name if spec is not None else name

    def why_dead(self, name: str) -> str | None:
        """Why a flag that is accepted does nothing, in any spelling; None for one that something reads."""
        return self.dead.get(name) or self.dead.get(self.canonical(name))

    def advice(self, name: str) -> str | None:
        """What to do about an unknown flag: its replacement, or the closest known spelling."""
        if name in self.removed:
            return self.removed[name]
        guess = closest(name, self.spellings)
        return f"did you mean {guess}?" if guess else None


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key and value of everything in a JSON object that is no filled object itself."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def closest(word: str, known: Mapping[str, object] | tuple[str, ...]) -> str | None:
    """The known word most like a mistyped one, or None when none is near."""
    by_lower = {str(name).lower(): str(name) for name in known}
    found = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.7)
    return by_lower[found[0]] if found else None


def _flag(entry: Mapping[str, Any]) -> FlagSpec:
    kind, type_ = entry.get("kind", "value"), entry.get("type")
    if kind not in get_args(FlagKind):
        raise ValueError(f"{entry['name']}: unknown kind {kind!r}")
    if type_ is not None and type_ not in get_args(FlagType):
        raise ValueError(f"{entry['name']}: unknown type {type_!r}")
    default = entry.get("default")
    return FlagSpec(
        name=entry["name"],
        aliases=tuple(entry.get("aliases") or ()),
        kind=kind,
        type=type_,
        choices=tuple(str(choice) for choice in entry.get("choices") or ()),
        default=default if isinstance(default, bool | int | float | str) else None,
        off=tuple(entry.get("off") or ()),
        keys={key: _key(key, told) for key, told in (entry.get("keys") or {}).items()},
    )


def _key(name: str, entry: Mapping[str, Any]) -> FlagSpec:
    choices = tuple(str(choice) for choice in entry.get("choices") or ())
    return FlagSpec(name, type=entry.get("type"), choices=choices, any_case=bool(entry.get("any_case")))


def _plainly(word: str) -> str:
    return word.lower().replace("-", "_")


def _is_number(value: int | float | str) -> bool:
    if not isinstance(value, str):
        return True
    try:
        float(value)
    except ValueError:
        return False
    return True


def _is_int(value: int | float | str) -> bool:
    if isinstance(value, int):
        return True
    if isinstance(value, float):
        return False
    # Both engines read sizes such as 8k or 4K for some integer flags.
    body = value[:-1] if value[-1:].lower() in ("k", "m", "g") else value
    return body.removeprefix("-").isdigit()
