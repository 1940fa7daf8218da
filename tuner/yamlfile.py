"""YAML 1.2 with positions: plain data, and where in the file each piece of it stands.

`on`, `off`, `yes` and `no` stay words, as YAML 1.2 has them. Only plain data is built (mappings, lists, text, numbers,
true/false, null): a tag that asks for anything else is refused, so no file can make Python objects. Everything wrong
with a file is a `Problem` with line and column; all duplicate keys of a file are reported together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tuner.errors import Problem, SpecError

MAX_BYTES = 1_000_000
"""A larger file is refused: space files and launch commands are written by people."""
MAX_VALUES = 100_000
"""More values than this, aliases written out, are refused (nested aliases grow without bound)."""
MAX_DEPTH = 60

Path_ = tuple[str | int, ...]
_CORE = "tag:yaml.org,2002:"
# Escapes can write them, but no argument or variable of a program can hold NUL, and no file half a surrogate pair.
_NO_TEXT = re.compile("[\\0\\ud800-\\udfff]")
_NO_TEXT_MESSAGE = "holds NUL or half a surrogate pair, which no program can be given"


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a file; lines and columns count from 1."""

    line: int
    column: int
    source_line: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document.

    Attributes:
        file: name shown in problems.
        text: the whole file.
        data: dicts, lists and scalars; mapping keys are text.
    """

    file: str
    text: str
    data: Any
    _values: Mapping[Path_, tuple[int, int]] = field(default_factory=dict, repr=False)
    _keys: Mapping[Path_, tuple[int, int]] = field(default_factory=dict, repr=False)
    _plain: frozenset[Path_] = frozenset()
    _spans: Mapping[Path_, tuple[int, int]] = field(default_factory=dict, repr=False)

    def locate(self, path: Sequence[str | int], *, key: bool = False) -> Spot:
        """Where a value stands, or its key; for a path that the file lacks, its nearest ancestor.

        Args:
            path: keys and list positions from the top.
            key: point at the mapping key instead of at the value.
        """
        for end in range(len(path), -1, -1):
            here = tuple(path[:end])
            mark = self._keys.get(here) if key else None
            mark = mark or self._values.get(here)
            if mark is not None:
                return Spot(*mark, _line(self.text, mark[0]))
        return Spot(1, 1, _line(self.text, 1))

    def locate_word(self, path: Sequence[str | int], word: str) -> Spot:
        """Where a word of a text stands, as the file has it; the text itself where it holds no such word.

        Of several the last one: that is the one which counts where a command says something twice. Lines that are
        comments of a shell do not count.
        """
        start, end = self._spans.get(tuple(path), (0, 0))
        whole = re.compile(rf"(?<![\w.-]){re.escape(word)}(?![\w.-])")
        for found in reversed(list(whole.finditer(self.text, start, end))):
            begin = self.text.rfind("\n", 0, found.start()) + 1
            number = self.text.count("\n", 0, begin) + 1
            if not self.text[begin : found.start()].lstrip().startswith("#"):
                return Spot(number, found.start() - begin + 1, _line(self.text, number))
        return self.locate(path)

    def is_plain(self, path: Sequence[str | int]) -> bool:
        """Whether a text stands there without quotes (so that `on` may be a switch, but never `"on"`)."""
        return tuple(path) in self._plain

    def problem(
        self, path: Sequence[str | int], message: str, *, hint: str | None = None, key: bool = False
    ) -> Problem:
        """A problem at a place of this document."""
        spot = self.locate(path, key=key)
        return Problem(self.file, spot.line, spot.column, dotted(path), message, spot.source_line, hint)


def dotted(path: Sequence[str | int]) -> str:
    """A path as people write it: `engines.sglang.rules[2].forbid`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def load(path: Path, *, shown_as: str | None = None) -> Document:
    """Read a file that holds one YAML document.

    Raises:
        SpecError: when the file is missing, unreadable, no text, too large, no YAML, or holds duplicate keys.
    """
    name = shown_as or str(path)
    return parse(read_text(path, shown_as=name), name)


