"""Find files: the data that tuner ships (launchers and search spaces), and what users name.

What is shipped is looked for in the environment (`$TUNER_LAUNCHERS`, `$TUNER_SPACES`), in the installed package
(`tuner/_bundled/`), then in the checkout.
"""

from __future__ import annotations

import os
from pathlib import Path

from tuner.errors import InternalError, UserError

_PACKAGE = Path(__file__).resolve().parent
_SHOWN = 80
"""Characters of a name that cannot be, in the message that says so."""


def named_path(name: str | Path) -> Path:
    """The path that a user's name means, `~` expanded; whether anything is there can be asked of it.

    Raises:
        UserError: the system cannot even look: the name is too long, its user is unknown, a folder is closed to us.
    """
    shown = str(name) if len(str(name)) <= _SHOWN else f"{str(name)[:_SHOWN]}…"
    try:
        path = Path(name).expanduser()
        path.exists()
    except RuntimeError as error:
        raise UserError(f"{shown}: there is no such user", hint="write the path in full") from error
    except OSError as error:
        raise UserError(f"{shown}: cannot be looked at: {error.strerror}", hint="give another path") from error
    return path


def may_exist(path: Path) -> bool:
    """Whether a file may be there; where the system does not say, reading it tells what is wrong."""
    try:
        return path.exists()
    except OSError:
        return True


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
