"""A temporary folder of each launch's own, which goes with the launch.

Engines that are killed leave in the temporary folder what they would have removed: vLLM its ZMQ sockets (`<uuid>`) and
the file through which its ranks meet (`vllm_dist_<hex>`; both in vllm/utils/network_utils.py), SGLang the files in
whose place its sockets stand (sglang/srt/server_args.py, PortArgs). With `TMPDIR` these land in a folder that is
removed once every process of the launch is gone, whatever ended it.

What engines keep in the temporary folder from launch to launch stays where it is, and is linked into the launch's own.

Standard library only: the guard removes the folder.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "TMPDIR"
_NAME = re.compile(r"tuner-[0-9a-f]{8}")
# As tempfile looks for one, but for the current folder.
_USUAL = ("/tmp", "/var/tmp", "/usr/tmp")
_USER_NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")
_SOCKET_BYTES = 107
"""Longest path of a Unix socket: `sun_path` of Linux without its closing zero, unix(7)."""

_OWN_BYTES = len("/tuner-00000000")
_ENGINE_BYTES = 40
"""Left for what an engine puts behind the folder: a slash and a UUID, and a little more."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """Where a launch's own folder will be.

    Attributes:
        path: the folder.
        home: the temporary folder that the server would use otherwise.
    """

    path: Path
    home: Path

    def make(self, shared: Iterable[str], environment: Mapping[str, str]) -> bool:
        """Make the folder, with links to what is shared; False where that cannot be done.

        Args:
            shared: names in `home` that outlast a launch; `{user}` stands for the user's name.
            environment: of the server.
        """
        try:
            self.path.mkdir(mode=0o700)
            for name in shared:
                kept = self.home / name.format(user=_user(environment))
                kept.mkdir(mode=0o700, exist_ok=True)
                (self.path / kept.name).symlink_to(kept)
        except OSError:
            remove(self.path)
            return False
        return True


def scratch_for(launch_id: str, environment: Mapping[str, str]) -> Scratch | None:
    """Where the folder of a launch may be: beside the other temporary files, unless sockets would not fit there.

    None where no temporary folder can be written.
    """
    usable = temporary_folders(environment.get(VARIABLE))
    short = next((folder for folder in usable if has_room(folder, _OWN_BYTES + _ENGINE_BYTES)), None)
    return None if short is None else Scratch(short / f"tuner-{launch_id[:8]}", usable[0])


def temporary_folders(*named: str | None) -> list[Path]:
    """Folders for temporary files that can be written: those that were named, then the usual ones."""
    return [Path(name) for name in dict.fromkeys(filter(None, (*named, *_USUAL))) if _is_usable(name)]


def has_room(folder: Path, behind: int) -> bool:
    """Whether the path of a socket may be so many bytes longer than the folder's."""
    return len(os.fsencode(folder)) + behind <= _SOCKET_BYTES


def remove(path: Path) -> bool:
    """Remove the folder of a launch with all that is in it, links but not what they lead to; whether it is gone."""
    import shutil  # costs a guard's start more than all the rest

    if _NAME.fullmatch(path.name) is None:
        return False
    with contextlib.suppress(OSError):
        shutil.rmtree(path)
    return not os.path.lexists(path)


def _is_usable(name: str) -> bool:
    return Path(name).is_absolute() and Path(name).is_dir() and os.access(name, os.W_OK | os.X_OK)


def _user(environment: Mapping[str, str]) -> str:
    """As Python's `getpass.getuser` finds it in the server, in the form that torch makes a file name of."""
    import pwd

    named = next((environment[name] for name in _USER_NAMES if environment.get(name)), None)
    try:
        user = named or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = f"uid_{os.getuid()}"
    return re.sub(r'[\\/:*?"<>|]', "_", user)
