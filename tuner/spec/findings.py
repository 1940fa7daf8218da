"""What is found wrong in one document, collected so that everything is reported together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tuner.errors import Problem
from tuner.yamlfile import Document, Spot, dotted

COMMAND_LINE = "command line"
"""Stands for the file of what was given there."""

Place = Sequence[str | int]
"""A path in the document: mapping keys and list positions from the top."""


@dataclass
class Findings:
    """Problems of one document.

    Attributes:
        document: what is looked at.
        replaced: dotted paths whose value is the command line's and not the document's.
        errors: stop a study.
        warnings: are shown and recorded.
    """

    document: Document
    replaced: frozenset[str] = frozenset()
    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def error(self, place: Place, message: str, hint: str | None = None, *, key: bool = False, offset: int = 0) -> None:
        """Note an error; `offset` moves the column into a text that stands unquoted on one line."""
        spot = self.document.locate(place, key=key)
        column = spot.column + (offset if self.document.is_plain(place) else 0)
        self._add(self.errors, place, replace(spot, column=column), message, hint)

    def error_at(self, place: Place, word: str, message: str, hint: str | None = None) -> None:
        """Note an error in a text, at one of its words."""
        self._add(self.errors, place, self.document.locate_word(place, word), message, hint)

    def warn(self, place: Place, message: str, hint: str | None = None, *, key: bool = False) -> None:
        """Note a warning."""
        self._add(self.warnings, place, self.document.locate(place, key=key), message, hint)

    def warn_at(self, place: Place, word: str, message: str, hint: str | None = None) -> None:
        """Note a warning in a text, at one of its words."""
        self._add(self.warnings, place, self.document.locate_word(place, word), message, hint)

    def left_out(self, section: str, key: str) -> bool:
        """Whether what the file says of a section's key is wrong: a default stands in its place, and judges nothing."""
        whole = f"{section}.{key}"
        return any(
            problem.path in (section, whole)
            or problem.path.startswith((f"{whole}.", f"{whole}["))
            or (problem.path.startswith(f"{section}.") and problem.hint == f"did you mean {key}?")
            for problem in self.errors
        )

    def _add(self, to: list[Problem], place: Place, spot: Spot, message: str, hint: str | None) -> None:
        path = dotted(place)
        problem = Problem(self.document.file, spot.line, spot.column, path, message, spot.source_line, hint)
        if path in self.replaced:
            problem = Problem(COMMAND_LINE, 0, 0, path, message, hint=hint)
        if problem not in to:
            to.append(problem)