def read_text(path: Path, *, shown_as: str | None = None) -> str:
    """Read a text file of bounded size.

    Raises:
        SpecError: when it is missing, unreadable, too large or not UTF-8 text.
    """
    name = shown_as or str(path)
    try:
        # A pipe or device could block or never end.
        if path.exists() and not path.is_file():
            _refuse(name, "is a folder" if path.is_dir() else "is not a regular file")
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        _refuse(name, "no such file")
    except OSError as error:
        _refuse(name, f"cannot be read: {error.strerror or error}")
    if len(raw) > MAX_BYTES:
        _refuse(name, f"is larger than {MAX_BYTES:,} bytes", hint="this is hardly the file you meant")
    try:
        text = raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise SpecError([_encoding_problem(raw, name, error)]) from error
    if "\0" in text:
        _refuse(name, "is a binary file, not text")
    return text


def parse(text: str, file: str, *, literal: bool = False) -> Document:
    """Parse one YAML document.

    Args:
        text: the document.
        file: name shown in problems.
        literal: keep every scalar as the text that was written (`0.80` stays `0.80`); only null becomes None.

    Raises:
        SpecError: for malformed YAML, duplicate keys, foreign tags, endless aliases, or several documents.
    """
    documents = parse_all(text, file, literal=literal)
    if len(documents) > 1:
        raise SpecError([documents[1].problem((), "a second document starts here; only one is expected")])
    return documents[0]


def parse_all(text: str, file: str, *, literal: bool = False) -> list[Document]:
    """Parse every document of a text (`---` between them); an empty text is one document without data."""
    yaml = YAML(typ="safe", pure=True)
    try:
        nodes = list(yaml.compose_all(text))
    except MarkedYAMLError as error:
        raise SpecError([_syntax_problem(text, file, error)]) from error
    except YAMLError as error:
        # Characters that YAML forbids; ruamel gives no line for them.
        raise SpecError([Problem(file, 0, 0, "", f"is not YAML: {str(error).splitlines()[0]}")]) from error
    except RecursionError:
        _refuse(file, "is nested too deeply")
    except (OverflowError, ValueError):
        # ruamel hands the number of an escape (`"\\UFFFFFFFF"`) to `chr` unchecked.
        _refuse(file, "holds an escape that names no character")
    return [_Builder(text, file, literal).document(node) for node in nodes] or [Document(file, text, None)]


def _refuse(file: str, message: str, *, hint: str | None = None) -> NoReturn:
    raise SpecError([Problem(file, 0, 0, "", message, hint=hint)])


def _line(text: str, number: int) -> str:
    lines = text.split("\n")
    return lines[number - 1].rstrip("\r") if 0 < number <= len(lines) else ""


def _encoding_problem(raw: bytes, file: str, error: UnicodeDecodeError) -> Problem:
    begin = raw.rfind(b"\n", 0, error.start) + 1
    line, column = raw.count(b"\n", 0, begin) + 1, len(raw[begin : error.start].decode().removeprefix("\ufeff")) + 1
    source = raw[begin:].partition(b"\n")[0].decode(errors="replace").rstrip("\r")
    return Problem(
        file, line, column, "", f"is not UTF-8 text: byte 0x{raw[error.start]:02x}", source, "save it as UTF-8"
    )


