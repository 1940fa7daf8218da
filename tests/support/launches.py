"""Plans for the rogue server, and questions about the processes that it left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from support import rogue

from tuner.domain.launch import LaunchPlan
from tuner.trial.proctree import read_stat


def rogue_plan(mode: str, *arguments: str, port: int = 1, **changes: object) -> LaunchPlan:
    argv = (sys.executable, "-S", str(rogue.PROGRAM), mode, *arguments)
    settings: dict[str, object] = {"engine": "rogue", "argv": argv, "env": {}, "host": "127.0.0.1", "port": port}
    return LaunchPlan(**{**settings, **changes})  # type: ignore[arg-type]


def installed_plan(program: Path, *arguments: str, **env: str) -> LaunchPlan:
    """A launch of a toy engine's program, whose module lies beside it."""
    variables = {"PYTHONPATH": str(program.parent), **env}
    return LaunchPlan("toy", (str(program), *arguments), variables, "127.0.0.1", 1)


def born(run_dir: Path) -> list[int]:
    """Every process that the rogue server ever made."""
    return [int(path.name) for path in (run_dir / "pids").glob("*")]


def is_gone(pid: int) -> bool:
    """Whether a process has ended; whoever inherits it may take a while to collect it."""
    return (stat := read_stat(pid)) is None or stat.is_dead


def alive(run_dir: Path) -> list[int]:
    return [pid for pid in born(run_dir) if not is_gone(pid)]


def eventually(question: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    """Whether something becomes true; the limit is generous because only a failure waits for it."""
    deadline = time.monotonic() + timeout_s
    while not question():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def has_written(run_dir: Path, text: str) -> Callable[[], bool]:
    log = run_dir / "server.log"
    return lambda: log.exists() and text in log.read_text(errors="replace")
