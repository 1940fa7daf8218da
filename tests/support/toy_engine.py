"""An engine in one file, for warm launches: what it sees of argv, environment, folder, streams and chance, as JSON."""

import functools
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SOURCE = Path(__file__)
READ_AT_IMPORT = os.environ.get("TOY_READ_AT_IMPORT", "unset")
TEMPORARY_FOLDER_AT_IMPORT = tempfile.gettempdir()
os.environ["TOY_WRITTEN_AT_IMPORT"] = "by the engine"
os.environ.pop("TOY_TAKEN_AT_IMPORT", None)


@functools.cache
def source_hash() -> int:
    """What takes each server a while; here, who calculated it."""
    return os.getpid()


def view() -> dict[str, object]:
    return {
        "argv": sys.argv[1:],
        "environment": {name: value for name, value in os.environ.items() if name != "TUNER_LAUNCH_ID"},
        "environment_of_children": subprocess.run(
            ["printenv", "TOY_KNOB"], capture_output=True, text=True
        ).stdout.strip(),
        "folder": str(Path.cwd()),
        "temporary_folder": tempfile.gettempdir(),
        "path": [entry for entry in sys.path if "toy" not in entry],
        "main": getattr(sys.modules["__main__"], "__file__", ""),
        "standard_input": str(Path("/proc/self/fd/0").readlink()),
        "descriptors": descriptors(),
        "signals": {number: str(signal.getsignal(number)) for number in (2, 13, 15, 17)},
        "is_main_thread": threading.current_thread() is threading.main_thread(),
        "tuner_modules": [name for name in sys.modules if name.partition(".")[0] == "tuner"],
        "read_at_import": READ_AT_IMPORT,
    }


def descriptors() -> list[str]:
    """What is open beside the three standard streams."""
    entries = [entry for entry in Path("/proc/self/fd").iterdir() if int(entry.name) > 2]
    return sorted(str(entry.readlink()) for entry in entries if entry.is_symlink())


def main() -> None:
    print("chance", random.random(), flush=True)
    print("hashed by", "itself" if source_hash() == os.getpid() else "its parent", flush=True)
    kept = [[] for _ in range(400_000)]  # as many as make a full collection due
    print("frozen", gc.get_freeze_count(), "walked", len(gc.get_objects()) - len(kept), flush=True)
    print("view", json.dumps(view()), flush=True)
    if "worker" in sys.argv:
        import multiprocessing

        if "bound" in sys.argv:
            os.environ["TOY_PLACES"] = "0"
        process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
        process.start()
        print("worker", process.pid, flush=True)
    if "leave" in sys.argv:
        sys.exit(7)
    print("ready", flush=True)
    time.sleep(600)
