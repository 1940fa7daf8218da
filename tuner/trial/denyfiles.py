"""What the operator of this host denies on top of the built-in list (`tuner/domain/denied.py`).

Read wherever servers are launched, from every file that is there: `/etc/tuner/deny.yaml`, `tuner/deny.yaml` in
`$XDG_CONFIG_HOME` or `~/.config`, and the file that `$TUNER_DENY` names. Each adds to those before it; none takes
anything away. A file that is wrong lets nothing be launched.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from tuner import yamlfile
from tuner.domain.catalogue import FlagCatalogue, FlagSpec, closest
from tuner.domain.denied import BUILT_IN, Denied, DenyList, any_of, switched_on, unless
from tuner.domain.faults import fault_of, problems_of
from tuner.domain.knob import EnvName, FlagName
from tuner.domain.values import Scalar, spell
from tuner.domain.written import FILE_MODEL
from tuner.engines.catalogue import catalogue_versions, load_catalogue
from tuner.engines.definition import engine_names, load_definition, load_definitions
from tuner.engines.plan import env_text
from tuner.errors import Problem, SpecError, UserError
from tuner.resources import may_exist, named_path
from tuner.spec.settings import OWN_FLAGS
from tuner.trial.environment import OWN_NAMES

VARIABLE = "TUNER_DENY"
SYSTEM_FILE = Path("/etc/tuner/deny.yaml")
_SWITCHES = {"on": True, "off": False}


class DenyEntry(BaseModel):
    """One setting that may not be launched.

    Attributes:
        reason: shown to whoever asks for it.
        keep: the only value that is allowed; every launch gets it.
        values: the values that are denied. With neither, the setting is denied whatever its value (a switch, when on).
    """

    model_config = FILE_MODEL

    reason: Annotated[str, Field(min_length=1)]
    keep: Scalar | None = None
    values: Annotated[tuple[Scalar, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.keep is not None and self.values is not None:
            raise ValueError("give keep or values, not both")
        return self

    @property
    def words(self) -> str:
        """What is denied, in words."""
        if self.keep is not None:
            return f"kept at {spell(self.keep)}"
        return "denied" if self.values is None else f"{', '.join(map(spell, self.values))} denied"

    def denied(self, name: str, where: str, text: Callable[[Scalar], str], always: Callable[[str], bool]) -> Denied:
        """The entry in the list's own form.

        Args:
            name: as the list knows it.
            where: file, line and column, for the reason.
            text: how a value is written where it is compared.
            always: what is denied when neither `keep` nor `values` is given.
        """
        reason = f"{self.reason} ({where})"
        if self.keep is not None:
            kept = text(self.keep).strip()
            # To the letter: for a path, say, letters in another case are another value.
            return Denied(name, kept.__ne__, reason, kept)
        denies = always if self.values is None else any_of(*(text(value).lower() for value in self.values))
        return Denied(name, denies, reason)


class DenyFile(BaseModel):
    """A whole file: variable → entry, and engine → flag → entry."""

    model_config = FILE_MODEL

    env: Mapping[EnvName, DenyEntry] = {}
    flags: Mapping[str, Mapping[FlagName, DenyEntry]] = {}


@dataclass(frozen=True, slots=True)
class HostDenials:
    """What the files of this host say.

    Attributes:
        files: those that are there.
        deny: what they add.
        lines: the same for people, one text per setting, with its place.
    """

    files: tuple[Path, ...] = ()
    deny: DenyList = field(default_factory=DenyList)
    lines: tuple[str, ...] = ()


def host_deny_list() -> DenyList:
    """Everything that may not be launched on this host.

    Raises:
        SpecError: a file is wrong.
    """
    return BUILT_IN.extended(host_denials().deny)


def refuse_denied_script(script: Path, engine: str, catalogue: FlagCatalogue, deny: DenyList) -> None:
    """Check a shell script that brings a launch of its own.

    Raises:
        UserError: it gives a launch what is denied, or lacks what every launch keeps.
    """
    if (why := deny.refuses_script(engine, catalogue, script.read_text(encoding="utf-8"))) is not None:
        hint = "change the script to suit this host; `tuner doctor` lists what is denied here"
        raise UserError(f"{script} is not launched: {why}", hint=hint)


def host_denials() -> HostDenials:
    """What this host adds to the built-in list.

    Raises:
        SpecError: a file is wrong, with every problem of it; or the file that `$TUNER_DENY` names is missing.
    """
    found = HostDenials()
    for path in _files():
        found = _read(path, found)
    return found


def usual_files() -> tuple[Path, ...]:
    """Where files are looked for by themselves."""
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return SYSTEM_FILE, own / "tuner" / "deny.yaml"


def _files() -> Iterator[Path]:
    yield from filter(may_exist, usual_files())
    if named := os.environ.get(VARIABLE):
        path = named_path(named).absolute()
        if not may_exist(path):
            hint = f"${VARIABLE} names it: write it, or unset {VARIABLE}"
            raise SpecError([Problem(str(path), 0, 0, "", "no such file", hint=hint)])
        yield path


def _read(path: Path, before: HostDenials) -> HostDenials:
    document = yamlfile.load(path)
    reader = _Reader(document, BUILT_IN.extended(before.deny))
    file = reader.file()
    added = [*reader.variables(file), *reader.flags(file)]
    if reader.problems:
        raise SpecError(reader.problems)
    deny = before.deny
    for entry, _ in added:
        deny = deny.extended(entry)
    return HostDenials((*before.files, path), deny, (*before.lines, *(line for _, line in added)))


def _with_switches(document: yamlfile.Document) -> Any:
    """The file's data; the words `on` and `off` of flags are values, as in a space file."""

    def value(given: object, place: tuple[str | int, ...]) -> object:
        if isinstance(given, list):
            return [value(one, (*place, index)) for index, one in enumerate(given)]
        return _SWITCHES.get(given, given) if isinstance(given, str) and document.is_plain(place) else given

    data = copy.deepcopy(document.data)
    for engine, entries in _items(_items(data).get("flags")).items():
        for name, entry in _items(entries).items():
            for key in ("keep", "values"):
                if key in _items(entry):
                    entry[key] = value(entry[key], ("flags", engine, name, key))
    return {} if data is None else data


