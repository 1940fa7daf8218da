"""What is kept of a hung server before it is killed: stacks, process states, log tail, GPU state, NCCL's recorder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tuner.secrets import redact
from tuner.trial.gpu import GpuProbe
from tuner.trial.process import LOG, ServerHandle
from tuner.trial.proctree import ProcessStat

FOLDER = "evidence"
_TAIL_BYTES = 64 * 1024
_DUMP_TIMEOUT_S = 8.0
_MOST_PROCESSES = 24
_PROC_FILES = ("wchan", "stack", "status")
# PyTorch writes its flight recorder (the last collectives of each rank) below the prefix in this variable.
_RECORDER_PREFIX = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"


def collect_evidence(handle: ServerHandle, gpus: GpuProbe | None = None) -> dict[str, str]:
    """Write everything that can be had about a server that still runs; kind → path.

    Bounded in time (some ten seconds): stacks are taken of all processes at once, and of at most 24.
    """
    folder = handle.run_dir / FOLDER
    folder.mkdir(exist_ok=True)
    members = handle.members()[:_MOST_PROCESSES]
    kept = {
        "stacks": _write(folder / "stacks.txt", _stacks(members)),
        "processes": _write(folder / "processes.txt", "\n".join(map(_describe, members))),
        "log_tail": _write(folder / "log_tail.txt", redact(_tail(handle.run_dir / LOG))),
    }
    if gpus is not None and handle.plan.gpus:
        states = [asdict(state) for state in gpus.states(handle.plan.gpus)]
        kept["gpus"] = _write(folder / "gpus.json", json.dumps({"at": time.time(), "gpus": states}, indent=2))
    for recorded in _recorder_files(handle.plan.env.get(_RECORDER_PREFIX)):
        shutil.copy(recorded, folder / recorded.name)
        kept[f"flight_recorder:{recorded.name}"] = str(folder / recorded.name)
    return kept


def _write(path: Path, text: str) -> str:
    path.write_text(text, errors="replace")
    return str(path)


def _stacks(members: Sequence[ProcessStat]) -> str:
    program = _py_spy()
    if program is None or not members:
        return "no Python stacks: py-spy is not installed\n"
    with ThreadPoolExecutor(len(members)) as pool:
        return "\n".join(pool.map(lambda member: _python_stack(program, member), members))


def _py_spy() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def _python_stack(program: str, member: ProcessStat) -> str:
    title = f"== pid {member.pid} {member.name} (state {member.state})\n"
    # A stopped process cannot be paused by ptrace in bounded time; reading its memory without pausing can be done.
    options = ["--nonblocking"] if member.state in "TtD" else []
    try:
        done = subprocess.run(
            [program, "dump", "--pid", str(member.pid), *options],
            capture_output=True,
            timeout=_DUMP_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{title}no stack: {error}\n"
    return title + redact((done.stdout or done.stderr).decode(errors="replace"))


def _describe(member: ProcessStat) -> str:
    root = Path("/proc") / str(member.pid)
    parts = [
        f"== pid {member.pid} {member.name}: state {member.state}, parent {member.parent}, session {member.session}"
    ]
    try:
        command = (root / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        parts.append(f"command: {redact(command)}")
    except OSError:
        parts.append("command: gone")
    for name in _PROC_FILES:
        try:
            parts.append(f"-- {name}\n{(root / name).read_text(errors='replace').rstrip()}")
        except OSError as error:
            parts.append(f"-- {name}: {error.strerror}")
    return "\n".join(parts) + "\n"


def _tail(log: Path) -> str:
    newest = max(log.parent.glob(f"{log.name}*"), key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        return ""
    with newest.open("rb") as file:
        file.seek(max(0, newest.stat().st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", errors="replace")


def _recorder_files(prefix: str | None) -> list[Path]:
    if not prefix:
        return []
    path = Path(prefix)
    return sorted(path.parent.glob(f"{path.name}*")) if path.parent.is_dir() else []
