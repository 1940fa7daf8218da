"""Read and check a space file: everything that is wrong with it is reported at once, with file, line and column."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner import resources, yamlfile
from tuner.domain.candidate import Candidate
from tuner.domain.catalogue import CatalogueLookup, FlagCatalogue, closest
from tuner.domain.denied import BUILT_IN, DenyList
from tuner.domain.space import Rule, Space
from tuner.domain.values import Scalar
from tuner.errors import Problem, SpecError
from tuner.spec.baseline import BaselineSettings, derive_baseline
from tuner.spec.defaults import check_defaults
from tuner.spec.findings import Findings
from tuner.spec.goals import check_goals
from tuner.spec.gpus import check_gpus
from tuner.spec.inline import without_config_files
from tuner.spec.reach import Reach
from tuner.spec.rules import check_rules, rule_place
from tuner.spec.secrecy import check_secrets
from tuner.spec.settings import check_settings
from tuner.spec.shape import read_space

SUFFIXES = (".yaml", ".yml")
NOT_IN_HASH = frozenset({"description", "budget", "probe"})
"""Parts of a space that may change between two runs of a study."""

GPUS_PLACEHOLDER = "{gpus}"
"""As a flag's value: what `hardware.gpus` says."""

_EMPTY_HINT = "it needs name, model and engines; README.md shows a whole one under Space files"


@dataclass(frozen=True, slots=True)
class LoadedSpace:
    """A space file that holds together.

    Attributes:
        space: the validated space, overrides applied.
        text: the file, word for word.
        hash: see `space_hash`.
        path: where it was found.
        warnings: what is allowed but will hardly do what was meant.
    """

    space: Space
    text: str
    hash: str
    path: Path
    warnings: tuple[Problem, ...] = ()


def load_space(
    name: str | Path,
    *,
    catalogues: Mapping[str, CatalogueLookup],
    overrides: Mapping[str, Scalar] | None = None,
    deny: DenyList = BUILT_IN,
) -> LoadedSpace:
    """Find, read and check a space file.

    Args:
        name: a path, or a bare name such as `sm120` or `sm120.yaml` (see `find_space`).
        catalogues: engine name → its flag catalogue by version; a space may use only these engines.
        overrides: dotted path → value that replaces the file's, e.g. `{"budget.trials": 12, "model": "…"}`.
        deny: what may not be launched.

    Raises:
        SpecError: with every problem found.
        UserError: nothing can have this name.
    """
    path = find_space(name)
    document = yamlfile.load(path, shown_as=_shown(path))
    findings = Findings(document, frozenset(overrides or ()))
    space = check_document(
        document, findings, catalogues=catalogues, overrides=overrides or {}, folder=path.parent, deny=deny
    )
    if findings.errors or space is None:
        raise SpecError(findings.errors)
    known = {engine: catalogues[engine](part.version) for engine, part in space.engines.items()}
    space = without_config_files(space, known, path.parent)
    return LoadedSpace(space, document.text, space_hash(space), path, tuple(findings.warnings))


