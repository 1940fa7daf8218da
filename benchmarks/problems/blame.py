"""Errors of a problem file, told with the place in it."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError


class BrokenProblem(Exception):
    """A problem file that cannot be used: says which file, where in it and what is wrong."""


@contextmanager
def blaming(path: Path, what: str) -> Iterator[None]:
    """Tell an error with the line of the problem file where it arose, or else where the name in question is set.

    Args:
        path: of the problem file.
        what: one of the protocol's names, or what was done with the file.

    Raises:
        BrokenProblem: instead of any error within.
    """
    try:
        yield
    except BrokenProblem:
        raise
    except Exception as error:
        line = _line_of(path, what, error)
        place = f"{path}:{line}" if line else str(path)
        raise BrokenProblem(f"{place}: {what}: {_reason(error)}") from error


def _line_of(path: Path, name: str, error: Exception) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    inside = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if inside:
        return inside[-1]
    if not path.is_file():
        return None
    for node in ast.parse(path.read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node]
        if any(name in (getattr(target, "id", None), getattr(target, "name", None)) for target in targets):
            return node.lineno
    return None


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
    if isinstance(error, KeyError):
        return f"no {error}"
    if isinstance(error, ValueError):
        return str(error)
    return f"{type(error).__name__}: {error}"
