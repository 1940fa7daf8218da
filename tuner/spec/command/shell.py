"""Just enough of a shell to read a launch command: quoting, variables, assignments, exports – nothing is ever run.

The text is cut into words whose quoting is remembered, then walked command by command, so that a variable has the
value of its last assignment above its use. A variable without one, and every command substitution, is *unresolved*: it
stays in the text as written and is reported by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.spec.command.lexer import Array, Operator, Piece, Token, Word, lex, split_expansions

_ASSIGNMENT = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_BODY = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?!$-])(\[[^\]]*\])?(:?[-=+?])?(.*)$", re.DOTALL)
_OPENERS = frozenset({"if", "case", "for", "while", "until", "function"})
_CLOSERS = frozenset({"fi", "esac", "done"})
_LEADERS = frozenset(
    {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "fi", "done", "esac", "time"}
)
_EXPORTERS = frozenset({"export", "declare", "typeset", "readonly", "local"})

Variable = str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One command of a script, expanded.

    Attributes:
        argv: program and arguments.
        env: assignments written before the program.
        conditional: whether it stands inside if, case or a loop.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    conditional: bool = False


@dataclass
class Script:
    """A script that has been read.

    Attributes:
        commands: its commands in order, assignments and exports left out.
        exported: variables that every command sees.
        unresolved: names without a value, in order of appearance.
        branches: whether it has if, case or loops.
    """

    commands: list[SimpleCommand] = field(default_factory=list)
    exported: dict[str, str] = field(default_factory=dict)
    unresolved: list[str] = field(default_factory=list)
    branches: bool = False


def read_script(
    text: str, *, known: Mapping[str, str] | None = None, parameters: Sequence[str] | None = None
) -> Script:
    """Read a script.

    Args:
        text: the script.
        known: variables that have a value already.
        parameters: what `"$@"` stands for; None leaves it unresolved.

    Raises:
        ShellSyntaxError: for a quote or brace without its end.
    """
    return _Reader(dict(known or {}), parameters).read(lex(text))


def expand_text(text: str, known: Mapping[str, str]) -> tuple[str, list[str]]:
    """Fill in `$NAME`, `${NAME:-default}` … in a text without quoting rules; also returns the unresolved names."""
    reader = _Reader(dict(known), None)
    return "".join(reader.value_of(piece) for piece in split_expansions(text)), reader.script.unresolved


class _Reader:
    def __init__(self, variables: dict[str, Variable], parameters: Sequence[str] | None) -> None:
        self._variables = variables
        self._parameters = parameters
        self._depth = 0
        self._export_all = False
        self.script = Script()

    def read(self, tokens: Sequence[Token]) -> Script:
        for command in _commands(tokens):
            self._command(command)
        return self.script

    def _command(self, tokens: list[Word | Array]) -> None:
        while tokens and isinstance(tokens[0], Word) and (word := tokens[0].plain) in _OPENERS | _CLOSERS | _LEADERS:
            if word in _OPENERS:
                self._depth += 1
                self.script.branches = True
            elif word in _CLOSERS:
                self._depth = max(0, self._depth - 1)
            tokens = tokens[1:]
            if word in ("case", "for", "function"):
                return
        env: dict[str, str] = {}
        while tokens and (isinstance(tokens[0], Array) or _assigns(tokens[0])):
            self._assign(tokens[0], env)
            tokens = tokens[1:]
        if not tokens:
            for name, value in env.items():
                self._set(name, value)
            return
        argv = [text for token in tokens if isinstance(token, Word) for text in self._words(token)]
        if argv and argv[0] in _EXPORTERS:
            self._export(tokens[1:], marks=argv[0] == "export" or "-x" in argv)
        elif argv and argv[0] == "unset":
            for name in argv[1:]:
                self._variables.pop(name, None)
                self.script.exported.pop(name, None)
        elif argv and argv[0] == "set":
            self._export_all = self._export_all or "-a" in argv or "allexport" in argv
        elif argv:
            self.script.commands.append(SimpleCommand(tuple(argv), env, conditional=self._depth > 0))

    # ------------------------------------------------------------ variables

    def _assign(self, token: Word | Array, env: dict[str, str]) -> None:
        if isinstance(token, Array):
            items = tuple(text for word in token.words for text in self._words(word))
            old = self._variables.get(token.name, ())
            before = (old,) if isinstance(old, str) else old
            if not self._kept(token.name):
                self._variables[token.name] = (*before, *items) if token.append else items
            return
        name, append, value = self._assignment(token)
        old = self._variables.get(name, "")
        env[name] = (old if isinstance(old, str) else " ".join(old)) + value if append else value

    def _assignment(self, word: Word) -> tuple[str, bool, str]:
        match = _ASSIGNMENT.match(word.plain_start)
        assert match is not None
        first = word.pieces[0]
        rest = [Piece(first.text[match.end() :], quoted=False), *word.pieces[1:]]
        return match[1], bool(match[2]), "".join(self.value_of(piece) for piece in rest)

    def _kept(self, name: str) -> bool:
        """Whether an assignment that may not happen must not replace what is known."""
        return self._depth > 0 and bool(self._variables.get(name))

    def _set(self, name: str, value: str) -> None:
        if not self._kept(name):
            self._variables[name] = value
            if self._export_all or name in self.script.exported:
                self.script.exported[name] = value

    def _export(self, tokens: Sequence[Word | Array], *, marks: bool) -> None:
        for token in tokens:
            if isinstance(token, Array):
                self._assign(token, {})
            elif _assigns(token):
                name, _, value = self._assignment(token)
                self._set(name, value)
                if marks:
                    self.script.exported[name] = value
            elif marks and isinstance(present := self._variables.get(token.plain), str):
                self.script.exported[token.plain] = present

    # ------------------------------------------------------------ expansion

    def _words(self, word: Word) -> list[str]:
        """A word after expansion: unquoted variables split at blanks, `"$@"` and arrays give a word per element."""
        fields: list[str] = []
        continued = False
        lists = [self._listed(piece) for piece in word.pieces]
        for piece, listed in zip(word.pieces, lists, strict=True):
            if listed is None and not piece.expands and not piece.text and any(one is not None for one in lists):
                # The quotes around `"$@"` are no word of their own when there are no parameters.
                continue
            if listed is not None:
                parts, leads, trails = listed, False, False
            else:
                text = self._value(piece) if piece.expands else piece.text
                # What has no value stays as it is written, blanks included.
                splits = piece.expands and not piece.quoted and text != piece.raw
                parts = text.split() if splits else [text]
                leads, trails = splits and text[:1].isspace(), splits and text[-1:].isspace()
            continued = continued and not leads
            for position, part in enumerate(parts):
                if continued and position == 0:
                    fields[-1] += part
                else:
                    fields.append(part)
                continued = True
            continued = continued and not trails
        return fields

    def value_of(self, piece: Piece) -> str:
        """A piece after expansion, as one text."""
        if not piece.expands:
            return piece.text
        listed = self._listed(piece)
        return self._value(piece) if listed is None else " ".join(listed)

    def _listed(self, piece: Piece) -> list[str] | None:
        """The elements of `$@` or of an array written with [@]; None for anything else."""
        match = _BODY.match(piece.text)
        if piece.kind != "variable" or match is None:
            return None
        if match[1] in ("@", "*") and self._parameters is not None:
            return list(self._parameters)
        value = self._variables.get(match[1])
        if match[2] in ("[@]", "[*]") and isinstance(value, tuple):
            return list(value)
        return None

    def _value(self, piece: Piece) -> str:
        match = _BODY.match(piece.text) if piece.kind == "variable" else None
        if match is None:
            return self._unresolved(piece.raw, piece.raw)
        name, operator, rest = match[1], match[3] or "", match[4]
        if (rest and not operator) or (match[2] and not isinstance(self._variables.get(name), tuple)):
            # Cutting and replacing forms such as ${NAME%.txt}.
            return self._unresolved(name, piece.raw)
        stored = self._variables.get(name)
        value = stored if isinstance(stored, str) else stored[0] if stored else None
        missing = value is None or (operator.startswith(":") and not value)
        if operator.endswith("+"):
            return "" if missing else self.expand_inner(rest)
        if not missing:
            assert value is not None
            return value
        if operator and operator[-1] in "-=":
            return self.expand_inner(rest)
        # A default or message inside the braces may hold blanks that would look like words.
        return self._unresolved(name, f"${{{name}}}" if operator else piece.raw)

    def expand_inner(self, text: str) -> str:
        """Expand the variables of a text; quotes around it, as in `${X:-"a b"}`, are dropped."""
        if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
            text = text[1:-1]
        return "".join(self.value_of(piece) for piece in split_expansions(text))

    def _unresolved(self, name: str, raw: str) -> str:
        if name not in self.script.unresolved:
            self.script.unresolved.append(name)
        return raw


def _assigns(token: Word | Array) -> bool:
    return isinstance(token, Word) and _ASSIGNMENT.match(token.plain_start) is not None


def _commands(tokens: Sequence[Token]) -> Iterator[list[Word | Array]]:
    """The words between operators; redirections and their targets are left out."""
    current: list[Word | Array] = []
    skip = False
    for token in tokens:
        if isinstance(token, Operator):
            if token.redirects:
                skip = True
                continue
            skip = False
            if current:
                yield current
            current = []
        elif skip:
            skip = False
        else:
            current.append(token)
    if current:
        yield current
