"""Children that outlive their server, as leaked schedulers of real engines do."""

from __future__ import annotations

import subprocess
import sys

# Forks away from its parent, so that it belongs to init, in a session of its own; ends by itself, since a test that
# fails to find it must not leave it for ever.
_CODE = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
time.sleep(float(sys.argv[1]))
"""
_NAMES = {"sglang": "sglang::scheduler_TP0", "vllm": "VLLM::EngineCore"}


def leave_child(flavor: str, *, lifetime_s: float, keep_fds: tuple[int, ...] = ()) -> None:
    """Start a double-forked child named like the engine's; it keeps the given descriptors open.

    Args:
        flavor: whose child's name it bears.
        lifetime_s: real seconds until it ends by itself.
        keep_fds: descriptors that it holds, such as the listening socket.
    """
    command = [_NAMES[flavor], "-I", "-S", "-c", _CODE, str(lifetime_s)]
    subprocess.run(
        command,
        executable=sys.executable,
        pass_fds=keep_fds,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )
