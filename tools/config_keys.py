"""What the keys of an engine's JSON flags take, as the classes say that the engine makes of them."""

import dataclasses
import enum
import pathlib
import types
import typing
from collections.abc import Collection, Iterator
from typing import Any

_NAMED = {bool: "bool", int: "int", float: "float", str: "str", pathlib.Path: "str"}


def vllm_configs() -> dict[str, type]:
    """Name of a flag's value in vLLM's parser → the class that is made of it; each refuses keys that it has not."""
    from vllm.config import VllmConfig

    return {name: found for name, hint in typing.get_type_hints(VllmConfig).items() if (found := config_in(hint))}


def keys_of(config: type, prefix: str = "", apart: Collection[type] = ()) -> dict[str, dict[str, Any]]:
    """Dotted key → its type and choices, in order; a key of which nothing is known has neither.

    Args:
        config: a dataclass of pydantic's.
        prefix: of the keys.
        apart: classes that are filled from other flags, and so are not followed.
    """
    found: dict[str, dict[str, Any]] = {}
    hints, converted = typing.get_type_hints(config), converted_fields(config)
    for field in dataclasses.fields(config):
        if not field.init:
            continue
        name, inner = f"{prefix}{field.name}", config_in(hints[field.name])
        if inner is not None and inner not in apart:
            found |= keys_of(inner, f"{name}.", apart)
        else:
            found[name] = described(hints[field.name], converted={field.name, "*"} & converted != set())
    return found


def converted_fields(config: type) -> set[str]:
    """Fields whose values the class changes before it checks their type; `*` for all."""
    decorators = getattr(config, "__pydantic_decorators__", None)
    validators = decorators.field_validators.values() if decorators is not None else ()
    return {name for one in validators if one.info.mode != "after" for name in one.info.fields}


def config_in(hint: Any) -> type | None:
    """The class of a hint such as `Config` or `Config | None`; None where there is no class of fields, or a choice."""
    found = [one for one in alternatives(hint) if dataclasses.is_dataclass(one)]
    return found[0] if len(found) == 1 == len(list(alternatives(hint))) else None


def described(hint: Any, *, converted: bool) -> dict[str, Any]:
    """Type and choices of a plain value; `any_case` where the class itself spells words before it compares them."""
    several = list(alternatives(hint))
    kinds = {_NAMED.get(one) for one in several}
    if len(kinds) == 1 and None not in kinds:
        return {} if converted else {"type": kinds.pop()}
    if all(typing.get_origin(one) is typing.Literal for one in several):
        choices = [choice for one in several for choice in typing.get_args(one)]
        if not all(isinstance(choice, str) for choice in choices):
            return {}
        return {"choices": choices, **({"any_case": True} if converted else {})}
    if converted and len(several) == 1 and isinstance(several[0], type) and issubclass(several[0], enum.Enum):
        return spelled(several[0], optional=type(None) in typing.get_args(hint))
    return {}


def spelled(kind: type[enum.Enum], *, optional: bool) -> dict[str, Any]:
    """An enumeration that is given by name: its members, their numbers, and `auto` where there may be none."""
    numbers = [str(member.value) for member in kind if type(member.value) is int]
    return {"choices": [*kind.__members__, *numbers, *(["auto"] if optional else [])], "any_case": True}


def alternatives(hint: Any) -> Iterator[Any]:
    """The members of a union without None, annotations taken off."""
    if typing.get_origin(hint) is typing.Annotated:
        yield from alternatives(typing.get_args(hint)[0])
    elif typing.get_origin(hint) in (typing.Union, types.UnionType):
        for one in typing.get_args(hint):
            yield from alternatives(one)
    elif hint is not type(None):
        yield hint
