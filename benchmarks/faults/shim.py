"""Full disks and set clocks for the processes of one study, without touching the machine's: see `shim.c`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tuner.errors import MachineUnfit

_SOURCE = Path(__file__).with_name("shim.c")


class Shim:
    """A built shim and its switches.

    Args:
        folder: gets the library and the switches; on a disk that is not full.

    Raises:
        MachineUnfit: there is no C compiler.
    """

    def __init__(self, folder: Path) -> None:
        self._switches = folder / "shim"
        self._switches.mkdir()
        self._library = self._switches / "shim.so"
        compiler = shutil.which("cc")
        if compiler is None:
            raise MachineUnfit("no C compiler", hint="install gcc: the full disk and the set clock need one")
        command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(self._library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the processes that shall see what the switches say."""
        before = os.environ.get("LD_PRELOAD", "")
        return {
            "LD_PRELOAD": " ".join(filter(None, [str(self._library), before])),
            "TUNER_FAULT_SHIM": str(self._switches),
        }

    def fill_disk(self) -> None:
        """From now on no file grows."""
        (self._switches / "full").touch()

    def free_disk(self) -> None:
        """Writing works again."""
        (self._switches / "full").unlink()

    def set_clock(self, seconds: int) -> None:
        """The wall clock jumps to so many seconds beside the true time."""
        unfinished = self._switches / "clock.new"
        unfinished.write_text(str(seconds))
        unfinished.replace(self._switches / "clock")
