"""Shell text → words that remember their quoting, and operators."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?!$-]")
_ARRAY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=$")
_OPERATORS = re.compile(r"&>>|&>|<<<|<<-|<<|>>|>&|<&|>\||;;|&&|\|\||[;&|()<>\n]")
_REDIRECTS = re.compile(r"[<>]")
_PLACEHOLDER = re.compile(r"<[A-Za-z][\w ./-]*>(?=[\s'\"]|$)")
_CONTINUATION = re.compile(r"\\[ \t\r]*\n")


class ShellSyntaxError(ValueError):
    """A quote, brace or parenthesis has no end; the message says which and on which line."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a word: plain text, or a variable or command whose value is put in.

    Attributes:
        text: the text; for a variable what stands after `$`, braces removed.
        quoted: whether it stands between quotes, so that its value stays one word.
        kind: what it is.
        raw: how it was written.
    """

    text: str
    quoted: bool
    kind: Literal["text", "variable", "command"] = "text"
    raw: str = ""

    @property
    def expands(self) -> bool:
        """Whether a value takes its place."""
        return self.kind != "text"


@dataclass(frozen=True, slots=True)
class Word:
    """One word."""

    pieces: tuple[Piece, ...]

    @property
    def plain(self) -> str:
        """The text of a word without quotes and variables; empty for any other word."""
        return self.pieces[0].text if len(self.pieces) == 1 and self.plain_start else ""

    @property
    def plain_start(self) -> str:
        """The unquoted text at its beginning."""
        first = self.pieces[0]
        return "" if first.quoted or first.expands else first.text


@dataclass(frozen=True, slots=True)
class Array:
    """`NAME=(…)` or `NAME+=(…)`."""

    name: str
    words: tuple[Word, ...]
    append: bool = False


@dataclass(frozen=True, slots=True)
class Operator:
    """`;`, `&&`, a line end, a redirection …"""

    text: str

    @property
    def redirects(self) -> bool:
        """Whether it redirects input or output."""
        return _REDIRECTS.search(self.text) is not None


Token = Word | Array | Operator


def lex(text: str) -> list[Token]:
    """Cut a shell text into tokens; comments are dropped.

    Raises:
        ShellSyntaxError: for a quote, brace or parenthesis without its end.
    """
    return _Lexer(text).tokens()


def split_expansions(text: str) -> list[Piece]:
    """Cut a text into plain parts and `$…` expansions; quotes and backslashes mean nothing here.

    Raises:
        ShellSyntaxError: for a brace or parenthesis without its end.
    """
    return _Lexer(text).expansions()


class _Lexer:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._tokens: list[Token] = []
        self._pieces: list[Piece] = []
        self._plain: list[str] = []

    def tokens(self) -> list[Token]:
        steps: dict[str, Callable[[], None]] = {
            "'": self._single, '"': self._double, "$": self._dollar, "`": self._backtick, "\\": self._backslash,
        }  # fmt: skip
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\r":
                self._end_word()
                self._at += 1
            elif char == "#" and not self._in_word():
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif char == "(" and (match := _ARRAY.match("".join(self._plain))) and not self._pieces:
                self._array(match[1], bool(match[2]))
            elif (placeholder := _PLACEHOLDER.match(self._text, self._at)) is not None:
                # `vllm serve <model>`: a gap to fill in, hardly ever a file to read.
                self._add(Piece(placeholder[0], quoted=True, kind="command", raw=placeholder[0]))
                self._at = placeholder.end()
            elif (operator := _OPERATORS.match(self._text, self._at)) is not None:
                self._operator(operator[0])
            elif char in steps:
                steps[char]()
            else:
                self._plain.append(char)
                self._at += 1
        self._end_word()
        return self._tokens

    def expansions(self) -> list[Piece]:
        while (start := self._text.find("$", self._at)) >= 0:
            self._pieces.append(Piece(self._text[self._at : start], quoted=True))
            self._at = start
            self._pieces.append(self._expansion(quoted=True))
        return [*self._pieces, Piece(self._text[self._at :], quoted=True)]

    # ------------------------------------------------------------ words

    def _in_word(self) -> bool:
        return bool(self._pieces or self._plain)

    def _flush(self) -> None:
        if self._plain:
            self._pieces.append(Piece("".join(self._plain), quoted=False))
            self._plain = []

    def _end_word(self) -> None:
        self._flush()
        if self._pieces:
            self._tokens.append(Word(tuple(self._pieces)))
            self._pieces = []

    def _add(self, piece: Piece) -> None:
        self._flush()
        self._pieces.append(piece)

    def _operator(self, text: str) -> None:
        if text[0] in "<>" and "".join(self._plain).isdigit() and not self._pieces:
            # The 2 of `2>&1` is a stream number, no word.
            self._plain = []
        self._end_word()
        self._tokens.append(Operator(text))
        self._at += len(text)

    def _array(self, name: str, append: bool) -> None:
        self._plain = []
        start = self._at + 1
        self._at = self._closing(self._at, "(", ")") + 1
        inner = lex(self._text[start : self._at - 1])
        words = tuple(token for token in inner if isinstance(token, Word))
        self._tokens.append(Array(name, words, append))

    # ------------------------------------------------------------ quoting

    def _fail(self, what: str, start: int) -> ShellSyntaxError:
        return ShellSyntaxError(f"{what} on line {self._text.count(chr(10), 0, start) + 1} has no end")

    def _single(self) -> None:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise self._fail("the quote '", self._at)
        self._add(Piece(self._text[self._at + 1 : end], quoted=True))
        self._at = end + 1

    def _double(self) -> None:
        start, text = self._at, []
        self._at += 1
        # Even an empty pair of quotes is a word.
        self._add(Piece("", quoted=True))
        while self._at < len(self._text) and (char := self._text[self._at]) != '"':
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in ('"', "\\", "$", "`", "\n"):
                following = self._text[self._at + 1]
                text.append("" if following == "\n" else following)
                self._at += 2
            elif char in "$`":
                self._add(Piece("".join(text), quoted=True))
                text = []
                piece = self._expansion(quoted=True)
                self._add(piece)
            else:
                text.append(char)
                self._at += 1
        if self._at >= len(self._text):
            raise self._fail('the quote "', start)
        self._add(Piece("".join(text), quoted=True))
        self._at += 1

    def _backslash(self) -> None:
        rest = _CONTINUATION.match(self._text, self._at)
        if rest is not None:
            # A continued line; blanks after the backslash are a slip that is easy to make and hard to see.
            self._at = rest.end()
            return
        self._add(Piece(self._text[self._at + 1 : self._at + 2], quoted=True))
        self._at += 2

    def _dollar(self) -> None:
        if self._text.startswith("$'", self._at):
            self._at += 1
            self._single()
        else:
            self._add(self._expansion(quoted=False))

    def _backtick(self) -> None:
        self._add(self._expansion(quoted=False))

    def _expansion(self, *, quoted: bool) -> Piece:
        """The variable or command substitution that starts here."""
        start, text = self._at, self._text
        if text[start] == "`":
            end = text.find("`", start + 1)
            if end < 0:
                raise self._fail("the quote `", start)
            self._at = end + 1
            return Piece(text[start + 1 : end], quoted, "command", text[start : end + 1])
        if text.startswith("$(", start):
            end = self._closing(start + 1, "(", ")")
            self._at = end + 1
            return Piece(text[start + 2 : end], quoted, "command", text[start : end + 1])
        if text.startswith("${", start):
            end = self._closing(start + 1, "{", "}")
            self._at = end + 1
            return Piece(text[start + 2 : end], quoted, "variable", text[start : end + 1])
        match = _NAME.match(text, start + 1)
        if match is None:
            self._at += 1
            return Piece("$", quoted)
        self._at = match.end()
        return Piece(match[0], quoted, "variable", text[start : match.end()])

    def _closing(self, start: int, opening: str, closing: str) -> int:
        """Position of the bracket that closes the one at `start`; brackets inside quotes do not count."""
        depth, at, quote = 0, start, ""
        while at < len(self._text):
            char = self._text[at]
            if char == "\\":
                at += 1
            elif quote:
                quote = "" if char == quote else quote
            elif char in "'\"" and opening == "(":
                quote = char
            elif char == opening:
                depth += 1
            elif char == closing:
                depth -= 1
                if depth == 0:
                    return at
            at += 1
        raise self._fail(f"the {opening}", start)
