"""JSON values that several settings fill: one object for each flag.

Of two arguments for one flag an engine's parser takes the last alone, in whatever spelling each is given; and of dotted
flags (`-cc.mode 3`) vLLM makes an object of its own, which comes after all others (0.33, `utils/argparse_utils.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tuner.domain.catalogue import FlagCatalogue
from tuner.domain.landing import Landing, resolve_flag
from tuner.domain.values import FlagValue
from tuner.errors import InternalError


@dataclass(frozen=True, slots=True)
class FlagSetting:
    """What one setting gives a flag.

    Attributes:
        flag: as it is written; perhaps with a key (`-cc.mode`).
        value: of the flag, or of the key.
        key: dotted key inside the flag's JSON value, where it is not part of `flag`.
        split: whether the value's words become separate arguments.
    """

    flag: str
    value: FlagValue
    key: str | None = None
    split: bool = False

    def landing(self, catalogue: FlagCatalogue) -> Landing:
        """Where it ends."""
        return resolve_flag(catalogue, self.flag, self.key)[1]


def in_one_object(settings: Iterable[FlagSetting], catalogue: FlagCatalogue) -> list[FlagSetting]:
    """The settings, those that fill one JSON value together joined in the place of the first of them.

    Later settings of a key win. Dotted flags alone stay as they are: the engine puts them together.

    Raises:
        InternalError: a key lies inside of what is no JSON object; checked spaces have no such key.
    """
    together: dict[str, list[FlagSetting]] = {}
    for one in settings:
        together.setdefault(one.landing(catalogue).name, []).append(one)
    joined: list[FlagSetting] = []
    for name, group in together.items():
        given = [one for one in group if one.value is not None]
        is_dotted = [one.key is None and one.landing(catalogue).key is not None for one in given]
        if any(one.key is not None for one in given) or (any(is_dotted) and not all(is_dotted)):
            joined.append(FlagSetting(name, _object(name, given, catalogue)))
        else:
            joined += group
    return joined


def _object(name: str, settings: Iterable[FlagSetting], catalogue: FlagCatalogue) -> str:
    # The whole value first: its keys are what the others are put beside.
    ordered = sorted(settings, key=lambda one: one.landing(catalogue).key is not None)
    tree: Any = {}
    for one in ordered:
        key, value = one.landing(catalogue).key, one.value
        if key is None or one.key is None:
            # Written by a person, as JSON or as one word of it.
            value = _read(value)
        if key is None:
            tree = value
        else:
            _put(name, tree, key, value)
    return json.dumps(tree, separators=(",", ":"), sort_keys=True)


def _read(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _put(name: str, tree: Any, key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {}) if isinstance(tree, dict) else None
    if not isinstance(tree, dict):
        raise InternalError(f"{name}: {key} lies in what is no JSON object")
    tree[last] = value
