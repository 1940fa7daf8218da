"""A process that holds an engine's imports and forks servers; run by the engine's own interpreter, by file path.

    worker ◀─socket─▶ zygote ──fork──▶ guard ──fork──▶ server (goes on as the engine's program would begin)

Importing an engine costs more than starting it. This program imports the modules it is told to, looks that nothing was
touched which a fork would break (GPUs, threads, child processes), and then forks a *guard* for each launch. The guard
is tuner's own (see `guard`) and forks the server, so that supervision, tear-down and proof are those of any launch.

Standard library only: `tuner` cannot be imported in an engine's environment. `warm` starts this program and speaks with
it: JSON in the messages of a SEQPACKET socket, which is also the sign that the worker lives. The guard's three streams
and the host locks come as descriptors with a message; they are never seen by the server.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import multiprocessing.context
import os
import random
import runpy
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

MARK = "TUNER_LAUNCH_ID"
MESSAGE_BYTES = 1 << 20
_MOST_DESCRIPTORS = 64
_STANDARD = 3
_MAPPINGS = Mapping.get.__code__.co_filename


# -- what is read while importing -------------------------------------------------------------------------------------


class _Spied(type(os.environ)):  # type: ignore[misc]
    """`os.environ` that remembers which names were asked for, and who looked at all of them."""

    def __getitem__(self, name: str) -> str:
        if _place(sys._getframe(1)) not in _listing:
            _asked.add(os.fsdecode(name))
        value: str = super().__getitem__(name)
        return value

    def __iter__(self) -> Any:
        # The values that the same line asks for next belong to the listing, and are no questions of their own.
        _listing.add(_place(sys._getframe(1)))
        _listed.add(_module(sys._getframe(1)))
        return super().__iter__()

    def copy(self) -> Any:
        _listing.add(_place(sys._getframe(1)))
        return super().copy()


_asked: set[str] = set()
_listing: set[tuple[str, int]] = set()
_listed: set[str] = set()


def _place(frame: FrameType | None) -> tuple[str, int]:
    """File and line that used `os.environ`, behind the methods of mappings."""
    while frame is not None and frame.f_code.co_filename in (_MAPPINGS, os.__file__, "<frozen os>", __file__):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)


def _module(frame: FrameType | None) -> str:
    """The module, outside the standard library, on whose behalf the whole environment is looked at."""
    library = str(Path(os.__file__).parent)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<frozen") and (not file.startswith(library) or "-packages" in file):
            return str(frame.f_globals.get("__name__", file))
        frame = frame.f_back
    return ""


def _import(modules: Iterable[str]) -> dict[str, str]:
    """Import what is there; names of modules that are not, with the reason."""
    missing = {}
    os.environ.__class__ = _Spied
    try:
        for name in modules:
            try:
                importlib.import_module(name)
            except Exception as error:  # noqa: BLE001 - another version of the engine, or one without this part
                missing[name] = f"{type(error).__name__}: {error}"
    finally:
        os.environ.__class__ = _Spied.__base__
    return missing


# -- may it be forked? ------------------------------------------------------------------------------------------------


def _open_files() -> dict[int, str]:
    files: dict[int, str] = {}
    for entry in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            files[int(entry.name)] = str(entry.readlink())
    return files


def _unfit(files: Mapping[int, str]) -> list[str]:
    """Why a fork of this process would not be like a fresh one; empty if it would."""
    reasons = [f"{path} is open" for path in files.values() if path.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri"))]
    reasons += [f"thread {one.name} runs" for one in threading.enumerate() if one is not threading.main_thread()]
    for children in Path("/proc/self/task").glob("*/children"):
        if children.read_text().split():
            reasons.append("importing started a process")
    return reasons


def _mapped_files() -> list[str]:
    """Program and libraries whose code may read a variable behind Python's back."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted({parts[5] for line in lines if len(parts := line.split(None, 5)) == 6 and parts[5].startswith("/")})


# -- becoming a guard, and the server ---------------------------------------------------------------------------------


