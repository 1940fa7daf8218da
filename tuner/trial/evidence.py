"""What is kept of a hung server before it is killed: stacks, process states, log tail, GPU state, NCCL's recorder."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
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
# PyTorch's flight recorder (the last collectives of each rank): prefix of its dumps, and of the pipes that ask a rank
# to dump now. Newer releases have the first names and still read the second ones.
_RECORDER_DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_RECORDER_PIPES = ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
_RECORDER_WAIT_S = 2.0


def collect_evidence(handle: ServerHandle, gpus: GpuProbe | None = None) -> dict[str, str]:
    """Write everything that can be had about a server that still runs; kind → path.

    Bounded in time (some ten seconds): stacks are taken of all processes at once, and of at most 24.
    """
    folder = handle.run_dir / FOLDER
    folder.mkdir(exist_ok=True)
    asked = _ask_recorder(handle.plan.env)
    members = handle.members()[:_MOST_PROCESSES]
    kept = {
        "stacks": _write(folder / "stacks.txt", _stacks(members)),
        "processes": _write(folder / "processes.txt", "\n".join(map(_describe, members))),
        "log_tail": _write(folder / "log_tail.txt", redact(_tail(handle.run_dir / LOG))),
    }
    if gpus is not None and handle.plan.gpus:
        states = [asdict(state) for state in gpus.states(handle.plan.gpus)]
        kept["gpus"] = _write(folder / "gpus.json", json.dumps({"at": time.time(), "gpus": states}, indent=2))
    if asked:
        time.sleep(_RECORDER_WAIT_S)
    for dump in _with_prefix(handle.plan.env, _RECORDER_DUMPS):
        shutil.copy(dump, folder / dump.name)
        kept[f"flight_recorder:{dump.name}"] = str(folder / dump.name)
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


def _ask_recorder(env: Mapping[str, str]) -> bool:
    """Have every rank dump its flight recorder; False where none listens."""
    asked = False
    for pipe in _with_prefix(env, _RECORDER_PIPES):
        with contextlib.suppress(OSError):
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(descriptor, b"1")
                asked = True
            finally:
                os.close(descriptor)
    return asked


def _with_prefix(env: Mapping[str, str], names: Sequence[str]) -> list[Path]:
    prefix = next((Path(env[name]) for name in names if env.get(name)), None)
    if prefix is None or not prefix.parent.is_dir():
        return []
    return sorted(prefix.parent.glob(f"{glob.escape(prefix.name)}*"))