def _syntax_problem(text: str, file: str, error: MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
    source = _line(text, line)
    hint = None
    if "\t" in source[: len(source) - len(source.lstrip())]:
        hint = "YAML allows no tabs for indentation; use spaces"
    elif "mapping values are not allowed" in (error.problem or ""):
        hint = "a value that contains ': ' needs quotes; or the indentation of this line is off"
    elif "stream end" in (error.problem or "") or "end of stream" in (error.problem or ""):
        hint = "the file ends too early: a bracket or quote is not closed"
    message = error.problem or error.context or "is not YAML"
    if error.context and error.problem:
        message = f"{error.problem} ({error.context})"
    return Problem(file, line, column, "", message, source, hint)


class _Builder:
    """Turns the node graph into plain data, noting positions on the way."""

    def __init__(self, text: str, file: str, literal: bool) -> None:
        self._text, self._file, self._literal = text, file, literal
        self._values: dict[Path_, tuple[int, int]] = {}
        self._keys: dict[Path_, tuple[int, int]] = {}
        self._plain: set[Path_] = set()
        self._spans: dict[Path_, tuple[int, int]] = {}
        self._problems: list[Problem] = []
        self._open: set[int] = set()
        self._count = 0

    def document(self, node: Node) -> Document:
        data = self._build(node, ())
        if self._problems:
            raise SpecError(self._problems)
        return Document(self._file, self._text, data, self._values, self._keys, frozenset(self._plain), self._spans)

    def _complain(self, node: Node, path: Path_, message: str, hint: str | None = None) -> None:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        problem = Problem(self._file, line, column, dotted(path), message, _line(self._text, line), hint)
        self._problems.append(problem)

    def _build(self, node: Node, path: Path_) -> Any:
        self._values.setdefault(path, (node.start_mark.line + 1, node.start_mark.column + 1))
        self._count += 1
        if self._count > MAX_VALUES:
            self._complain(node, (), f"more than {MAX_VALUES:,} values once aliases are written out")
            raise SpecError(self._problems)
        if len(path) > MAX_DEPTH:
            self._complain(node, (), f"nested more than {MAX_DEPTH} levels deep")
            raise SpecError(self._problems)
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open:
            self._complain(node, path, "an alias contains itself")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, path)
            assert isinstance(node, SequenceNode)
            if node.tag != f"{_CORE}seq":
                self._complain(node, path, f"tag {node.tag} is not supported")
            return [self._build(item, (*path, index)) for index, item in enumerate(node.value)]
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: MappingNode, path: Path_) -> dict[str, Any]:
        if node.tag != f"{_CORE}map":
            self._complain(node, path, f"tag {node.tag} is not supported")
        merges: list[Node] = []
        own: dict[str, Any] = {}
        first_line: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._complain(key_node, path, "a key must be a single word or text")
                continue
            key = key_node.value
            if _NO_TEXT.search(key):
                self._complain(key_node, path, _NO_TEXT_MESSAGE)
                continue
            if key_node.tag == f"{_CORE}merge":
                merges.append(value_node)
                continue
            here = (*path, key)
            if key in own:
                self._complain(key_node, here, f"the key stands twice; first on line {first_line[key]}")
                continue
            first_line[key] = key_node.start_mark.line + 1
            self._keys[here] = (first_line[key], key_node.start_mark.column + 1)
            own[key] = self._build(value_node, here)
        # Last, so that the positions of the mapping's own keys stand.
        for merge in merges:
            self._merge(own, merge, path)
        return own

    def _merge(self, own: dict[str, Any], node: Node, path: Path_) -> None:
        """`<<: *anchor`, or a list of them: the earlier wins, and all lose to the mapping's own keys."""
        for source in node.value if isinstance(node, SequenceNode) else [node]:
            if not isinstance(source, MappingNode):
                self._complain(source, path, "<< needs a mapping")
                continue
            for key, value in (self._build(source, path) or {}).items():
                own.setdefault(key, value)

    def _scalar(self, node: ScalarNode, path: Path_) -> Any:
        tag, text = str(node.tag), str(node.value)
        if _NO_TEXT.search(text):
            self._complain(node, path, _NO_TEXT_MESSAGE)
            return None
        self._spans[path] = node.start_mark.index, node.end_mark.index
        plain = node.style is None
        if plain:
            self._plain.add(path)
        if tag == f"{_CORE}null":
            return None
        if not tag.startswith(_CORE):
            self._complain(node, path, f"tag {tag} is not supported", "write plain values only")
            return None
        kind = tag.removeprefix(_CORE)
        if kind == "bool" and not self._literal:
            return text.lower() == "true"
        if kind in ("int", "float") and not self._literal:
            return self._number(node, path, kind)
        if kind.startswith("python"):
            self._complain(node, path, f"tag {kind} is not supported", "write plain values only")
        return text

    def _number(self, node: ScalarNode, path: Path_, kind: str) -> int | float | str:
        text = str(node.value).replace("_", "")
        try:
            if kind == "int":
                # YAML 1.2 knows 0o17 and 0x1F; a leading 0 alone is decimal.
                return int(text, 0) if text.lstrip("+-").startswith(("0o", "0x", "0b")) else int(text)
            number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            return str(node.value)
        if not math.isfinite(number):
            self._complain(node, path, f"{node.value} is not a finite number")
        return number
