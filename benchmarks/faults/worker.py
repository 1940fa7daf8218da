"""A worker process of its own for one trial, so that it can be killed or limited: `worker.py FAULT TAG RUN_DIR`.

Prints what the trial reported.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.faults.catalogue import INJECTIONS
from benchmarks.faults.trials import Norm, fault_space, run_once, say

if __name__ == "__main__":
    fault, tag, run_dir = sys.argv[1:]
    injection = next(injection for injection in INJECTIONS if injection.name == fault)
    print(say(run_once(fault_space(injection, tag), Path(run_dir), Norm({}, 0.0))))
