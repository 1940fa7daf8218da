"""The comparison grammar of `when:` and `rules:` – parsed, never evaluated as code.

    condition  := conjunction ("or" conjunction)*
    conjunction:= term ("and" term)*
    term       := "not" term | "(" condition ")" | comparison
    comparison := name ("==" | "!=" | "<" | "<=" | ">" | ">=") literal
                | name ("in" | "not" "in") "[" literal ("," literal)* "]"
    literal    := number | on | off | true | false | unset | word | "quoted text"

`engine` is a name like any knob's. A knob that is inactive, or left out, has the value `unset`; it is equal to
`unset` only, and no order comparison holds for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tuner.domain.values import UNSET_WORD, Assignment, Value, same, spell

_TOKEN = re.compile(
    r"""\s*(?:(?P<op>==|!=|<=|>=|<|>|\(|\)|\[|\]|,)|"(?P<dq>[^"]*)"|'(?P<sq>[^']*)'|(?P<word>[^\s()\[\],"'=!<>]+))"""
)
_WORDS: dict[str, Value] = {"on": True, "off": False, "true": True, "false": False, UNSET_WORD: None}
MAX_DEPTH = 50
"""Parentheses and `not` inside each other; more is no condition that a person wrote."""
_KEYWORDS = frozenset({"and", "or", "not", "in"})
_ORDER: dict[str, Callable[[float | str, float | str], bool]] = {
    "<": lambda a, b: a < b,  # type: ignore[operator]
    "<=": lambda a, b: a <= b,  # type: ignore[operator]
    ">": lambda a, b: a > b,  # type: ignore[operator]
    ">=": lambda a, b: a >= b,  # type: ignore[operator]
}


