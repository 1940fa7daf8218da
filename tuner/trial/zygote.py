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
import multiprocessing.popen_fork
import os
import random
import runpy
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tuner.trial.collector import SparedImports
    from tuner.trial.deviceanswers import DeviceAnswers
    from tuner.trial.readytokenizers import ReadyTokenizers

MARK = "TUNER_LAUNCH_ID"
MESSAGE_BYTES = 1 << 20
_MOST_DESCRIPTORS = 64
_STANDARD = 3
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])


# -- importing --------------------------------------------------------------------------------------------------------


class _Imports(NamedTuple):
    """What `warm.Imported` tells of the imports, and what each server needs that goes on from them."""

    report: dict[str, Any]
    answers: DeviceAnswers | None
    tokenizers: ReadyTokenizers | None
    spared: SparedImports
    cuda_is_initialised: Callable[[], bool]


def _import(wish: Mapping[str, Any]) -> _Imports:
    """Import what is there."""
    sys.path.append(_PACKAGE_ROOT)
    from tuner.trial import collector, deviceanswers, forkable, importspy, readytokenizers

    sys.path.remove(_PACKAGE_ROOT)
    began, given = time.monotonic(), dict(os.environ)
    missing = {}
    with importspy.EnvironmentSpy() as spy, forkable.DeviceWatch() as watch:
        answers = deviceanswers.for_torch() if wish["answer_devices"] else None
        if answers is not None:
            answers.start()
        for name in wish["modules"]:
            try:
                importlib.import_module(name)
            except Exception as error:  # noqa: BLE001 - another version of the engine, or one without this part
                missing[name] = f"{type(error).__name__}: {error}"
            watch.look(name=name)
        for name in wish["ask"]:
            _ask(name)
        if answers is not None:
            answers.stop()
    forkable.shut_nvml_down()
    _prepare_titles()
    report = {
        "seconds": time.monotonic() - began,
        "missing": missing,
        "read": sorted(spy.read),
        "listed": sorted(spy.listed),
        "written": {name: os.environ.get(name) for name, _ in given.items() ^ os.environ.items()},
        "opened_by": watch.opened_by,
        "unfit": forkable.unfit(forkable.open_files(), watch.opened_by, wish["ready_threads"]),
        "files": forkable.mapped_files(),
    }
    tokenizers = readytokenizers.for_transformers()
    return _Imports(report, answers, tokenizers, collector.SparedImports(), forkable.cuda_is_initialised)


def _ask(name: str) -> None:
    """Call a function that keeps its answer, if the engine has imported it."""
    module, _, function = name.rpartition(".")
    ask = getattr(sys.modules.get(module), function, None)
    if ask is not None:
        with contextlib.suppress(Exception):  # then it fails in the server, where it is seen
            ask()


def _prepare_titles() -> None:
    """Let servers name their processes: the place for titles is found only while the environment is untouched."""
    titles = sys.modules.get("setproctitle")
    if titles is not None:
        titles.getproctitle()


# -- becoming a guard, and the server ---------------------------------------------------------------------------------


def _become_guard(descriptors: list[int]) -> Mapping[str, Any]:
    """Run tuner's guard in this process; returns the order in the server's process, and never in the guard's."""
    os.setsid()
    os.chdir("/")
    for number, descriptor in enumerate(descriptors[:_STANDARD]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.path.append(_PACKAGE_ROOT)
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
    sys.path.remove(_PACKAGE_ROOT)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tuner"]:
        del sys.modules[name]
    return order


def _descriptors() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
        with contextlib.suppress(OSError):  # the one that lists them
            os.fstat(int(name))
            found.add(int(name))
    return found


def _close_all_but(kept: Iterable[int]) -> None:
    for descriptor in _descriptors() - set(kept):
        if descriptor >= _STANDARD:
            os.close(descriptor)


def _set_environment(variables: Mapping[str, str], written: Mapping[str, str | None]) -> None:
    """Python's and C's environment, and the launch's mark where the kernel shows it (it shows what exec was given).

    Args:
        variables: what the server was given.
        written: what the engine changes in that while it is imported; None for a name that it takes away.
    """
    os.environ.clear()
    os.environ.update({name: value for name, value in {**variables, **written}.items() if value is not None})
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start, env_end: proc(5)
    shown = ctypes.string_at(start, end - start)
    place = shown.find(f"\0{MARK}=".encode())
    if place >= 0:
        launch_id = variables[MARK].encode()
        ctypes.memmove(start + place + len(MARK) + 2, launch_id, len(launch_id))


def _forget_temporary_folder() -> None:
    """Python looks for the temporary folder once and keeps to it; the server has another one than its parent."""
    module = sys.modules.get("tempfile")
    if module is not None:
        module.tempdir = None  # type: ignore[attr-defined]


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


def _fork_where_spawn_is_asked(unless_set: Iterable[str], cuda_is_initialised: Callable[[], bool]) -> None:
    """Processes that the engine would start afresh, imports and all, become forks of their parent.

    But where one of the named variables was set since the server began, which a library reads when it is loaded, or
    where the engine has initialised CUDA in the meantime.
    """
    begun = {name: os.environ.get(name) for name in unless_set}
    kinds: tuple[Any, ...] = (multiprocessing.context.SpawnProcess, multiprocessing.context.ForkServerProcess)
    for kind in kinds:

        def start(process: Any, afresh: Any = kind._Popen) -> Any:
            if any(os.environ.get(name) != value for name, value in begun.items()) or cuda_is_initialised():
                return afresh(process)
            return multiprocessing.popen_fork.Popen(process)

        kind._Popen = staticmethod(start)


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


def _serve(channel: socket.socket, tokenizers: ReadyTokenizers | None) -> Mapping[str, Any] | None:
    """Fork a guard for each message; returns the order in a server's process, None when the worker is gone."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, _MOST_DESCRIPTORS)
        if not message:
            return None
        if tokenizers is not None:
            tokenizers.prepare()
        pid = os.fork()
        if pid == 0:
            os.close(channel.detach())
            return _become_guard(descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(json.dumps({"guard": pid}).encode())


def main() -> None:
    """Import, report, and fork until the worker closes the socket."""
    if not os.environ.get("PYTHONSAFEPATH"):
        del sys.path[0]  # this file's folder: the engine must not find its neighbours
    channel = socket.socket(fileno=int(sys.argv[1]))
    wish = json.loads(channel.recv(MESSAGE_BYTES))
    imports = _import(wish)
    handlers = {int(number): signal.getsignal(number) for number in signal.valid_signals()}
    kept = _descriptors() - {channel.fileno()}
    channel.send(json.dumps(imports.report).encode())
    signal.signal(signal.SIGCHLD, _collect_dead)
    # What is garbage is copied into no server, and no collection of this process or of a guard copies pages.
    gc.collect()
    gc.freeze()
    order = _serve(channel, imports.tokenizers)
    if order is None:
        return
    _close_all_but(kept)
    _set_environment(order["env"], imports.report["written"])
    _forget_temporary_folder()
    _set_signals(handlers)
    _set_randomness()
    imports.spared.start()
    if imports.tokenizers is not None:
        imports.tokenizers.start()
    if imports.answers is not None:
        imports.answers.start()
        os.register_at_fork(after_in_child=imports.answers.stop)
    if wish["fork_workers"]:
        _fork_where_spawn_is_asked(wish["spawn_when_set"], imports.cuda_is_initialised)
    _run(order["argv"])


if __name__ == "__main__":
    main()
