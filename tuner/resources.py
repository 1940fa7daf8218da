"""Find the data that tuner ships: launchers and search spaces.

Order: the environment (`$TUNER_LAUNCHERS`, `$TUNER_SPACES`), the installed package (`tuner/_bundled/`), the checkout.
"""

from __future__ import annotations

import os
from pathlib import Path

from tuner.errors import InternalError

_PACKAGE = Path(__file__).resolve().parent


def _chosen_or_shipped(name: str, variable: str) -> Path:
    chosen = os.environ.get(variable)
    return Path(chosen) if chosen else _shipped(name)


def _shipped(name: str) -> Path:
    for folder in (_PACKAGE / "_bundled" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise InternalError(f"the folder {name} is missing from this installation", hint="install tuner again")


def launchers_dir() -> Path:
    """The folder with one sub-folder per engine."""
    return _chosen_or_shipped("launchers", "TUNER_LAUNCHERS")


def spaces_dirs() -> tuple[Path, ...]:
    """Folders with space files, the user's before the shipped one."""
    chosen = os.environ.get("TUNER_SPACES")
    return (*([Path(chosen)] if chosen else []), _shipped("search_spaces"))


def checkout_dir() -> Path | None:
    """The source checkout that this package runs from, or None when it was installed as a wheel."""
    return None if (_PACKAGE / "_bundled").is_dir() else _PACKAGE.parent