class ConditionSyntaxError(ValueError):
    """The text is no condition; `offset` is the 0-based position of the first character that does not fit."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Comparison:
    """`name op values`; `values` holds one literal except for `in` and `not in`."""

    name: str
    op: str
    values: tuple[Value, ...]
    offset: int = 0

    def holds(self, assignment: Assignment) -> bool:
        """Whether the comparison is true of an assignment; a name that it lacks counts as unset."""
        actual = assignment.get(self.name)
        if self.op in _ORDER:
            wanted = self.values[0]
            if actual is None or wanted is None or isinstance(actual, str) != isinstance(wanted, str):
                return False
            return _ORDER[self.op](actual, wanted)
        found = any(same(actual, value) for value in self.values)
        return found if self.op in ("==", "in") else not found

    def __str__(self) -> str:
        if self.op in ("in", "not in"):
            return f"{self.name} {self.op} [{', '.join(map(_written, self.values))}]"
        return f"{self.name} {self.op} {_written(self.values[0])}"


@dataclass(frozen=True, slots=True)
class Negation:
    """`not inner`."""

    inner: Condition

    def holds(self, assignment: Assignment) -> bool:
        """Whether the inner condition is false of an assignment."""
        return not self.inner.holds(assignment)

    def __str__(self) -> str:
        return f"not ({self.inner})"


@dataclass(frozen=True, slots=True)
class Junction:
    """Terms joined by one word, `and` or `or`."""

    word: str
    terms: tuple[Condition, ...]

    def holds(self, assignment: Assignment) -> bool:
        """Whether all (`and`) or any (`or`) of the terms hold."""
        results = (term.holds(assignment) for term in self.terms)
        return all(results) if self.word == "and" else any(results)

    def __str__(self) -> str:
        return f" {self.word} ".join(f"({t})" if isinstance(t, Junction) else str(t) for t in self.terms)


Condition = Comparison | Negation | Junction


def comparisons(condition: Condition) -> Iterator[Comparison]:
    """Every comparison in a condition, from left to right."""
    if isinstance(condition, Comparison):
        yield condition
    elif isinstance(condition, Negation):
        yield from comparisons(condition.inner)
    else:
        for term in condition.terms:
            yield from comparisons(term)


def parse_condition(text: str) -> Condition:
    """Parse a condition.

    Raises:
        ConditionSyntaxError: with the offset of the first character that does not fit.
    """
    return _Parser(text).parse()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int


def _tokens(text: str) -> list[_Token]:
    found, position, end = [], 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            offset = position + len(text[position:]) - len(text[position:].lstrip())
            raise ConditionSyntaxError(f"unexpected {text[offset]!r}", offset)
        kind = match.lastgroup or ""
        found.append(_Token(kind, match.group(kind), match.start(kind)))
        position = match.end()
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self._end = len(text)
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    def parse(self) -> Condition:
        condition = self._junction("or")
        if (token := self._peek()) is not None:
            raise ConditionSyntaxError(f"unexpected {token.text!r}", token.offset)
        return condition

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _take(self, expected: str) -> _Token:
        token = self._peek()
        if token is None:
            raise ConditionSyntaxError(f"expected {expected} at the end", self._end)
        self._next += 1
        return token

    def _at(self, *texts: str) -> bool:
        token = self._peek()
        return token is not None and token.kind in ("op", "word") and token.text in texts

    def _expect(self, text: str) -> None:
        if not self._at(text):
            token = self._peek()
            raise ConditionSyntaxError(f"expected {text!r}", token.offset if token else self._end)
        self._next += 1

    def _junction(self, word: str) -> Condition:
        inner = self._term if word == "and" else lambda: self._junction("and")
        terms = [inner()]
        while self._at(word):
            self._next += 1
            terms.append(inner())
        return terms[0] if len(terms) == 1 else Junction(word, tuple(terms))

    def _term(self) -> Condition:
        if not self._at("not", "("):
            return self._comparison()
        token = self._take("a term")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ConditionSyntaxError(f"nested more than {MAX_DEPTH} levels deep", token.offset)
        if token.text == "not":
            term: Condition = Negation(self._term())
        else:
            term = self._junction("or")
            self._expect(")")
        self._depth -= 1
        return term

    def _comparison(self) -> Comparison:
        name = self._take("a knob name")
        if name.kind != "word" or name.text in _KEYWORDS:
            raise ConditionSyntaxError(f"expected a knob name, found {name.text!r}", name.offset)
        operator = self._take("a comparison such as ==")
        if operator.text == "not":
            self._expect("in")
            return Comparison(name.text, "not in", self._list(), name.offset)
        if operator.text == "in":
            return Comparison(name.text, "in", self._list(), name.offset)
        if operator.text not in ("==", "!=", *_ORDER):
            raise ConditionSyntaxError(f"expected a comparison, found {operator.text!r}", operator.offset)
        return Comparison(name.text, operator.text, (self._literal(),), name.offset)

    def _list(self) -> tuple[Value, ...]:
        self._expect("[")
        values = [self._literal()]
        while self._at(","):
            self._next += 1
            values.append(self._literal())
        self._expect("]")
        return tuple(values)

    def _literal(self) -> Value:
        token = self._take("a value")
        if token.kind in ("dq", "sq"):
            return token.text
        if token.kind != "word" or token.text in _KEYWORDS:
            raise ConditionSyntaxError(f"expected a value, found {token.text!r}", token.offset)
        return literal(token.text)


def _written(value: Value) -> str:
    """A value such that the grammar reads it back; quoted where a bare word would be another value or several."""
    text = spell(value)
    if not isinstance(value, str):
        return text
    tokens = _TOKEN.fullmatch(text)
    bare = tokens is not None and tokens["word"] == text and text not in _KEYWORDS and literal(text) == text
    return text if bare else f'"{text}"' if '"' not in text else f"'{text}'"


def literal(word: str) -> Value:
    """Read an unquoted word: `on`/`off`/`true`/`false`, `unset`, a number, or itself."""
    if word in _WORDS:
        return _WORDS[word]
    for number in (int, float):
        try:
            return number(word)
        except ValueError:
            continue
    return word
