"""Stands in for `tuner/probe/ranks.py`: same lines, no torch. A run does what its variable `DO` says.

`work` (the default), `fail` (an NCCL message, then exit code 1), `wrong` (a wrong sum), `hang` (no further word), `die`
(the whole program, by SIGKILL). `US` is the time that a run reports, in microseconds.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

ENDS = {"work": 0, "fail": 1, "wrong": 3}


def say(text: str) -> None:
    print(f"probe: {text}", flush=True)


def main(order_file: str, results: str) -> None:
    order = json.loads(Path(order_file).read_text())
    say("importing torch")
    say("ready")
    for run in order["runs"]:
        do = run["env"].get("DO", "work")
        say(f"run {run['number']} begins")
        if do == "hang":
            print("NCCL INFO comm 0x1 rank 0 nranks 2 - Init START", flush=True)
            time.sleep(600)
        if do == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if do == "fail":
            print("NCCL WARN Error : no algorithm/protocol available for function AllGather", flush=True)
        if do == "wrong":
            say("the sum of 8192 bytes is wrong")
        if do == "work":
            times = {str(size): [float(run["env"].get("US", 10))] * 3 for size in order["sizes"]}
            with Path(results).open("a") as file:
                line = {"run": run["number"], "times_us": times, "init_s": 0.1, "library": "2.28.9"}
                file.write(json.dumps(line) + "\n")
        say(f"run {run['number']} ended with {ENDS[do]}")
    say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