def _items(data: Any) -> dict[str, Any]:
    """A mapping as it is, and none where a file has something else; the model says so."""
    return data if isinstance(data, dict) else {}


class _Reader:
    """Turns the entries of one file into lists of one entry and words for people; notes what cannot be kept to."""

    def __init__(self, document: yamlfile.Document, before: DenyList) -> None:
        self._document, self._before = document, before
        self.problems: list[Problem] = []

    def file(self) -> DenyFile:
        """The file without its wrong entries, which are noted."""
        data = _with_switches(self._document)
        try:
            return DenyFile.model_validate(data)
        except ValidationError as error:
            self.problems += problems_of(self._document, data, error, DenyFile)
            faults = [fault_of(dict(item), data, DenyFile) for item in error.errors()]
        for path in {fault.path[: 3 if fault.path[:1] == ("flags",) else 2] for fault in faults}:
            if not path:
                return DenyFile()
            *parents, last = map(str, path)
            entries = data
            for parent in parents:
                entries = _items(_items(entries).get(parent))
            _items(entries).pop(last, None)
        return DenyFile.model_validate(data)

    def variables(self, file: DenyFile) -> Iterator[tuple[DenyList, str]]:
        """The variables."""
        side = {port.env for definition in load_definitions() for port in definition.extra_ports}
        for name, entry in file.env.items():
            place = ("env", name)
            denied = entry.denied(name, self._where(place), env_text, unless())
            kept = None if entry.keep is None else env_text(entry.keep)
            against = None if kept is None else self._before.refuses_env(name, kept)
            if name in OWN_NAMES or name in side:
                self._error(place, f"tuner sets {name} itself")
            elif not self._clashes(place, denied, self._before.kept_env.get(name), against):
                yield DenyList((denied,), kept_env={} if kept is None else {name: kept}), _line(name, entry, denied)

    def flags(self, file: DenyFile) -> Iterator[tuple[DenyList, str]]:
        """The flags; an entry for each name that versions of the engine have for one."""
        for engine, entries in file.flags.items():
            if engine not in engine_names():
                guess = closest(engine, engine_names())
                hint = f"did you mean {guess}?" if guess else f"engines: {', '.join(engine_names())}"
                self._error(("flags", engine), f"there is no engine {engine}", hint)
                continue
            for name, entry in entries.items():
                for spec in self._known(engine, name, entry):
                    place = ("flags", engine, name)
                    always = unless() if spec.takes_value else switched_on
                    denied = entry.denied(spec.name, self._where(place), spell, always)
                    kept = self._before.kept_flags.get(engine, {}).get(spec.name)
                    against = None if entry.keep is None else self._before.refuses_flag(engine, spec.name, entry.keep)
                    if not self._clashes(place, denied, None if kept is None else spell(kept), against):
                        keeps = {} if entry.keep is None else {engine: {spec.name: entry.keep}}
                        added = DenyList(flags={engine: (denied,)}, kept_flags=keeps)
                        yield added, _line(f"{engine} {spec.name}", entry, denied)

    def _known(self, engine: str, name: str, entry: DenyEntry) -> list[FlagSpec]:
        """The flag in every version of an engine that has it; none, with a problem noted, where it cannot be denied."""
        place = ("flags", engine, name)
        versions = [load_catalogue(engine, version) for version in catalogue_versions(engine)]
        found = {spec.name: spec for version in versions if (spec := version.find(name)) is not None}
        side = {port.flag for port in load_definition(engine).extra_ports}
        if not found:
            self._error(place, f"no known version of {engine} has {name}", versions[-1].advice(name))
        elif found.keys() & (OWN_FLAGS | side):
            self._error(place, f"tuner sets {name} itself")
        elif any(version.negates(name) for version in versions):
            first = next(iter(found))
            self._error(place, f"{name} only turns {first} off", f"write {first} with `values: [off]` or `keep: on`")
        elif entry.keep is not None and (why := next(iter(found.values())).refuses(entry.keep)) is not None:
            self._error(place, f"{name} {why}")
        else:
            return list(found.values())
        return []

    def _clashes(self, place: tuple[str, ...], denied: Denied, kept: str | None, against: Denied | None) -> bool:
        """Whether no launch could satisfy this entry together with those before it; it is then a problem."""
        if against is not None:
            self._error(place, f"{denied.name} cannot be kept at {denied.instead}: {against.reason}")
        elif kept is not None and denied.matches(kept):
            self._error(place, f"every launch keeps {denied.name} at {kept} already")
        else:
            return False
        return True

    def _error(self, place: tuple[str, ...], message: str, hint: str | None = None) -> None:
        self.problems.append(self._document.problem(place, message, hint=hint, key=True))

    def _where(self, place: tuple[str, ...]) -> str:
        spot = self._document.locate(place, key=True)
        return f"{self._document.file}:{spot.line}:{spot.column}"


def _line(name: str, entry: DenyEntry, denied: Denied) -> str:
    return f"{name} {entry.words}: {denied.reason}"
