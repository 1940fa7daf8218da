"""Find the data that tuner ships: launchers and search spaces.

Order: the environment (`$TUNER_LAUNCHERS`, `$TUNER_SPACES`), the installed package (`tuner/_bundled/`), the checkout.
"""

from __future__ import annotations

import os
from pathlib import Path

from tuner.errors import InternalError

_PACKAGE = Path(__file__).resolve().parent


def _shipped(name: str, variable: str) -> Path:
    chosen = os.environ.get(variable)
    if chosen:
        return Path(chosen)
    for folder in (_PACKAGE / "_bundled" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise InternalError(f"the folder {name} is missing from this installation", hint="install tuner again")


def launchers_dir() -> Path:
    """The folder with one sub-folder per engine."""
    return _shipped("launchers", "TUNER_LAUNCHERS")


def spaces_dir() -> Path:
    """The folder with the shipped space files."""
    return _shipped("search_spaces", "TUNER_SPACES")


def checkout_dir() -> Path | None:
    """The source checkout that this package runs from, or None when it was installed as a wheel."""
    return None if (_PACKAGE / "_bundled").is_dir() else _PACKAGE.parent