def _shown(path: Path) -> str:
    """The path as it is shortest to read from here."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def find_space(name: str | Path) -> Path:
    """The file that a name means: an existing path, else a file of that name in `$TUNER_SPACES`, else a shipped one.

    Raises:
        SpecError: when there is none; it names the places looked at and the closest name.
        UserError: nothing can have this name.
    """
    if not str(name).strip():
        raise SpecError([Problem("space file", 0, 0, "", "the name is empty", hint="`tuner space list` names some")])
    given = resources.named_path(name)
    if given.exists():
        return given
    if given.parent != Path() or str(name).startswith(("/", "~", ".")):
        raise SpecError([Problem(str(name), 0, 0, "", "no such file")])
    for folder in resources.spaces_dirs():
        for candidate in (given.name, *(f"{given.name}{suffix}" for suffix in SUFFIXES)):
            if (folder / candidate).is_file():
                return folder / candidate
    names = tuple(path.name if given.suffix in SUFFIXES else path.stem for path in list_spaces())
    guess = closest(given.name, names)
    hint = f"did you mean {guess}?" if guess else f"spaces: {', '.join(names)}"
    looked = " and ".join(str(folder) for folder in (Path.cwd(), *resources.spaces_dirs()))
    raise SpecError([Problem(str(name), 0, 0, "", f"no such space file in {looked}", hint=hint)])


def list_spaces() -> tuple[Path, ...]:
    """Every space file that can be named without a path; of equal names the first found."""
    found: dict[str, Path] = {}
    for folder in resources.spaces_dirs():
        for path in sorted(folder.glob("*")) if folder.is_dir() else ():
            if path.suffix in SUFFIXES:
                found.setdefault(path.name, path)
    return tuple(found[name] for name in sorted(found))


def space_hash(space: Space) -> str:
    """sha256 over what decides the meaning of a trial: all but what may change between runs of a study."""
    content = space.model_dump(mode="json", by_alias=True, exclude=set(NOT_IN_HASH))
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_document(
    document: yamlfile.Document,
    findings: Findings,
    *,
    catalogues: Mapping[str, CatalogueLookup],
    overrides: Mapping[str, Scalar],
    folder: Path,
    deny: DenyList = BUILT_IN,
) -> Space | None:
    """Run every check on a parsed file; returns the space as far as it can be read."""
    if document.data is None:
        findings.error((), "the file is empty", _EMPTY_HINT)
        return None
    data = _fill_in_gpus(_override(copy.deepcopy(document.data), overrides))
    space, dropped = read_space(document, data, findings)
    if space is None:
        return None
    check_goals(space, findings)
    reaches = check_rules(space, dropped, findings)
    never: dict[str, tuple[Rule, ...]] = {}
    for engine in space.engines:
        if engine not in catalogues:
            guess = closest(engine, tuple(catalogues))
            hint = f"did you mean {guess}?" if guess else f"engines: {', '.join(catalogues)}"
            findings.error(("engines", engine), f"there is no engine {engine}", hint, key=True)
            continue
        catalogue = catalogues[engine](space.engines[engine].version)
        _check_version(space, engine, catalogue, findings)
        check_settings(space, engine, catalogue, reaches[engine], findings, deny)
        check_defaults(space, engine, catalogue, reaches[engine], findings)
        before = len(findings.errors)
        settings = _check_baseline(space, engine, catalogue, reaches[engine], dropped, findings, folder, deny)
        if reaches[engine] is not None and len(findings.errors) == before:
            never[engine] = check_gpus(space, engine, catalogue, settings, findings)
    check_secrets(data, findings)
    return _with_rules(space, never)


def _with_rules(space: Space, rules: Mapping[str, tuple[Rule, ...]]) -> Space:
    """The space with further rules of single engines; as it is where there are none."""
    engines = {
        name: part.model_copy(update={"rules": (*part.rules, *rules[name])}) if rules.get(name) else part
        for name, part in space.engines.items()
    }
    return space.model_copy(update={"engines": engines}) if any(rules.values()) else space


def _override(data: Any, overrides: Mapping[str, Scalar]) -> Any:
    if isinstance(data, dict):
        for dotted, value in overrides.items():
            *parents, last = dotted.split(".")
            inner = data
            for parent in parents:
                if not isinstance(inner.get(parent), dict):
                    inner[parent] = {}
                inner = inner[parent]
            inner[last] = value
    return data


def _fill_in_gpus(data: Any) -> Any:
    """The number of GPUs wherever a flag says `GPUS_PLACEHOLDER`, so that one file serves machines of any size."""
    try:
        gpus, engines = data["hardware"]["gpus"], data["engines"].values()
        for flags in (engine["flags"] for engine in engines if "flags" in engine):
            flags.update({name: gpus for name, value in flags.items() if value == GPUS_PLACEHOLDER})
    except (AttributeError, KeyError, TypeError):
        pass  # not the shape of a space: told by whoever reads it
    return data


def _check_version(space: Space, engine: str, catalogue: FlagCatalogue, findings: Findings) -> None:
    asked = space.engines[engine].version
    if asked is not None and asked.split("+")[0] != catalogue.version:
        message = f"no flag catalogue for {engine} {asked}; flags are checked against {catalogue.version}"
        findings.warn(("engines", engine, "version"), message)


def _check_baseline(
    space: Space,
    engine: str,
    catalogue: FlagCatalogue,
    reach: Reach | None,
    dropped: frozenset[str],
    findings: Findings,
    folder: Path,
    deny: DenyList,
) -> BaselineSettings:
    before = len(findings.errors)
    own = Findings(findings.document, findings.replaced)
    settings = derive_baseline(space, engine, catalogue, own, folder=folder, deny=deny)
    findings.warnings += own.warnings
    # What the baseline says of a knob that could not be read is no fault of the baseline.
    findings.errors += [p for p in own.errors if not any(p.path.endswith(f".{name}") for name in dropped)]
    if reach is None or len(findings.errors) > before:
        return settings
    candidate = Candidate.of(space, engine, settings.values)
    if space.engines[engine].baseline.command is not None:
        _note_inactive(space, engine, settings, candidate, findings)
    named = {"engine": engine, **candidate.values}
    for index, rule in enumerate(reach.rules):
        place = rule_place(space, engine, index)
        # A rule that forbids everything is reported as such.
        if rule.condition.holds(named) and not any(p.path == yamlfile.dotted(place) for p in findings.errors):
            findings.error(place, f"forbids the baseline of {engine}: {candidate}")
    return settings


def _note_inactive(
    space: Space, engine: str, settings: BaselineSettings, candidate: Candidate, findings: Findings
) -> None:
    """What the baseline command sets to no effect, since the space leaves such a knob out there."""
    for name, knob in space.knobs_of(engine).items():
        if (
            name in settings.written
            and name not in candidate.values
            and settings.values[name] not in (None, knob.default)
        ):
            said = f"sets {name}, which is inactive here by its `when`: the baseline runs without it"
            findings.warn_at(("engines", engine, "baseline", "command"), knob.flag or knob.env or "", said)
