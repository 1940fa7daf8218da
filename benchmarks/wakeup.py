"""What does waking up cost on this machine? The least that a token which arrives alone can cost any client.

    python -m benchmarks.wakeup

A process blocks in `read` of a pipe; another one writes a byte every 10 ms. Its CPU time per byte is one wake-up and
one system call: no event loop, no HTTP, no JSON.
"""

import json
import os
import time

PERIOD_S, WRITES = 0.01, 300


def wakeup_cost_us() -> float:
    """CPU microseconds per wake-up of a process that does nothing else."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        for _ in range(WRITES):
            time.sleep(PERIOD_S)
            os.write(writing, b".")
        os._exit(0)
    os.close(writing)
    began = time.process_time()
    woken = 0
    while os.read(reading, 1):
        woken += 1
    spent = time.process_time() - began
    os.close(reading)
    os.waitpid(child, 0)
    return spent * 1e6 / woken


def main() -> None:
    """Measure and print."""
    print(json.dumps({"wakeup_us": round(wakeup_cost_us(), 1)}))


if __name__ == "__main__":
    main()
