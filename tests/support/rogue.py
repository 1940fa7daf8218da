"""A server that misbehaves in one chosen way, standard library only; run as `rogue.py MODE [ARGUMENTS]`.

Every process that it makes writes its id into `pids/` of its working directory, so that a test knows them all.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import sys
import tempfile
import time
import uuid
from pathlib import Path

PROGRAM = Path(__file__)


def note() -> None:
    folder = Path("pids")
    folder.mkdir(exist_ok=True)
    (folder / str(os.getpid())).touch()


def wait_forever() -> None:
    while True:
        time.sleep(60)


def child(*, new_session: bool = False, detach: bool = False, hide: bool = False) -> None:
    """Fork a process that lives on, optionally as hard to find as engines' children are."""
    middle = os.fork()
    if middle:
        if detach:
            os.waitpid(middle, 0)
        return
    if new_session:
        os.setsid()
    if detach and os.fork():
        os._exit(0)
    if hide:
        hide_everything()
    note()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wait_forever()


def hide_everything() -> None:
    """Overwrite the visible environment, as programs that set their title do, and let go of the log."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])
    ctypes.memset(start, 0, end - start)
    silent = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(silent, descriptor)


def listen(port: int) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


def litter(*shared: str) -> None:
    """Leave in the temporary folder what engines leave there: a socket with a long name, a file, and shared files."""
    folder = Path(tempfile.gettempdir())
    print(f"in {folder}", flush=True)
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(folder / str(uuid.uuid4())))
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(b"x")
    for name in shared:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "kept").write_text("x")


def share(*names: str) -> list[mmap.mmap]:
    """Map shared memory that nobody will remove: a new one, and those of the given names."""
    mapped = []
    for name in (f"rogue-{uuid.uuid4()}", *names):
        descriptor = os.open(f"/dev/shm/{name}", os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, mmap.PAGESIZE)
        mapped.append(mmap.mmap(descriptor, mmap.PAGESIZE))
        os.close(descriptor)
        print(f"maps {name}", flush=True)
    return mapped


def main() -> None:
    mode, *arguments = sys.argv[1:]
    note()
    print(f"mode {mode}", flush=True)
    if mode == "quiet":
        wait_forever()
    elif mode == "exit":
        sys.exit(int(arguments[0]))
    elif mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("deaf", flush=True)
        wait_forever()
    elif mode == "family":
        child()
        child(new_session=True)
        child(detach=True)
        child(new_session=True, detach=True, hide=True)
        print("family complete", flush=True)
        wait_forever()
    elif mode == "daemon":
        child(new_session=True, detach=True)
        print("daemon left", flush=True)
    elif mode == "crash-leaving-child":
        child(new_session=True)
        time.sleep(0.2)
        sys.exit(3)
    elif mode == "lose-child":
        victim = os.fork()
        if victim == 0:
            wait_forever()
        while not Path(arguments[0]).exists():
            time.sleep(0.02)
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        print("fatal: a child is gone", flush=True)
        time.sleep(0.5)
    elif mode == "listen":
        server = listen(int(arguments[0]))
        print("listening", flush=True)
        while True:
            server.accept()[0].close()
    elif mode == "flood":
        block = b"x" * 99 + b"\n"
        for _ in range(int(os.environ["FLOOD_LINES"]) // 100):
            os.write(1, block * 100)
        os.write(1, b"the last words\n")
    elif mode == "garbage":
        os.write(1, b"before \xff\xfe\x00 after\n\x1b[31mred\x1b[0m\rbar 1\rbar 2\n")
    elif mode == "environment":
        for name, value in sorted(os.environ.items()):
            print(f"{name}={value}", flush=True)
    elif mode == "chatter":
        while True:
            print("still working on it", flush=True)
            time.sleep(0.02)
    elif mode == "litter":
        litter(*arguments)
        print("littered", flush=True)
        wait_forever()
    elif mode == "share":
        mapped = share(*arguments)
        print(f"shared {len(mapped)}", flush=True)
        wait_forever()
    elif mode == "script":
        for line in arguments:
            print(line, flush=True)
        wait_forever()
    else:
        sys.exit(f"no such mode: {mode}")


if __name__ == "__main__":
    main()
