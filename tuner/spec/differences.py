"""What differs between two spaces, told so that a person finds the place in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.domain.space import Space
from tuner.spec.load import NOT_IN_HASH

_LONGEST = 60


def space_differences(old: Space, new: Space) -> tuple[str, ...]:
    """Each difference that changes the meaning of a trial, as `engines.vllm.knobs.a.values: [1, 2] → [1, 3]`.

    Description and budget, and whatever the file says beside the space (comments, order of keys), are none.
    """
    before, now = (s.model_dump(mode="json", by_alias=True, exclude=set(NOT_IN_HASH)) for s in (old, new))
    return tuple(_differences(before, now, ""))


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], place: str) -> Iterator[str]:
    for key in (*old, *(key for key in new if key not in old)):
        here = f"{place}{key}"
        if key not in new:
            yield f"{here} is gone"
        elif key not in old:
            yield f"{here} is new"
        elif isinstance(old[key], dict) and isinstance(new[key], dict):
            yield from _differences(old[key], new[key], f"{here}.")
        elif old[key] != new[key] or type(old[key]) is not type(new[key]):
            yield f"{here}: {_short(old[key])} → {_short(new[key])}"


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
