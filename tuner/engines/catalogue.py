"""Flag catalogues on disk: `launchers/<engine>/flags/<version>.json`, dumped from each engine's own parser."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from tuner import yamlfile
from tuner.domain.catalogue import CatalogueLookup, FlagCatalogue, GpuNeed
from tuner.engines.definition import EngineDefinition, engine_names, load_definition
from tuner.errors import Problem, SpecError, UserError
from tuner.resources import launchers_dir

_LONGEST_NUMBER = 9  # digits; what is longer is no version number
_MADE = "tools/dump_flags.py writes one from the engine's own parser"


def _order(version: str) -> tuple[int, ...]:
    """Sort key of a version: its leading numbers (`0.5.10.post1` → 0, 5, 10)."""
    numbers = []
    for part in version.split("."):
        if not part.isdecimal() or len(part) > _LONGEST_NUMBER:
            break
        numbers.append(int(part))
    return tuple(numbers)


def catalogue_versions(engine: str) -> tuple[str, ...]:
    """Versions of an engine that have a catalogue, oldest first."""
    return tuple(sorted((path.stem for path in (launchers_dir() / engine / "flags").glob("*.json")), key=_order))


@cache
def _read(folder: Path, version: str) -> FlagCatalogue:
    """The catalogue of a version in an engine's folder, with what the engine's definition adds to it."""
    file = folder / "flags" / f"{version}.json"
    try:
        catalogue = FlagCatalogue.from_json(json.loads(yamlfile.read_text(file)))
    except json.JSONDecodeError as error:
        raise SpecError([Problem(str(file), error.lineno, error.colno, "", error.msg, hint=_MADE)]) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        said = "something stands where an object is wanted"
        if isinstance(error, KeyError | ValueError):
            said = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise SpecError([Problem(str(file), 0, 0, "", f"is no flag catalogue: {said}", hint=_MADE)]) from error
    needs = tuple(GpuNeed(need.flags, need.unless) for need in load_definition(folder.name).gpus)
    return replace(catalogue, gpu_needs=needs)


def load_catalogue(engine: str, version: str | None = None) -> FlagCatalogue:
    """The catalogue for a version: the exact one, else the newest one that is not newer, else the oldest.

    Args:
        engine: engine name.
        version: engine version (local parts such as `+cpu` are ignored); None takes the newest catalogue.

    Raises:
        UserError: when the engine has no catalogue at all.
        SpecError: when the catalogue's file, or the engine's definition, is wrong.
    """
    known = catalogue_versions(engine)
    if not known:
        raise UserError(f"no flag catalogue for engine {engine!r}", hint=f"expected launchers/{engine}/flags/*.json")
    wanted = known[-1] if version is None else version.split("+")[0]
    older = [v for v in known if _order(v) <= _order(wanted)]
    chosen = wanted if wanted in known else (older[-1] if older else known[0])
    return _read(launchers_dir() / engine, chosen)


def catalogues() -> dict[str, CatalogueLookup]:
    """Engine → its catalogue by version, for every engine that has a definition; read when asked for."""
    return {engine: partial(load_catalogue, engine) for engine in engine_names()}


def usual_port(definition: EngineDefinition, catalogue: FlagCatalogue) -> int | None:
    """The port on which an engine listens when nobody tells it one; None where its parser states none."""
    flag = catalogue.find(definition.port_flag)
    return flag.default if flag is not None and isinstance(flag.default, int) else None