def _become_guard(descriptors: list[int], package_root: str) -> Mapping[str, Any]:
    """Run tuner's guard in this process; returns the order in the server's process, and never in the guard's."""
    os.setsid()
    os.chdir("/")
    for number, descriptor in enumerate(descriptors[:_STANDARD]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.path.append(package_root)
    from tuner.trial import guard

    try:
        code = guard.main(execute=False)
    except guard.BecomeServer as begun:
        order = begun.order
    except BaseException:  # noqa: BLE001 - nothing of the zygote may run on in this process
        import traceback

        traceback.print_exc()
        os._exit(1)
    else:
        os._exit(code)
    sys.path.remove(package_root)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tuner"]:
        del sys.modules[name]
    return order


def _close_all_but(kept: Iterable[int]) -> None:
    for descriptor in _open_files():
        if descriptor >= _STANDARD and descriptor not in kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _set_environment(variables: Mapping[str, str]) -> None:
    """Python's and C's environment, and the launch's mark where the kernel shows it (it shows what exec was given)."""
    os.environ.clear()
    os.environ.update(variables)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start, env_end: proc(5)
    shown = ctypes.string_at(start, end - start)
    place = shown.find(f"\0{MARK}=".encode())
    if place >= 0:
        launch_id = variables[MARK].encode()
        ctypes.memmove(start + place + len(MARK) + 2, launch_id, len(launch_id))


def _set_signals(handlers: Mapping[int, Any]) -> None:
    for number, handler in handlers.items():
        with contextlib.suppress(OSError, ValueError, TypeError):
            signal.signal(number, handler)
    # asyncio puts a descriptor here that forked workers would share with their parent.
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))


def _set_randomness() -> None:
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _fork_where_spawn_is_asked() -> None:
    """Processes that the engine would start afresh, imports and all, become forks of their parent."""
    contexts: dict[str, Any] = vars(multiprocessing.context)["_concrete_contexts"]
    contexts["spawn"] = contexts["forkserver"] = contexts["fork"]


def _run(argv: list[str]) -> None:
    """What the interpreter does with the rest of a command line: a script, or `-m module`."""
    program, *rest = argv
    if Path(program).name.startswith("python"):
        if rest[0] == "-m":
            sys.argv = ["-m", *rest[2:]]
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
            return
        program, *rest = rest
    sys.argv = [program, *rest]
    sys.path.insert(0, str(Path(program).resolve().parent))
    runpy.run_path(program, run_name="__main__")


# -- the program ------------------------------------------------------------------------------------------------------


def _collect_dead(_number: int, _frame: FrameType | None) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _serve(channel: socket.socket) -> Mapping[str, Any] | None:
    """Fork a guard for each message; returns the order in a server's process, None when the worker is gone."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, _MOST_DESCRIPTORS)
        if not message:
            return None
        pid = os.fork()
        if pid == 0:
            os.close(channel.detach())
            return _become_guard(descriptors, json.loads(message)["package_root"])
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(json.dumps({"guard": pid}).encode())


def main() -> None:
    """Import, report, and fork until the worker closes the socket."""
    if not os.environ.get("PYTHONSAFEPATH"):
        del sys.path[0]  # this file's folder: the engine must not find its neighbours
    channel = socket.socket(fileno=int(sys.argv[1]))
    wish = json.loads(channel.recv(MESSAGE_BYTES))
    began = time.monotonic()
    missing = _import(wish["modules"])
    handlers = {int(number): signal.getsignal(number) for number in signal.valid_signals()}
    files = _open_files()
    kept = set(files) - {channel.fileno()}
    report = {
        "seconds": time.monotonic() - began,
        "missing": missing,
        "read": sorted(_asked),
        "listed": sorted(_listed),
        "unfit": _unfit(files),
        "files": _mapped_files(),
    }
    channel.send(json.dumps(report).encode())
    signal.signal(signal.SIGCHLD, _collect_dead)
    gc.collect()
    gc.freeze()
    order = _serve(channel)
    if order is None:
        return
    _close_all_but(kept)
    _set_environment(order["env"])
    _set_signals(handlers)
    _set_randomness()
    if wish["fork_workers"]:
        _fork_where_spawn_is_asked()
    gc.unfreeze()
    _run(order["argv"])


if __name__ == "__main__":
    main()
